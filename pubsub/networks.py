"""Networks: the sets of addresses that share limits, because one party can have all of them; and addresses by
their networks. Sans-IO.

One customer of a provider usually has one IPv4 address, or an IPv6 /64, /56 or /48; whoever has an IPv4 /24
has all addresses in it. So an IPv4 address is in one network, its /24, and an IPv6 address is in three.
Each is written as the bytes that its addresses begin with: no two networks of different size are equal.

Loopback has no network: no other machine can use these addresses, and all clients of a lab share them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import chain, islice, zip_longest
from random import Random
from typing import Protocol, TypeVar

from kcast.pubsub.endpoint import Address

Network = bytes

Share = str | Network | Address
"""What has a rate of its own: an IP, a network, or on loopback an address."""

IPV4_NETWORK_FACTOR = 8  # how many times the rate of one IP its /24 has
IPV6_NETWORK_FACTORS = (1, 4, 16)  # of a /64, /56 and /48: a /64 is often one machine, which uses all of it
SHARES_MAX = 3  # of one address

Path = tuple[Share, ...]
"""The parties that an address belongs to, the widest first: networks, on IPv4 the IP, and the address."""

_IPV4_BYTES = 3  # a /24
_IPV6_BYTES = (8, 7, 6)  # a /64, a /56 and a /48
_NAT64 = IPv6Address("64:ff9b::").packed[:12]  # RFC 6052
_MAPPED = IPv6Address("::ffff:0:0").packed[:12]
_6TO4 = IPv6Address("2002::").packed[:2]
_TEREDO = IPv6Address("2001::").packed[:4]


def is_loopback(host: str) -> bool:
    """Whether this IP address is a loopback address, which no other machine can use."""
    return host.startswith("127.") or host == "::1"


@lru_cache(maxsize=4096)
def networks_of(host: str, *, exempts_loopback: bool = True) -> tuple[Network, ...]:
    """Returns the networks of an IP address, the widest last; none for loopback, if that is exempt.

    IPv6 addresses that follow from an IPv4 address (mapped, 6to4, Teredo, NAT64) are in the network of that
    one: its owner has them too.
    """
    if exempts_loopback and is_loopback(host):
        return ()
    if ":" not in host:
        return (bytes(map(int, host.split(".")[:_IPV4_BYTES])),)
    packed = IPv6Address(host).packed
    embedded = _ipv4_in(packed)
    if embedded is not None:
        return (embedded[:_IPV4_BYTES],)
    return tuple([packed[:size] for size in _IPV6_BYTES])


def text_of(network: Network) -> str:
    """Returns a network as people write it: `192.0.2.0/24`."""
    packed = network.ljust(4 if len(network) == _IPV4_BYTES else 16, b"\0")
    return str(ip_network((packed, 8 * len(network))))


def ip_of(host: str) -> str:
    """Returns the IP address that counts for this one: an IPv4 address, where it was made of one."""
    embedded = _ipv4_in(IPv6Address(host).packed) if ":" in host else None
    return str(IPv4Address(embedded)) if embedded else host


def _ipv4_in(packed: bytes) -> bytes | None:
    if packed.startswith((_NAT64, _MAPPED)):
        return packed[12:]
    if packed.startswith(_6TO4):
        return packed[2:6]
    if packed.startswith(_TEREDO):
        return bytes([byte ^ 0xFF for byte in packed[12:]])
    return None


class Networks:
    """Tells whose rates an address uses. With `exempts_loopback` loopback addresses have no network."""

    def __init__(self, *, exempts_loopback: bool = True) -> None:
        self.of: Callable[[str], tuple[Network, ...]] = partial(
            networks_of, exempts_loopback=exempts_loopback
        )
        """Returns the networks of an IP address, the widest last."""
        self.shares_of: Callable[[Address], tuple[tuple[Share, int], ...]] = lru_cache(8192)(self._shares_of)
        """Returns whose rates an address uses, the narrowest first, and how many times an IP's each has."""
        self.path_of: Callable[[Address], Path] = lru_cache(8192)(self._path_of)
        """Returns the parties that an address belongs to, the widest first."""

    def _path_of(self, address: Address) -> Path:
        networks = self.of(address[0])
        return (*networks[::-1], *(() if len(networks) != 1 else (ip_of(address[0]),)), address)

    def _shares_of(self, address: Address) -> tuple[tuple[Share, int], ...]:
        networks = self.of(address[0])
        if not networks:
            return ((address, 1),)
        if len(networks) == 1:
            return (ip_of(address[0]), 1), (networks[0], IPV4_NETWORK_FACTOR)
        return tuple(zip(networks, IPV6_NETWORK_FACTORS, strict=True))


# --- Addresses by their networks ----------------------------------------------------------------------

# Most networks have few addresses. These stand in a tuple, which takes a fraction of what a dict would.
FEW = 8

Addresses = tuple[Address, ...] | dict[Address, None]
"""The addresses of one network, in the order in which they were added; once they were many, in a dict."""

Group = TypeVar("Group")
Thing = TypeVar("Thing")


def added(addresses: Addresses, address: Address) -> Addresses:
    """Returns these addresses and another one. A dict is changed."""
    if isinstance(addresses, tuple):
        if len(addresses) < FEW:
            return (*addresses, address)
        addresses = dict.fromkeys(addresses)
    addresses[address] = None
    return addresses


def removed(addresses: Addresses, address: Address) -> Addresses:
    """Returns these addresses but for one of them. A dict is changed."""
    if isinstance(addresses, tuple):
        return tuple([each for each in addresses if each != address])
    del addresses[address]
    return addresses


def fairly(
    groups: Collection[Group], addresses_of: Callable[[Group], Collection[Address]], random: Random
) -> Iterator[Address]:
    """Yields one address of each group, then another one of each, and so on.

    Groups, and the addresses of each, come in the order in which they were added, from any place on. Whoever
    takes only some addresses touches only as many groups.
    """
    start = random.random()
    rest: Iterable[Iterator[Address]] = (_from(start, addresses_of(group)) for group in _from(start, groups))
    while rest:
        left = []
        for each in rest:
            address = next(each, None)
            if address is not None:
                yield address
                left.append(each)
        rest = left


class Sources(Protocol):
    """A set of addresses that knows their networks."""

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on, from any place."""


class ByNetwork:
    """A set of addresses, from which some can be chosen without any network having more than its part; on
    loopback each is a network of its own."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._members: dict[Share, Addresses] = {}  # by the widest network

    def add(self, address: Address) -> None:
        """Adds an address."""
        share = self._networks.shares_of(address)[-1][0]
        members = self._members.get(share, ())
        if address not in members:
            self._members[share] = added(members, address)

    def remove(self, address: Address) -> None:
        """Removes an address. Raises KeyError if it is not there."""
        share = self._networks.shares_of(address)[-1][0]
        members = self._members[share]
        if address not in members:
            raise KeyError(address)
        self._members[share] = members = removed(members, address)
        if not members:
            del self._members[share]

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on, from any place."""
        return fairly(self._members.values(), _same, random)


def _same(addresses: Addresses) -> Addresses:
    return addresses


def _from(start: float, things: Collection[Thing]) -> Iterator[Thing]:
    """Yields all of these things, beginning behind this part of them."""
    skipped = int(start * len(things))
    return chain(islice(things, skipped, None), islice(things, skipped))


def alternately(first: Sources, second: Sources, random: Random) -> Iterator[Address]:
    """Yields addresses of the two in turn, fairly; one that is in both, twice."""
    for pair in zip_longest(first.fairly(random), second.fairly(random)):
        yield from filter(None, pair)
