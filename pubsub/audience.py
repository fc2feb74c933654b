"""The subscribers of a topic: a single lease, or an audience of several, and who pays for their copies.
Sans-IO.

There may be as many topics as leases, so what a topic takes counts for each lease. One that has a single
lease needs nothing beside it: the lease's entry is the audience. With the second lease comes an `Audience`,
which stays until the topic has no lease any more.

What is here may include leases that have ended and are not forgotten yet. `live` leaves these out.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import ClassVar, NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.linked_list import Link
from kcast.pubsub.networks import Networks, Share

LARGE = 128  # leases of an audience that nobody looks at
PAID_OF_IP = 32
PAID_OF_NETWORK = 256

_RENEWED_AT = attrgetter("renewed_at")


class Entry(Link):
    """What is kept about a lease.

    While it has its topic to itself it is the topic's audience, too; and what its address and its network
    hold, while they hold nothing else (`kcast.pubsub.holders`). `has_joined` says whether its topic had other
    leases when it came, and so counts for another address.
    """

    __slots__ = ("address", "has_joined", "opened_at", "renewed_at", "topic")

    count: ClassVar = 1
    paid_count: ClassVar = 1
    excess: ClassVar[None] = None
    leases: ClassVar = 1
    beyond_free: ClassVar[None] = None

    def __init__(self, topic: bytes, address: Address, now: float, *, has_joined: bool = False) -> None:
        self.topic = topic
        self.address = address
        self.has_joined = has_joined
        # The same object in all that is renewed now. The time at which the lease ends would be one more.
        self.renewed_at = now
        self.opened_at: float | None = now  # None once it is established

    @property
    def is_established(self) -> bool:
        """Whether the lease is off probation. If it has its topic to itself, the topic is, too."""
        return self.opened_at is None

    established = is_established

    @property
    def topics(self) -> int:
        """The number of topics that count for its network, if that has no other lease."""
        return not self.has_joined

    @property
    def established_topics(self) -> int:
        """The number of these that are off probation."""
        return self.opened_at is None and not self.has_joined

    @property
    def opener(self) -> Address:
        """The address as whose the topic counts."""
        return self.address

    def find(self, address: Address) -> "Entry | None":
        """Returns the lease of an address on the topic; None if it has none."""
        return self if self.address == address else None

    def live(self, now: float, ttl_s: float) -> tuple[Address, ...]:
        """Returns the addresses whose leases are live."""
        return (self.address,) if self.renewed_at + ttl_s > now else ()


class Audience:
    """The leases of a topic that has, or has had, several; the longest-standing first."""

    __slots__ = (
        "_found_at",
        "_is_whole",
        "_live",
        "_live_until",
        "entries",
        "excess",
        "is_established",
        "opener",
        "paid_count",
        "topic",
    )

    def __init__(self, first: Entry) -> None:
        self.topic = first.topic
        self.entries = {first.address: first}
        self.is_established = first.is_established
        self.opener = first.address  # the topic counts as this one's
        self.excess: ExcessLeases | None = None  # of a large one
        self.paid_count = 1  # leases that publishers pay for
        # Nobody asks for the live ones of a topic on which nothing is published.
        self._live: tuple[Address, ...] | None = None
        self._live_until = self._found_at = -inf  # all in it are live until then; and when that was found
        self._is_whole = False  # whether none had ended by then

    @property
    def count(self) -> int:
        """The number of leases."""
        return len(self.entries)

    def find(self, address: Address) -> Entry | None:
        """Returns the lease of an address on the topic; None if it has none."""
        return self.entries.get(address)

    def add(self, entry: Entry, networks: Networks) -> None:
        """Takes in a new lease. `networks` tells which addresses belong together."""
        self.entries[entry.address] = entry
        if self.excess is not None:
            self.excess.add(entry.address)
        elif len(self.entries) > LARGE:
            self.excess = ExcessLeases(networks, self.entries)
        self._recount()
        # It ends later than all others.
        self._live = None
        if not self._is_whole:
            self._live_until = -inf

    def remove(self, entry: Entry, ttl_s: float) -> None:
        """Leaves out a lease."""
        del self.entries[entry.address]
        if self.excess is not None:
            self.excess.remove(entry.address)
            if len(self.entries) <= LARGE // 2:
                self.excess = None
        self._recount()
        if self._is_whole:
            self._live = None
        elif entry.renewed_at + ttl_s > self._found_at:
            self._live_until = -inf  # else it is left out already: many that end at once are no work

    def live(self, now: float, ttl_s: float) -> tuple[Address, ...]:
        """Returns the addresses whose leases are live; the same tuple until some other lease is."""
        if now >= self._live_until:
            # Renewals only move ends back, so what is found is right until the earliest end that is seen.
            self._live_until = min(map(_RENEWED_AT, self.entries.values())) + ttl_s
            self._found_at = now
            was_whole, self._is_whole = self._is_whole, self._live_until > now
            if not self._is_whole:
                self._live = self._find_live(now, ttl_s)
            elif not was_whole:
                self._live = None
        if self._live is None:
            self._live = tuple(self.entries)
        return self._live

    def _find_live(self, now: float, ttl_s: float) -> tuple[Address, ...]:
        live = [entry for entry in self.entries.values() if entry.renewed_at + ttl_s > now]
        self._live_until = min(map(_RENEWED_AT, live), default=inf) + ttl_s
        return tuple([entry.address for entry in live])

    def _recount(self) -> None:
        self.paid_count = len(self.entries) - (0 if self.excess is None else len(self.excess))


class Excess(NamedTuple):
    """Subscribers of one topic that are of one party, and beyond what publishers pay for."""

    party: Share
    members: Sequence[Address]


class ExcessLeases:
    """The leases in the audience of one topic, which consists of `addresses` at first, that cost its
    publishers nothing. PROTOCOL §4.3.

    The threat: whoever takes thousands of leases on somebody else's topic makes each message to it dear. The
    publisher would be charged for all these copies, and so lose what it may publish, and its turn to send.

    So of a large audience publishers pay for a bounded number of leases of one IP (IPv6: of a /64), and of
    one network. The leases beyond these are the *excess* of the IP or network that has them. What goes to
    these waits in a queue of its own, and takes turns as if the IP or the network had published it.
    """

    def __init__(self, networks: Networks, addresses: Iterable[Address]) -> None:
        self._networks = networks
        self._paid: Counter[Share] = Counter()  # leases that publishers pay for, by IP and by network
        self._party_of: dict[Address, Share] = {}  # of those that they do not pay for
        self._members: dict[Share, dict[Address, None]] = {}  # the same, by party
        self._split_of: Sequence[Address] = ()
        self._split: tuple[Sequence[Address], Sequence[Excess]] = (), ()
        for address in addresses:
            self.add(address)

    def __len__(self) -> int:
        """The number of leases that publishers do not pay for."""
        return len(self._party_of)

    def add(self, address: Address) -> None:
        """Takes in a new subscriber."""
        shares = self._networks.shares_of(address)
        narrowest, widest = shares[0][0], shares[-1][0]
        if narrowest == widest:
            return  # on loopback each address is its own party
        if self._paid[narrowest] >= PAID_OF_IP:
            party = narrowest
        elif self._paid[widest] >= PAID_OF_NETWORK:
            party = widest
        else:
            self._paid[narrowest] += 1
            self._paid[widest] += 1
            return
        self._party_of[address] = party
        self._members.setdefault(party, {})[address] = None

    def remove(self, address: Address) -> None:
        """Leaves out a subscriber; another of its party may take its place."""
        party = self._party_of.get(address)
        if party is not None:
            self._leave(address, party)
            return
        shares = self._networks.shares_of(address)
        narrowest, widest = shares[0][0], shares[-1][0]
        if narrowest == widest:
            return
        for share in (narrowest, widest):
            self._paid[share] -= 1
            if not self._paid[share]:
                del self._paid[share]
        for share in (narrowest, widest):
            if share in self._members:
                follower = next(reversed(self._members[share]))
                self._leave(follower, share)
                self.add(follower)
                return

    def split(self, live: Sequence[Address]) -> tuple[Sequence[Address], Sequence[Excess]]:
        """Returns those of an audience's live subscribers that publishers pay for, and the excess of each
        party."""
        if not self._party_of:
            return live, ()
        if live is not self._split_of:
            paid: list[Address] = []
            members: dict[Share, list[Address]] = {}
            for address in live:
                party = self._party_of.get(address)
                (paid if party is None else members.setdefault(party, [])).append(address)
            excess = [Excess(party, tuple(each)) for party, each in members.items()]
            self._split_of, self._split = live, (tuple(paid), excess)
        return self._split

    def _leave(self, address: Address, party: Share) -> None:
        del self._party_of[address]
        members = self._members[party]
        del members[address]
        if not members:
            del self._members[party]
