"""Which addresses share what a server gives: those of one IP, and of one network.

Whoever has one address of a network mostly has the others too, so limits hold for networks as well: an IPv4
/24, and the IPv6 /64, /56 and /48 that providers give to a machine, a home and a site (RFC 6177). IPv6
addresses that follow from an IPv4 address (mapped, 6to4, Teredo, NAT64) count as that one: its owner has them
too. Loopback has no network: nobody else can use it, and all programs of a machine share its one address.
"""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from kcast.pubsub.endpoint import Address

Network = bytes
"""The leading bytes of a network's addresses, as many as its prefix has: 3, 6, 7 or 8."""

Share = str | Network | Address
"""What has a rate of its own: an IP, a network, or on loopback an address."""

IPV4_NETWORK_FACTOR = 8  # how many times the rate of one IP its /24 has
IPV6_NETWORK_FACTORS = (1, 4, 16)  # of a /64, /56 and /48: a /64 is often one machine, which uses all of it
SHARES_MAX = 3  # of one address
REMEMBERED_MAX = 8192
NAT64 = IPv6Network("64:ff9b::/96")


class Networks:
    """Tells the networks of addresses. With `exempts_loopback` loopback addresses have none."""

    def __init__(self, *, exempts_loopback: bool = True) -> None:
        self._exempts_loopback = exempts_loopback
        self.of: Callable[[str], tuple[Network, ...]] = lru_cache(REMEMBERED_MAX)(self._of)
        """Returns the networks of an IP address, the narrowest first; none for one that is exempt."""
        self.shares_of: Callable[[Address], tuple[tuple[Share, int], ...]] = lru_cache(REMEMBERED_MAX)(
            self._shares_of
        )
        """Returns whose rates an address uses, the narrowest first, and how many times an IP's each has."""

    def _of(self, host: str) -> tuple[Network, ...]:
        if self._exempts_loopback and is_loopback(host):
            return ()
        address = ip_address(host)
        if isinstance(address, IPv6Address):
            inner = ipv4_in(address)
            if inner is None:
                return address.packed[:8], address.packed[:7], address.packed[:6]
            address = inner
        return (address.packed[:3],)

    def _shares_of(self, address: Address) -> tuple[tuple[Share, int], ...]:
        networks = self.of(address[0])
        if not networks:
            return ((address, 1),)
        if len(networks) == 1:
            return (address[0], 1), (networks[0], IPV4_NETWORK_FACTOR)
        return tuple(zip(networks, IPV6_NETWORK_FACTORS, strict=True))


def is_loopback(host: str) -> bool:
    """Whether this IP address is a loopback address, which no other machine can use."""
    return host.startswith("127.") or host == "::1"


def ipv4_in(address: IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that an IPv6 address follows from; None if it follows from none."""
    if address in NAT64:
        return IPv4Address(address.packed[12:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
