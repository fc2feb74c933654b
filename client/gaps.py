"""Notices what is missing from publishers' sequences. PROTOCOL §9.4.

Each sequence (of a topic and a publisher) is watched by itself (`kcast.client.sequence`). A number that is
skipped may still be on its way by another server, so a gap is reported only after a settling time, and
withdrawn when it is filled. Anyone can claim any number, so numbers only report, and decide nothing.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator

from kcast.client.events import Gap, GapFilled
from kcast.client.sequence import SETTLING_S, Sequence

PUBLISHERS_MAX = 4096

_Key = tuple[bytes, str]


class GapTracker:
    """Watches sequences, one for each (topic, publisher); the least recently heard are forgotten first."""

    def __init__(self, settling_s: float = SETTLING_S, publishers_max: int = PUBLISHERS_MAX) -> None:
        self._settling_s = settling_s
        self._publishers_max = publishers_max
        self._sequences: OrderedDict[_Key, Sequence] = OrderedDict()
        self._due: list[tuple[float, _Key]] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def heard(self, topic: bytes, publisher: str, seq: int, now: float) -> GapFilled | None:
        """Takes note of a delivery; returns GapFilled where it fills a gap that had been reported."""
        key = topic, publisher
        sequence = self._sequences.get(key)
        if sequence is None:
            self._sequences[key] = Sequence(seq, now, self._settling_s)
            if len(self._sequences) > self._publishers_max:
                self._sequences.popitem(last=False)
            return None
        self._sequences.move_to_end(key)
        was_reported = sequence.heard(seq, now)
        if sequence.runs or sequence.has_unreported:
            self._look_later(key, sequence)
        return GapFilled(topic, publisher, seq) if was_reported else None

    def next_timeout(self) -> float | None:
        """Returns when the next gap may be reported; None where none is in sight."""
        while self._due and not self._is_current(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def settle(self, now: float) -> Iterator[Gap]:
        """Yields the runs of numbers that have not come in time, each once."""
        while self._due and self._due[0][0] <= now:
            at, key = heapq.heappop(self._due)
            if not self._is_current(at, key):
                continue
            sequence = self._sequences[key]
            sequence.looked_at = None
            for first, last in sequence.settle(now):
                yield Gap(*key, first, last)
            self._look_later(key, sequence)

    def _look_later(self, key: _Key, sequence: Sequence) -> None:
        at = sequence.next_due()
        if at is not None and (sequence.looked_at is None or at < sequence.looked_at):
            sequence.looked_at = at
            heapq.heappush(self._due, (at, key))

    def _is_current(self, at: float, key: _Key) -> bool:
        sequence = self._sequences.get(key)
        return sequence is not None and sequence.looked_at == at
