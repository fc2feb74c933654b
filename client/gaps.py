"""Notices what is missing from a publisher's sequence. PROTOCOL §9.4.

The first number seen from a publisher is its baseline. A number that is skipped may still be on its way by
another server, so a gap is reported only after a settling time, and withdrawn when it is filled. Anyone can
claim any number, so numbers only report, and decide nothing. A jump of more than 1000 is taken for a new
start; otherwise one forged number could report a million missing. Missing numbers are kept as runs: a message
adds at most one run, however far it jumps, and the oldest runs are forgotten first.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kcast.client.events import Gap, GapFilled

SETTLING_S = 2.0
JUMP_MAX = 1000
RUNS_MAX = 64
PUBLISHERS_MAX = 4096


@dataclass(slots=True)
class _Run:
    first: int
    last: int
    due_at: float
    reported: bool = False


@dataclass(slots=True)
class _Sequence:
    highest: int
    missing: list[_Run]
    advanced_at: float


class GapTracker:
    """Watches sequences, one for each (topic, publisher); the least recently heard are forgotten first."""

    def __init__(self, settling_s: float = SETTLING_S, publishers_max: int = PUBLISHERS_MAX) -> None:
        self._settling_s = settling_s
        self._publishers_max = publishers_max
        self._sequences: OrderedDict[tuple[bytes, str], _Sequence] = OrderedDict()
        self._settling: deque[tuple[float, tuple[bytes, str]]] = deque()

    def __len__(self) -> int:
        return len(self._sequences)

    def heard(self, topic: bytes, publisher: str, seq: int, now: float) -> GapFilled | None:
        """Takes note of a delivery; returns GapFilled where it fills a gap that had been reported."""
        key = topic, publisher
        sequence = self._sequences.get(key)
        if sequence is None or self._is_new_start(sequence, seq, now):
            self._sequences[key] = _Sequence(seq, [], now)
            self._sequences.move_to_end(key)
            if len(self._sequences) > self._publishers_max:
                self._sequences.popitem(last=False)
            return None
        self._sequences.move_to_end(key)
        if seq <= sequence.highest:
            was_reported = _fill(sequence.missing, seq)
            return GapFilled(topic, publisher, seq) if was_reported else None
        if seq > sequence.highest + 1:
            due_at = now + self._settling_s
            sequence.missing.append(_Run(sequence.highest + 1, seq - 1, due_at))
            del sequence.missing[:-RUNS_MAX]
            self._settling.append((due_at, key))
        sequence.highest, sequence.advanced_at = seq, now
        return None

    def _is_new_start(self, sequence: _Sequence, seq: int, now: float) -> bool:
        """Whether the publisher has begun anew.

        It has if `seq` is far ahead, or if it is far back and comes too late to be a slower server's copy.
        """
        if seq > sequence.highest:
            return seq - sequence.highest > JUMP_MAX
        return sequence.highest - seq > JUMP_MAX and now > sequence.advanced_at + self._settling_s

    def next_timeout(self) -> float | None:
        """Returns when the settling time of the next skipped numbers is over; None where none are."""
        return self._settling[0][0] if self._settling else None

    def settle(self, now: float) -> Iterator[Gap]:
        """Yields the runs of numbers that have not come in time, each once."""
        while self._settling and self._settling[0][0] <= now:
            _, key = self._settling.popleft()
            sequence = self._sequences.get(key)
            for run in sequence.missing if sequence else ():
                if run.due_at <= now and not run.reported:
                    run.reported = True
                    yield Gap(*key, run.first, run.last)


def _fill(missing: list[_Run], seq: int) -> bool:
    """Takes one number out of the runs; returns whether it had been reported missing."""
    for index, run in enumerate(missing):
        if run.first <= seq <= run.last:
            halves = replace(run, last=seq - 1), replace(run, first=seq + 1)
            missing[index : index + 1] = [half for half in halves if half.first <= half.last]
            del missing[:-RUNS_MAX]
            return run.reported
    return False
