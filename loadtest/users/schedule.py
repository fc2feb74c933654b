"""What each publisher publishes when, and which topics each subscriber listens to, from the scenario alone.

Each publisher has an endless stream of intended times and topics, counted from the start t0 of the test.
Every process computes the same streams, so a subscriber knows what it should receive, and when, without being
told. Streams are made block by block; only the last blocks are kept, since callers go forward in time.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.scenario import Scenario

BLOCK_MESSAGES_MIN = 256
BLOCK_S = 4.0  # at least; then the blocks that are kept reach back further than any deadline
BLOCKS_KEPT = 16

_PUBLISHER, _SUBSCRIBER = 1, 2  # what random numbers are for
_SEED_BITS = 64


class Messages(NamedTuple):
    """A part of a publisher's stream: number, intended time in ns after t0, and topic of each message."""

    seq: NDArray[np.int64]
    t_ns: NDArray[np.int64]
    topic_id: NDArray[np.int32]


class Schedule:
    """The streams of all publishers, and the topics of all subscribers. For one thread at a time."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._streams: dict[int, _Stream] = {}
        self._topics: dict[int, tuple[int, ...]] = {}

    def messages(self, pub_id: int, from_ns: int, to_ns: int) -> Messages:
        """Returns what a publisher is to publish from `from_ns` up to, not including, `to_ns`, in order."""
        stream = self._streams.get(pub_id)
        if stream is None or from_ns < stream.begins_ns:
            stream = self._streams[pub_id] = _Stream(self._scenario, pub_id)
        return stream.cut(from_ns, to_ns)

    def count(self, pub_id: int, from_ns: int, to_ns: int) -> int:
        """Returns the number of messages to publish from `from_ns` up to, not including, `to_ns`."""
        # By a stream of its own, so that the one that is kept need not start again.
        return len(_Stream(self._scenario, pub_id).cut(from_ns, to_ns).seq)

    def topics_of(self, sub_id: int) -> tuple[int, ...]:
        """Returns the topics that a subscriber listens to, ascending."""
        topics = self._topics.get(sub_id)
        if topics is None:
            scenario = self._scenario
            rng = _rng(scenario, _SUBSCRIBER, sub_id)
            drawn = rng.choice(scenario.topics, scenario.topics_per_subscriber, replace=False)
            topics = self._topics[sub_id] = tuple(sorted(drawn.tolist()))
        return topics


class _Stream:
    """One publisher's stream. Messages before `begins_ns` are forgotten."""

    def __init__(self, scenario: Scenario, pub_id: int) -> None:
        self.begins_ns = 0
        self._rng = _rng(scenario, _PUBLISHER, pub_id)
        self._interval_ns = 1e9 / scenario.rate * scenario.burst
        self._is_constant = scenario.arrivals == "constant"
        self._phase_ns = self._rng.random() * self._interval_ns
        self._topics, self._burst = scenario.topics, scenario.burst
        self._bursts = -(-max(BLOCK_MESSAGES_MIN, int(scenario.rate * BLOCK_S)) // scenario.burst)
        self._blocks: deque[Messages] = deque()
        self._next_seq = 0
        self._ends_ns = 0  # the last message's time

    def cut(self, from_ns: int, to_ns: int) -> Messages:
        while self._ends_ns < to_ns:
            self._grow(from_ns)
        parts = [_part(block, from_ns, to_ns) for block in self._blocks if block.t_ns[-1] >= from_ns]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Messages(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))
        return Messages(*map(np.concatenate, zip(*parts, strict=True)))

    def _grow(self, wanted_ns: int) -> None:
        """Makes the next block, and forgets old ones that end before `wanted_ns`."""
        size = self._bursts * self._burst
        seq = np.arange(self._next_seq, self._next_seq + size, dtype=np.int64)
        if self._is_constant:
            t_ns = (self._phase_ns + seq[:: self._burst] // self._burst * self._interval_ns).astype(np.int64)
        else:
            gaps_ns = self._rng.exponential(self._interval_ns, self._bursts)
            t_ns = self._ends_ns + np.cumsum(gaps_ns).astype(np.int64)
        topic_id = self._rng.integers(self._topics, size=self._bursts, dtype=np.int32)
        self._blocks.append(Messages(seq, t_ns.repeat(self._burst), topic_id.repeat(self._burst)))
        self._next_seq += size
        self._ends_ns = int(t_ns[-1])
        while len(self._blocks) > BLOCKS_KEPT and self._blocks[0].t_ns[-1] < wanted_ns:
            self.begins_ns = int(self._blocks.popleft().t_ns[-1]) + 1


def _part(block: Messages, from_ns: int, to_ns: int) -> Messages:
    start, stop = np.searchsorted(block.t_ns, (from_ns, to_ns))
    return Messages(block.seq[start:stop], block.t_ns[start:stop], block.topic_id[start:stop])


def _rng(scenario: Scenario, purpose: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([scenario.seed % (1 << _SEED_BITS), purpose, number]))
