"""What publishers want sent, while it waits: lines, and parcels, in the order in which they came. Sans-IO.

What comes while other things leave is joined: the more waits, the less each message costs. Bursts of one
topic become one parcel, and so do lines for a large audience, those of each topic.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from kcast.pubsub.crowds import LARGE
from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Share

QUANTUM_BYTES = 128 * 1024
COPY_COST_BYTES = 250  # what a copy costs beside its bytes: that of a system call
CHUNK_COPIES = 8192  # of lines that are taken in one go
JOINED_BYTES_MAX = 32_768  # of what leaves as one: longer bursts leave no cheaper
JOINED_LINES_MAX = CHUNK_COPIES // LARGE


class Sender(NamedTuple):
    """A name for what waits together, the party that it is of, and the networks in which that takes turns,
    the widest first."""

    name: Hashable
    party: Hashable
    networks: tuple[Share, ...] = ()


class Party:
    """What the queues of one of the widest networks have together."""

    __slots__ = ("backlog_bytes", "queues")

    def __init__(self) -> None:
        self.backlog_bytes = 0
        self.queues = 0


class Parcel:
    """What goes to one topic's audience chunk by chunk: lines that are packed with others, or a run as it is.

    `segment_bytes` is that of a run, 0 for lines.
    """

    __slots__ = (
        "audience",
        "copy_cost_bytes",
        "data",
        "found_at",
        "line_count",
        "position",
        "segment_bytes",
        "topic",
    )

    def __init__(self, topic: bytes, data: bytes, segment_bytes: int, line_count: int) -> None:
        self.topic = topic
        self.data = data
        self.segment_bytes = segment_bytes
        self.line_count = line_count
        self.copy_cost_bytes = len(data) + COPY_COST_BYTES
        self.audience: Sequence[Address] | None = None  # known when its turn has come
        self.found_at = 0.0  # when it was
        self.position = 0

    def can_take(self, topic: bytes, data: bytes) -> bool:
        """Whether lines of this topic may be added: it is not known yet who gets them, and they fit."""
        return (
            self.topic == topic and self.audience is None and len(self.data) + len(data) <= JOINED_BYTES_MAX
        )

    def take(self, data: bytes, line_count: int) -> None:
        """Adds lines. They are packed anew with those before."""
        self.data += data
        self.segment_bytes = 0
        self.line_count += line_count
        self.copy_cost_bytes += len(data) + COPY_COST_BYTES


class Queue:
    """What one publisher wants sent: parcels, and lines for whoever has leased their topics."""

    __slots__ = ("backlog_bytes", "deficit_bytes", "parcels", "party", "sender")

    def __init__(self, sender: Sender, party: Party) -> None:
        self.sender = sender
        self.party = party
        self.parcels: deque[Parcel | bytes] = deque()
        self.deficit_bytes = QUANTUM_BYTES
        self.backlog_bytes = 0

    def add_lines(self, data: bytes, segment_bytes: int, copies: int) -> None:
        """Adds datagrams of `segment_bytes`, in pieces if they cause many copies."""
        pieces = -(-copies // CHUNK_COPIES)
        if pieces <= 1 or len(data) <= segment_bytes:
            self.parcels.append(data)
            return
        piece_bytes = max(1, len(data) // segment_bytes // pieces) * segment_bytes
        self.parcels.extend([data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)])

    def add_run(self, topic: bytes, data: bytes, segment_bytes: int, line_count: int) -> None:
        """Adds a burst of one topic, or joins it with the one before."""
        last = self.parcels[-1] if self.parcels else None
        if isinstance(last, Parcel) and last.can_take(topic, data):
            last.take(data, line_count)
        else:
            self.parcels.append(Parcel(topic, data, segment_bytes, line_count))

    def take_lines(self) -> bytes:
        """Takes out the lines that stand first, with those behind them as far as they are few.

        They cause `CHUNK_COPIES` at most, large audiences apart, or are those of one call of `add_lines`.
        """
        taken: list[bytes] = []
        line_count = size_bytes = 0
        while self.parcels and isinstance(data := self.parcels[0], bytes):
            line_count += data.count(b"\n")
            size_bytes += len(data)
            if taken and (line_count > JOINED_LINES_MAX or size_bytes > JOINED_BYTES_MAX):
                break
            taken.append(data)
            self.parcels.popleft()
        return b"".join(taken)
