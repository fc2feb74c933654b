"""Which leases of a large audience cost its publishers nothing. PROTOCOL §4.3. Sans-IO.

The threat: whoever takes thousands of leases on somebody else's topic makes each message to it dear. The
publisher would be charged for all these copies, and so lose what it may publish, and its turn to send.

So of a large audience publishers pay for a bounded number of leases of one IP (IPv6: of a /64), and of one
network. The leases beyond these are a *crowd*, which is that of the IP or network that has them. What goes to
a crowd waits in a queue of its own, and takes turns as if the IP or the network had published it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Share

LARGE = 128  # leases of an audience that nobody looks at
PAID_OF_IP = 32
PAID_OF_NETWORK = 256


class Crowd(NamedTuple):
    """Subscribers of one topic that are of one party, and beyond what publishers pay for."""

    party: Share
    members: Sequence[Address]


class Crowds:
    """The crowds in the audience of one topic, which consists of `addresses` at first."""

    def __init__(self, networks: Networks, addresses: Iterable[Address]) -> None:
        self._networks = networks
        self._paid: Counter[Share] = Counter()  # leases that publishers pay for, by IP and by network
        self._party_of: dict[Address, Share] = {}  # of those that they do not pay for
        self._members: dict[Share, dict[Address, None]] = {}  # the same, by party
        self._split_of: Sequence[Address] = ()
        self._split: tuple[Sequence[Address], Sequence[Crowd]] = (), ()
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

    def split(self, live: Sequence[Address]) -> tuple[Sequence[Address], Sequence[Crowd]]:
        """Returns those of an audience's live subscribers that publishers pay for, and the crowds."""
        if not self._party_of:
            return live, ()
        if live is not self._split_of:
            paid: list[Address] = []
            members: dict[Share, list[Address]] = {}
            for address in live:
                party = self._party_of.get(address)
                (paid if party is None else members.setdefault(party, [])).append(address)
            crowds = [Crowd(party, tuple(each)) for party, each in members.items()]
            self._split_of, self._split = live, (tuple(paid), crowds)
        return self._split

    def _leave(self, address: Address, party: Share) -> None:
        del self._party_of[address]
        members = self._members[party]
        del members[address]
        if not members:
            del self._members[party]
