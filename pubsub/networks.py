"""Networks: the sets of addresses that share limits, because one party can have all of them. Sans-IO.

One customer of a provider usually has one IPv4 address, or an IPv6 /64, /56 or /48; whoever has an IPv4 /24
has all addresses in it. So an IPv4 address is in one network, its /24, and an IPv6 address is in three.
Each is written as the bytes that its addresses begin with: no two networks of different size are equal.

Loopback has no network: no other machine can use these addresses, and all clients of a lab share them.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_network

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
