"""Notices what is missing from publishers' sequences. PROTOCOL §9.4.

Each sequence (of a topic and a publisher) is watched by itself (`client/messages/sequence.py`). A number that
is skipped may still be on its way by another server, so a gap is reported only after a settling time, and
withdrawn when it is filled. Anyone can claim any number, so numbers only report, and decide nothing.

Anyone can also make up publishers. So those who have been heard for a while have a part of the memory that
newcomers cannot take, however many there are: three quarters of it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain

from kcast.client.events import Gap, GapFilled
from kcast.client.messages.sequence import SETTLING_S, Sequence

PUBLISHERS_MAX = 4096
NEWCOMER_S = 10.0
NEWCOMERS_PART = 4  # a quarter of all

Key = tuple[bytes, str] | tuple[bytes, str, bytes]
"""What a sequence is known by: topic, publisher, and for messages that were proven what proves them."""


class GapTracker:
    """Watches sequences, one for each key.

    Where there are too many, those are forgotten that were heard least recently: among newcomers, as long as
    these have more than their part.
    """

    def __init__(self, settling_s: float = SETTLING_S, publishers_max: int = PUBLISHERS_MAX) -> None:
        self._settling_s = settling_s
        self._publishers_max = publishers_max
        self._newcomers_max = max(1, publishers_max // NEWCOMERS_PART)
        self._newcomers: OrderedDict[Key, tuple[float, Sequence]] = OrderedDict()  # and since when
        self._established: OrderedDict[Key, Sequence] = OrderedDict()
        self._due: list[tuple[float, Key]] = []
        self._heard: dict[Key, Sequence] = {}  # whose times may have changed since that was last looked at

    def __len__(self) -> int:
        return len(self._newcomers) + len(self._established)

    def sequences(self) -> Iterator[Sequence]:
        """Yields all sequences that are watched."""
        return chain((sequence for _, sequence in self._newcomers.values()), self._established.values())

    def heard_all(self, key: Key, seqs: list[int], now: float) -> Iterator[GapFilled]:
        """Takes note of deliveries that came together, in any order; yields what they fill of gaps that had
        been reported.

        They count in the order of their numbers: what came by several servers is no jump, then.
        """
        if len(seqs) > 1:
            seqs.sort()
        sequence = self._known(key, now)
        for first, last in _runs(seqs):
            if sequence is not None and sequence.heard_run(first, last, now):
                continue
            for seq in range(first, last + 1):
                if (filled := self.heard(key, seq, now)) is not None:
                    yield filled
            sequence = self._sequence(key)
        if sequence is not None:
            self._note(key, sequence)

    def heard(self, key: Key, seq: int, now: float) -> GapFilled | None:
        """Takes note of a delivery; returns GapFilled where it fills a gap that had been reported."""
        sequence = self._known(key, now)
        if sequence is None:
            self._newcomers[key] = now, Sequence(seq, now, self._settling_s)
            self._make_room()
            return None
        was_reported = sequence.heard(seq, now)
        self._note(key, sequence)
        return GapFilled(key[0], key[1], seq) if was_reported else None

    def _known(self, key: Key, now: float) -> Sequence | None:
        """Returns a sequence that is heard again; None for a new one."""
        sequence = self._established.get(key)
        if sequence is not None:
            self._established.move_to_end(key)
            return sequence
        return self._heard_again(key, now) if key in self._newcomers else None

    def _note(self, key: Key, sequence: Sequence) -> None:
        if sequence.runs or sequence.has_unreported:
            self._heard[key] = sequence

    def _heard_again(self, key: Key, now: float) -> Sequence:
        since, sequence = self._newcomers[key]
        if now < since + NEWCOMER_S:
            self._newcomers.move_to_end(key)
        else:
            del self._newcomers[key]
            self._established[key] = sequence
            if len(self._established) > max(1, self._publishers_max - self._newcomers_max):
                self._established.popitem(last=False)
        return sequence

    def _make_room(self) -> None:
        if len(self._newcomers) + len(self._established) > self._publishers_max:
            has_too_many = len(self._newcomers) > self._newcomers_max
            (self._newcomers if has_too_many else self._established).popitem(last=False)

    def next_timeout(self) -> float | None:
        """Returns when the next gap may be reported; None where none is in sight."""
        if self._heard:
            self._look_at_heard()
        while self._due and not self._is_current(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def settle(self, now: float) -> Iterator[Gap]:
        """Yields the runs of numbers that have not come in time, each once."""
        if self._heard:
            self._look_at_heard()
        while self._due and self._due[0][0] <= now:
            at, key = heapq.heappop(self._due)
            if not self._is_current(at, key):
                continue
            sequence = self._sequence(key)
            assert sequence is not None
            sequence.looked_at = None
            for first, last in sequence.settle(now):
                yield Gap(key[0], key[1], first, last)
            self._look_later(key, sequence)

    def _look_at_heard(self) -> None:
        heard, self._heard = self._heard, {}
        for key, sequence in heard.items():
            self._look_later(key, sequence)

    def _look_later(self, key: Key, sequence: Sequence) -> None:
        at = sequence.next_due()
        if at is not None and (sequence.looked_at is None or at < sequence.looked_at):
            sequence.looked_at = at
            heapq.heappush(self._due, (at, key))

    def _is_current(self, at: float, key: Key) -> bool:
        sequence = self._sequence(key)
        return sequence is not None and sequence.looked_at == at

    def _sequence(self, key: Key) -> Sequence | None:
        newcomer = self._newcomers.get(key)
        return newcomer[1] if newcomer is not None else self._established.get(key)


def _runs(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and the last of each run of numbers in a row."""
    numbers = iter(seqs)
    first = last = next(numbers)
    for seq in numbers:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last
