"""What a benchmark is to do, and which part of it each of its clients has. Sans-IO."""

from dataclasses import dataclass
from math import ceil
from os import fsencode
from typing import Literal

from kcast.client.messages.lines import room, wire_topic_of
from kcast.loadtest.scenario import ID_CHARS

Kind = Literal["pub", "sub", "pubsub", "latency"]

CLIENTS_MAX = 1000  # of each side
TOPICS_MAX = 1000
SUBSCRIPTIONS_MAX = 20_000  # subscribers times topics; each is a lease at some servers
SIZE_BYTES_MIN = ID_CHARS
WARM_UP_NS = 0  # stands in messages that are not counted, where others have their time

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """The settings of a benchmark, named like the options of `kcast bench`.

    `count` and `rate` are of all publishers together; with `sub`, `count` is of each subscriber. None stands
    for no end, and for as fast as receipts come. `topic` may hold bytes that are no UTF-8, as `os.fsdecode`
    has them. Each publisher takes the topics in turn; each subscriber has all of them. With P publishers,
    publisher p has messages p, p + P, p + 2 P, ... of all.

    Raises ValueError, with the options in its message, for settings that make no benchmark, and TopicError.
    """

    kind: Kind
    topic: str = "bench"
    topics: int = 1
    publishers: int = 1
    subscribers: int = 1
    size_bytes: int = 100
    count: int | None = None
    duration_s: float | None = None
    rate: float | None = None
    confirm: bool = True

    def __post_init__(self) -> None:
        if self.count is not None and self.publishes and self.count < self.publishers:
            raise ValueError(
                f"--count {self.count} is less than --publishers {self.publishers}: give each a message"
            )
        if self.rate is not None and self.duration_s is not None and self.rate * self.duration_s < 1:
            raise ValueError(
                f"--rate {self.rate:g} publishes nothing in {self.duration_s:g} s: raise --rate or --duration"
            )
        if self.subscribes and self.subscribers * self.topics > SUBSCRIPTIONS_MAX:
            raise ValueError(
                f"--subscribers {self.subscribers} times --topics {self.topics} is more than "
                f"{SUBSCRIPTIONS_MAX}: lower one of them"
            )
        fits = room(wire_topic_of(max(self.topic_names, key=len), is_own=False)).text_bytes
        if self.publishes and self.size_bytes > fits:
            raise ValueError(
                f"--size {self.size_bytes} is too large: on this topic {fits} bytes fit, as a message is "
                "one datagram"
            )

    @property
    def publishes(self) -> bool:
        """Whether messages are published."""
        return self.kind != "sub"

    @property
    def subscribes(self) -> bool:
        """Whether somebody subscribes."""
        return self.kind != "pub"

    @property
    def topic_names(self) -> tuple[bytes, ...]:
        """The topics: that of the option, or with several of them `TOPIC/0`, `TOPIC/1`, ..."""
        name = fsencode(self.topic)
        return (name,) if self.topics == 1 else tuple(b"%b/%d" % (name, each) for each in range(self.topics))

    @property
    def interval_ns(self) -> int:
        """How long after a message the next one of all is due; 0 without a rate."""
        return 0 if self.rate is None else int(_NS_PER_S / self.rate)

    def messages_of(self, publisher: int) -> int | None:
        """Returns how many messages a publisher has; None where only the duration ends them."""
        return None if self.count is None else ceil((self.count - publisher) / self.publishers)

    def due_ns(self, publisher: int, number: int) -> int:
        """Returns when a publisher's message of this number, from 0, is due, in ns after the start; 0 without
        a rate."""
        return 0 if self.rate is None else int((publisher + number * self.publishers) * _NS_PER_S / self.rate)


def time_of(data: bytes) -> int | None:
    """Returns the time that a payload tells; None where it is no benchmark's."""
    try:
        return int(data[-ID_CHARS:], 16) if len(data) >= SIZE_BYTES_MIN else None
    except ValueError:
        return None


def spread(clients: int, processes: int) -> list[list[int]]:
    """Returns the numbers of the clients that each process has: as many processes as are of use."""
    used = min(clients, processes)
    return [list(range(process, clients, used)) for process in range(used)]
