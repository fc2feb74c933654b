"""Opens a server's sockets, one for each address family, and classifies addresses: also those of this
machine, as far as Linux tells them in /proc/net."""

import errno
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError
from kcast.pubsub.udp import UdpPort, open_socket

_FREE_PORT_TRIES = 10

PROC_NET = Path("/proc/net")
_LOCAL_V4 = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL\n")

# RFC 1918, RFC 4193, loopback and link-local. Not `is_private`, which means "not globally reachable".
_LOCAL_NETWORKS = tuple(
    ip_network(prefix)
    for prefix in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
        *("::1/128", "fc00::/7", "fe80::/10"),
    )
)


class ListenError(KcastError):
    """An address cannot be served on. The message says what to do."""


def open_ports(
    hosts: Sequence[str],
    port: int,
    *,
    receive_buffer_bytes: int,
    make: Callable[[socket.socket], UdpPort] = UdpPort,
) -> list[UdpPort]:
    """Opens a socket for each host, all on the same port; port 0 picks one that is free for all of them.

    `make` wraps each socket. Raises ValueError for a host that is no address to serve on, or two of one
    family, and ListenError if an address cannot be bound.
    """
    for attempt in range(_FREE_PORT_TRIES):
        try:
            return _open_all(hosts, port, receive_buffer_bytes, make)
        except ListenError as error:
            # A port that is free for one family may be taken for the other.
            if port or not is_taken(error) or attempt == _FREE_PORT_TRIES - 1:
                raise
    raise AssertionError("unreachable")


def is_taken(error: ListenError) -> bool:
    """Whether another socket has the port."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE


def _open_all(
    hosts: Sequence[str], port: int, receive_buffer_bytes: int, make: Callable[[socket.socket], UdpPort]
) -> list[UdpPort]:
    hosts = [_plain(host) for host in hosts]
    families = [":" in host for host in hosts]
    if len(set(families)) < len(families):
        raise ValueError("two addresses of one family: give one IPv4 and one IPv6 address at most")
    with ExitStack() as stack:
        ports = []
        for host in hosts:
            try:
                sock = open_socket(
                    host, port, receive_buffer_bytes=receive_buffer_bytes, dual_stack=len(hosts) == 1
                )
            except OSError as error:
                raise ListenError(_bind_failure(error, format_address((host, port)))) from error
            ports.append(stack.enter_context(make(sock)))
            port = ports[0].address[1]
        stack.pop_all()
        return ports


def _plain(host: str) -> str:
    """Turns IPv4-mapped IPv6 into IPv4. What is no address is left for `open_socket` to refuse."""
    try:
        ip = ip_address(host)
    except ValueError:
        return host
    return str(ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else str(ip)


def _bind_failure(error: OSError, where: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use; stop the other server, which may drain for half a minute, or give --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: permission denied; give a --port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} is not an address of this machine; give another --host"
    if error.errno == errno.EAFNOSUPPORT:
        return f"{where}: this machine has no such addresses; give another --host"
    return f"{where} cannot be served on: {error.strerror or error}"


# --- Kinds of addresses ------------------------------------------------------------------------------


def is_wildcard(address: Address) -> bool:
    """Whether the address stands for all addresses of the machine."""
    return ip_address(address[0]).is_unspecified


def is_loopback(address: Address) -> bool:
    """Whether only this machine can reach the address."""
    return ip_address(address[0]).is_loopback


def is_local(address: Address) -> bool:
    """Whether the address is loopback, private or link-local: `--open` is open to these."""
    return _is_local_host(address[0])


@lru_cache(maxsize=4096)
def _is_local_host(host: str) -> bool:
    ip = ip_address(host)
    return any(ip in network for network in _LOCAL_NETWORKS)


def own_addresses(bound: Sequence[Address]) -> frozenset[Address]:
    """Returns the addresses at which these sockets are reached, as far as they are known.

    For a wildcard address only the loopback addresses are known. The machine's others may change while the
    server runs, and netlink would be needed to learn them.
    """
    own = set(bound)
    for host, port in bound:
        if ip_address(host).is_unspecified:
            own.remove((host, port))
            own.add(("127.0.0.1", port))
            if ":" in host:
                own.add(("::1", port))
    return frozenset(own)


def is_one_of_several(address: Address, proc_net: Path = PROC_NET) -> bool:
    """Whether a wildcard address stands for several addresses of one family; loopback does not count.

    True also where the system does not tell its addresses.
    """
    families = [_v4(proc_net)]
    if ":" in address[0]:
        families.append(_v6(proc_net))
    return any(own is None or len(own) > 1 for own in families)


def _v4(proc_net: Path) -> set[str] | None:
    try:
        found = _LOCAL_V4.findall((proc_net / "fib_trie").read_text())
    except OSError:
        return None
    return {each for each in found if not ip_address(each).is_loopback}


def _v6(proc_net: Path) -> set[str] | None:
    found: set[str] = set()
    with suppress(FileNotFoundError):  # without IPv6
        try:
            text = (proc_net / "if_inet6").read_text()
        except PermissionError:
            return None
        for line in text.splitlines():
            ip = IPv6Address(int(line.split()[0], 16))
            if not ip.is_loopback and not ip.is_link_local:  # kcast answers no link-local address
                found.add(str(ip))
    return found
