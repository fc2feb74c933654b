"""What has come to one subscriber: how many messages, how late, what is missing, what came twice. Sans-IO."""

from bisect import bisect_right
from collections.abc import Collection

from kcast.loadtest.bench.latencies import Latencies
from kcast.loadtest.bench.plan import WARM_UP_NS, time_of

SEQUENCES_MAX = 20_000  # of a topic and a publisher; further ones are counted, but not looked at for gaps
JUMP_MAX = 1_000_000  # what is further away is no gap: the publisher, or somebody in its name, begins anew


class Sequence:
    """The numbers of one publisher's messages on one topic that have come, from the lowest to the highest.

    What is missing between them is kept as runs, ascending: each message adds one at most.
    """

    def __init__(self, seq: int) -> None:
        self._lowest = self._highest = seq
        self._firsts: list[int] = []  # the first number of each run
        self._ends: list[int] = []  # the number after the last
        self.missing = 0  # also those from before the publisher began anew

    def take(self, seq: int) -> bool:
        """Notes a further message; returns False where it has come before."""
        if seq == self._highest + 1:
            self._highest = seq
            return True
        if abs(seq - self._highest) > JUMP_MAX:
            self._begin_anew(seq)
            return True
        if seq > self._highest:
            self._miss(len(self._firsts), self._highest + 1, seq)
            self._highest = seq
            return True
        if seq < self._lowest:
            self._miss(0, seq + 1, self._lowest)
            self._lowest = seq
            return True
        return self._fill(seq)

    def _miss(self, index: int, first: int, end: int) -> None:
        """Notes a run of missing numbers, if there are any in it."""
        if first < end:
            self._firsts.insert(index, first)
            self._ends.insert(index, end)
            self.missing += end - first

    def _fill(self, seq: int) -> bool:
        """Takes a number out of the run that it is in; returns False where it is in none."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0 or seq >= self._ends[index]:
            return False
        first, end = self._firsts[index], self._ends[index]
        rest = [(low, high) for low, high in ((first, seq), (seq + 1, end)) if low < high]
        self._firsts[index : index + 1] = [low for low, _ in rest]
        self._ends[index : index + 1] = [high for _, high in rest]
        self.missing -= 1
        return True

    def _begin_anew(self, seq: int) -> None:
        self._firsts.clear()
        self._ends.clear()
        self._lowest = self._highest = seq


class Received:
    """What one subscriber has received.

    `delivered` counts the messages that count: those of `publishers`, or of anybody where that is None, but
    no warm-up, and none that had come before. Others are counted as `foreign` and `twice`. `wants_latencies`
    says whether messages tell a time of this machine's clock.
    """

    def __init__(self, publishers: Collection[str] | None = None, *, wants_latencies: bool = False) -> None:
        self.delivered = 0
        self.bytes = 0  # of payloads
        self.twice = 0
        self.foreign = 0
        self.missing = 0  # between others of their publisher on their topic
        self.latencies = Latencies()
        self.first_ns: int | None = None  # when the first and the last message came
        self.last_ns: int | None = None
        self._publishers = None if publishers is None else frozenset(publishers)
        self._wants_latencies = wants_latencies
        self._sequences: dict[tuple[bytes, str], Sequence] = {}

    def take(self, topic: bytes, publisher: str | None, seq: int | None, payload: bytes, now_ns: int) -> None:
        """Takes a message; `publisher` and `seq` are None where it is raw."""
        if self._publishers is not None and publisher not in self._publishers:
            self.foreign += 1
            return
        if publisher is not None and seq is not None and not self._is_new((topic, publisher), seq):
            self.twice += 1
            return
        time_ns = time_of(payload)
        if time_ns == WARM_UP_NS:
            return
        if self.first_ns is None:
            self.first_ns = now_ns
        self.last_ns = now_ns
        self.delivered += 1
        self.bytes += len(payload)
        if self._wants_latencies and time_ns is not None:
            self.latencies.add(now_ns - time_ns)

    def _is_new(self, key: tuple[bytes, str], seq: int) -> bool:
        sequence = self._sequences.get(key)
        if sequence is not None:
            before = sequence.missing
            is_new = sequence.take(seq)
            self.missing += sequence.missing - before
            return is_new
        if len(self._sequences) < SEQUENCES_MAX:
            self._sequences[key] = Sequence(seq)
        return True
