"""What publishers want sent, while it waits: lines, and parcels; and whose turn it is. Sans-IO.

What comes while other things leave is joined: the more waits, the less each message costs. Bursts of one
topic become one parcel, and so do lines for a large audience, those of each topic. A topic's lines stay in
the order in which they came; its parcel may pass those of other topics.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Share

QUANTUM_BYTES = 128 * 1024
COPY_COST_BYTES = 250  # what a copy costs beside its bytes: that of a system call
CHUNK_COPIES = 8192  # of lines that are taken in one go
CHUNK_ADDRESSES = 128  # of a large audience: what a queue takes in one go at most
JOINED_BYTES_MAX = 32_768  # of what leaves as one: longer bursts leave no cheaper

Waiting = TypeVar("Waiting")


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


class Lines(NamedTuple):
    """Lines for whoever has leased their topics. `backlog_bytes` is what waits with them."""

    data: bytes
    backlog_bytes: int


class Parcel:
    """What goes to one topic's audience chunk by chunk: lines that are packed with others, or a run as it is.

    `segment_bytes` is that of a run, 0 for lines. `backlog_bytes` is what still waits with it.
    """

    __slots__ = (
        "audience",
        "backlog_bytes",
        "data",
        "found_at",
        "line_count",
        "position",
        "segment_bytes",
        "topic",
    )

    def __init__(
        self, topic: bytes, data: bytes, segment_bytes: int, line_count: int, backlog_bytes: int
    ) -> None:
        self.topic = topic
        self.data = data
        self.segment_bytes = segment_bytes
        self.line_count = line_count
        self.backlog_bytes = backlog_bytes
        self.audience: Sequence[Address] | None = None  # known when its turn has come
        self.found_at = 0.0  # when it was
        self.position = 0

    @property
    def copy_cost_bytes(self) -> int:
        """What it costs to send it to one subscriber."""
        return len(self.data) + COPY_COST_BYTES

    @property
    def is_done(self) -> bool:
        """Whether its whole audience has had its turn."""
        return self.audience is not None and self.position >= len(self.audience)

    def join(self, other: "Parcel") -> bool:
        """Takes in a parcel behind it of the same topic, to be packed anew with its own. Returns whether it
        did: both fit, and it is not known yet who gets them."""
        if self.audience is not None or len(self.data) + len(other.data) > JOINED_BYTES_MAX:
            return False
        self.data += other.data
        self.segment_bytes = 0
        self.line_count += other.line_count
        self.backlog_bytes += other.backlog_bytes
        return True

    def take_chunk(self) -> tuple[Sequence[Address], int]:
        """Returns those of its audience whose turn is next, a quantum of them or one, and what waited for
        them."""
        assert self.audience is not None
        count = min(CHUNK_ADDRESSES, max(1, QUANTUM_BYTES // self.copy_cost_bytes))
        left = len(self.audience) - self.position
        chunk = self.audience[self.position : self.position + count]
        self.position += len(chunk)
        backlog_bytes = self.backlog_bytes * len(chunk) // left
        self.backlog_bytes -= backlog_bytes
        return chunk, backlog_bytes


class Queue:
    """What one publisher wants sent. `backlog_bytes` is the sum of what waits with each of its parcels."""

    __slots__ = ("_joinable", "backlog_bytes", "deficit_bytes", "parcels", "party", "sender")

    def __init__(self, sender: Sender, party: Party) -> None:
        self.sender = sender
        self.party = party
        self.parcels: deque[Parcel | Lines] = deque()
        self.deficit_bytes = QUANTUM_BYTES
        self.backlog_bytes = 0
        self._joinable: dict[bytes, Parcel] = {}  # of each topic, if no lines stand behind it

    def add_lines(self, data: bytes, segment_bytes: int, copies: int, backlog_bytes: int) -> None:
        """Adds datagrams of `segment_bytes`, in pieces if they cause many copies."""
        self._joinable.clear()
        pieces = -(-copies // CHUNK_COPIES)
        if pieces <= 1 or len(data) <= segment_bytes:
            self.parcels.append(Lines(data, backlog_bytes))
            return
        piece_bytes = max(1, len(data) // segment_bytes // pieces) * segment_bytes
        left_bytes = backlog_bytes
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            its_bytes = left_bytes * len(piece) // (len(data) - start)
            left_bytes -= its_bytes
            self.parcels.append(Lines(piece, its_bytes))

    def add(self, parcel: Parcel) -> None:
        """Adds a parcel, or joins it with the one before of its topic."""
        last = self._joinable.get(parcel.topic)
        if last is None or not last.join(parcel):
            self.parcels.append(parcel)
            self._joinable[parcel.topic] = parcel

    def begin(self, parcel: Parcel) -> None:
        """Nothing more is joined with this parcel."""
        if self._joinable.get(parcel.topic) is parcel:
            del self._joinable[parcel.topic]


class _Network(Generic[Waiting]):
    __slots__ = ("members", "share")

    def __init__(self, share: Share | None) -> None:
        self.share = share
        self.members: deque[_Network[Waiting] | Waiting] = deque()  # the one whose turn it is stands first


class RoundRobin(Generic[Waiting]):
    """Whose turn it is: whoever has many addresses gets no more turns than who has one.

    Networks take turns; within each, the networks in it; and at last those who wait. So the part of a party
    with an IPv6 /48, which has 65,536 /64s, is that of a party with a single address.
    """

    def __init__(self) -> None:
        self._all: _Network[Waiting] = _Network(None)
        self._networks: dict[Share, _Network[Waiting]] = {}  # in which somebody waits

    def __bool__(self) -> bool:
        return bool(self._all.members)

    def add(self, waiting: Waiting, networks: Sequence[Share]) -> None:
        """Lets somebody wait who is in these networks, of which the widest stands first."""
        within = self._all
        for share in networks:
            network = self._networks.get(share)
            if network is None:
                network = self._networks[share] = _Network(share)
                within.members.append(network)
            within = network
        within.members.append(waiting)

    def first(self) -> Waiting:
        """Returns whose turn it is. Raises IndexError if nobody waits."""
        member = self._all.members[0]
        while isinstance(member, _Network):
            member = member.members[0]
        return member

    def pass_on(self) -> None:
        """Ends the first one's turn."""
        for network in self._path():
            network.members.rotate(-1)

    def remove_first(self) -> None:
        """Lets the first one wait no more; the turn goes on to another network."""
        path = self._path()
        path[-1].members.popleft()
        for within, network in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            if network.members:
                within.members.rotate(-1)
            else:
                within.members.popleft()
                assert network.share is not None
                del self._networks[network.share]

    def _path(self) -> list[_Network[Waiting]]:
        """Returns the networks of the first one, the widest first."""
        path = [self._all]
        while isinstance(member := path[-1].members[0], _Network):
            path.append(member)
        return path
