"""Workloads: who subscribes to what, and the messages that are published, encoded beforehand."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX

RING_MESSAGES = 2048  # at least; few enough to stay in the cache of a core
TOPICS_MAX = 100_000

SAMPLED, PLAIN, LAST = b"~", b".", b"!"
"""A payload's first byte, if it tells when it was due or not, and its last. They occur nowhere else."""

STAMP_DIGITS = 8
SIZE_BYTES_MIN = 1 + STAMP_DIGITS + 1


@dataclass(frozen=True)
class Workload:
    """Who subscribes to what, and how large the messages' payloads are.

    Subscriber i has every topic t for which (t + i) % (subscriber_count // fan_out) is 0. Messages go to all
    topics in turn, but for the last `idle_count`, to which nothing is published.
    """

    topic_count: int
    subscriber_count: int
    fan_out: int
    size_bytes: int = 100
    idle_count: int = 0
    prefix: bytes = b"t"
    lines_max: int = LINES_PER_DATAGRAM_MAX
    """Of a datagram that is published."""
    single_publishers: int = 0
    """If not 0, each message has a datagram of its own, and this number of publishers take turns."""

    def topics_of(self, subscriber: int) -> list[bytes]:
        """Returns the topics that a subscriber has."""
        every = self.subscriber_count // self.fan_out
        return [self.topic(number) for number in range(-subscriber % every, self.topic_count, every)]

    def topic(self, number: int) -> bytes:
        """Returns a topic's name. All are equally long."""
        if not 0 <= number < TOPICS_MAX:
            raise ValueError(f"topic {number} would have a longer name: there are {TOPICS_MAX:,}")
        return b"%b%05d" % (self.prefix, number)

    @property
    def lease_count(self) -> int:
        return self.topic_count * self.fan_out

    @property
    def published_count(self) -> int:
        """The number of topics to which messages go."""
        return self.topic_count - self.idle_count


def payload(size_bytes: int) -> bytes:
    """Returns a payload that is not sampled. Raises ValueError where a sampled one would not fit."""
    if size_bytes < SIZE_BYTES_MIN:
        raise ValueError(f"a payload of {size_bytes} bytes has no room for a time: give {SIZE_BYTES_MIN}")
    return PLAIN.ljust(size_bytes - 1, b".") + LAST


class Ring:
    """Encoded publishes of a workload, all equally long, which are sent in order over and over.

    Some of them are sampled: each tells when it was due. Which ones is drawn, so that no pattern of the load
    decides what latency is seen.
    """

    def __init__(self, workload: Workload, encode: Callable[[bytes, bytes], bytes]) -> None:
        rounds = -(-RING_MESSAGES // workload.published_count)
        message = payload(workload.size_bytes)
        frames = [encode(workload.topic(number), message) for number in range(workload.published_count)]
        self.message_bytes = len(frames[0])
        if any(len(frame) != self.message_bytes for frame in frames):
            raise ValueError("the encoding gives frames of different lengths")
        self.message_count = len(frames) * rounds
        self.data = bytearray(b"".join(frames) * rounds)
        self.view = memoryview(self.data)
        self._first_byte = frames[0].rindex(message)
        self._sampled: list[int] = []

    def sample(self, share: float, random: Random) -> None:
        """Has this share of the messages, but at least one, tell when they were due."""
        self._mark(PLAIN)
        count = max(1, min(self.message_count, round(share * self.message_count)))
        self._sampled = sorted(random.sample(range(self.message_count), count))
        self._mark(SAMPLED)

    def _mark(self, first: bytes) -> None:
        for number in self._sampled:
            self.data[number * self.message_bytes + self._first_byte] = first[0]

    def stamp(self, start: int, stop: int, due_us: Callable[[int], int]) -> None:
        """Writes into the sampled ones of the messages from `start` to before `stop` when they are due.

        Message n is at n % message_count, so no more than one lap may be asked for.
        """
        lap = start - start % self.message_count
        begin, end = start - lap, stop - lap
        sampled = self._sampled
        for index in range(bisect_left(sampled, begin), bisect_left(sampled, end)):
            place = sampled[index] * self.message_bytes + self._first_byte + 1
            due = due_us(lap + sampled[index]) % 16**STAMP_DIGITS
            self.data[place : place + STAMP_DIGITS] = b"%0*x" % (STAMP_DIGITS, due)
        if end > self.message_count:
            self.stamp(lap + self.message_count, stop, due_us)
