"""The holders of leases: addresses, and the networks that they are in. Sans-IO.

Here is counted what limits and shares are of (PROTOCOL §7.9, §7.10): the leases of each address and network,
and the topics that count as a network's. After its last lease has gone, an address counts as known as long as
a cookie that it may have is good for leases.

There may be as many addresses and networks as leases, so what each takes counts for each lease. An address
with a single lease needs nothing beside it: the lease's entry stands for the address. It also stands for its
network, as long as it is alone there, and has its topic to itself or has joined that of another. Only with
more comes a `Holder`, or `Holdings`.
"""

from collections.abc import Callable, Collection, Iterator
from random import Random

from kcast.pubsub.audience import Entry
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, LEASES_KEPT_FREE
from kcast.pubsub.linked_list import Link, LinkedList
from kcast.pubsub.networks import Addresses, Network, Networks, added, fairly, removed


class Holder(Link):
    """An address that has, or has had, several leases, or that has none any more."""

    __slots__ = ("address", "beyond_free", "known_until", "leases")

    def __init__(self, address: Address, leases: int) -> None:
        self.address = address
        self.leases = leases
        self.beyond_free: dict[bytes, None] | None = None  # topics of all leases but the first few
        self.known_until = 0.0  # if it has none


class Holdings:
    """What a network holds."""

    __slots__ = ("addresses", "established", "established_topics", "leases", "topics")

    def __init__(self, *addresses: Address) -> None:
        self.addresses: Addresses = addresses
        self.leases = 0
        self.established = 0
        self.topics = 0
        self.established_topics = 0


class Holders:
    """The addresses that hold leases, or did a moment ago.

    The latter are at most `former_max`; the oldest gives way. Loopback addresses are in no network, and are
    known only while they hold leases.
    """

    def __init__(self, networks: Networks, former_max: int) -> None:
        self._networks = networks
        self._former_max = former_max
        self._members: dict[Address, Entry | Holder] = {}
        self._by_network: dict[Network, Entry | Holdings] = {}
        self._former: LinkedList[Holder] = LinkedList()  # by the end of their time
        self._loopback_count = 0
        self.forgotten: Callable[[Address], None] = _nothing
        """Is told of addresses that are no longer known."""

    def __len__(self) -> int:
        """The number of known addresses, without those on loopback."""
        return len(self._members) - self._loopback_count

    def __contains__(self, address: Address) -> bool:
        """Whether an address is known, and is not on loopback."""
        return address in self._members and self.network_of(address) is not None

    def network_of(self, address: Address) -> Network | None:
        """Returns the widest network of an address; None on loopback."""
        networks = self._networks.of(address[0])
        return networks[-1] if networks else None

    def holdings_of(self, network: Network) -> Entry | Holdings | None:
        """Returns what a network holds; None if nothing."""
        return self._by_network.get(network)

    def lease_count(self, address: Address) -> int:
        """Returns how many leases an address holds."""
        member = self._members.get(address)
        return 0 if member is None else member.leases

    def beyond_free(self, address: Address) -> Collection[bytes]:
        """Returns the topics of the leases that an address holds beside the first few that it was granted."""
        member = self._members.get(address)
        return () if member is None else member.beyond_free or ()

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one known address of each network, then another one of each, and so on, from any place."""
        return fairly(self._by_network.values(), _addresses_of, random)

    # --- Leases --------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Takes in a new lease. It then has the same object for its address as the others of the address."""
        address = entry.address
        member = self._members.get(address)
        if member is None:
            self._members[address] = entry
        else:
            holder = self._holder_of(member)
            entry.address = holder.address
            if not holder.leases:
                self._former.remove(holder)
            if holder.leases >= LEASES_KEPT_FREE:
                if holder.beyond_free is None:
                    holder.beyond_free = {}
                holder.beyond_free[entry.topic] = None
            holder.leases += 1
        network = self.network_of(address)
        if network is None:
            self._loopback_count += member is None
            return
        if network not in self._by_network:
            self._by_network[network] = entry
            return
        holdings = self._holdings_in(network)
        if member is None:
            holdings.addresses = added(holdings.addresses, address)
        holdings.leases += 1
        holdings.topics += not entry.has_joined

    def shares_topic(self, entry: Entry) -> None:
        """Takes note that this lease will not have its topic to itself."""
        network = self.network_of(entry.address)
        if network is not None:
            self._holdings_in(network)

    def count_established(self, entry: Entry) -> None:
        """Counts a lease that is established from now on."""
        network = self.network_of(entry.address)
        if network is not None and isinstance(holdings := self._by_network[network], Holdings):
            holdings.established += 1

    def count_topic(self, opener: Address, change: int, established_change: int) -> None:
        """Counts a topic for its opener, or no longer; and whether it is established."""
        network = self.network_of(opener)
        if network is None:
            return
        if change > 0:
            self._holdings_in(network)  # it counts from now on, and did not when its opener joined it
        if isinstance(holdings := self._by_network[network], Holdings):
            holdings.topics += change
            holdings.established_topics += established_change

    def remove(self, entry: Entry, now: float) -> None:
        """Leaves out a lease that has ended. Its topic does not count for it any more."""
        address = entry.address
        network = self.network_of(address)
        if network is not None:
            if self._by_network[network] is entry:
                self._by_network[network] = Holdings(address)
            else:
                holdings = self._holdings_in(network)
                holdings.leases -= 1
                holdings.established -= entry.is_established
        member = self._members[address]
        if isinstance(member, Holder) and member.leases > 1:
            member.leases -= 1
            _shorten(member, entry.topic)
        elif network is None:
            self._loopback_count -= 1
            del self._members[address]
        else:
            self._leaves(self._holder_of(member), now)

    # --- Those who have left -------------------------------------------------------------------------

    def keep(self, address: Address, now: float) -> None:
        """Counts an address as known anew, if it is known and holds no lease."""
        member = self._members.get(address)
        if isinstance(member, Holder) and not member.leases:
            member.known_until = now + COOKIE_LEASE_LIFE_S
            self._former.put_again(member)

    def next_expiry(self) -> float | None:
        """Returns when the first address is forgotten; None if all hold leases."""
        oldest = self._former.oldest
        return None if oldest is None else oldest.known_until

    def expire(self, now: float, count_max: int) -> None:
        """Forgets addresses that left long ago, a bounded number of them."""
        for _ in range(count_max):
            oldest = self._former.oldest
            if oldest is None or oldest.known_until > now:
                return
            self._forget(oldest)

    def _leaves(self, holder: Holder, now: float) -> None:
        holder.leases = 0
        holder.beyond_free = None
        holder.known_until = now + COOKIE_LEASE_LIFE_S
        self._former.put(holder)
        oldest = self._former.oldest
        if oldest is not None and self._former.count > self._former_max:
            self._forget(oldest)

    def _forget(self, holder: Holder) -> None:
        address = holder.address
        self._former.remove(holder)
        del self._members[address]
        network = self.network_of(address)
        assert network is not None
        holdings = self._holdings_in(network)
        holdings.addresses = removed(holdings.addresses, address)
        if not holdings.addresses:
            del self._by_network[network]
        self.forgotten(address)

    # --- Entries that stand for more -----------------------------------------------------------------

    def _holder_of(self, member: Entry | Holder) -> Holder:
        if isinstance(member, Holder):
            return member
        holder = self._members[member.address] = Holder(member.address, member.leases)
        return holder

    def _holdings_in(self, network: Network) -> Holdings:
        """Returns the holdings of a network, which has some from now on."""
        before = self._by_network.get(network)
        if isinstance(before, Holdings):
            return before
        holdings = self._by_network[network] = Holdings()
        if before is not None:
            holdings.addresses = (before.address,)
            holdings.leases, holdings.established = before.leases, before.established
            holdings.topics, holdings.established_topics = before.topics, before.established_topics
        return holdings


def _shorten(holder: Holder, topic: bytes) -> None:
    """Takes a lease off the list of those beyond the first few, or the next of them, which follows it."""
    beyond = holder.beyond_free
    if beyond is None:
        return
    del beyond[topic if topic in beyond else next(iter(beyond))]
    if not beyond:
        holder.beyond_free = None


def _addresses_of(holdings: Entry | Holdings) -> Addresses:
    return (holdings.address,) if isinstance(holdings, Entry) else holdings.addresses


def _nothing(_: Address) -> None:
    pass
