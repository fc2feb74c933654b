"""What a cluster file says, as values: servers with their keys on the ring, and the facts of a signed list;
and what a client knows of the list that it goes by.

PROTOCOL §8.1, §10. Sans-IO. `client/clusters/cluster.py` has all that other packages need of it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from kcast.client.events import ListTrouble
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError

SHOWN_CHARS_MAX = 80
_NUMBER_DIGITS_MAX = 18
_HOST_CHARS_MAX = 253
_HOST_LABEL = re.compile("[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII | re.IGNORECASE)
_LIST_NAME_CHARS_MAX = 64
_NAME_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_LIST_NAME = re.compile(f"{_NAME_LABEL}(?:[./]{_NAME_LABEL})*")


class ClusterError(KcastError, ValueError):
    """A cluster file that cannot be used; the message names the line and says what was expected."""


class ServerEntry(NamedTuple):
    """One server: its addresses (one for each IP version, or one), and the key of its host on the ring.

    Where the file gives the name of its host, `named` is that and the port, and `addresses` is empty: those
    that the name has at the moment are for the client's driver to look up.

    It is a tuple, since lists may have 100,000 of them: tuples are compared and hashed much faster.
    """

    addresses: tuple[Address, ...]
    key: str
    named: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """`ip:port` or `host:port`, as people write it."""
        return format_address(self.named or self.addresses[0])

    @property
    def port(self) -> int:
        """The port of its name, or of its first address."""
        return (self.named or self.addresses[0])[1]


@dataclass(frozen=True, slots=True)
class ListFacts:
    """What a signed list says beside servers and policy (§10.4). Times are unix seconds.

    `has_later_salt` tells of a list of 0.4 that changes its salt while it holds: none goes by that any more.
    """

    version: int
    trust: int  # the version of the trust document that it is signed under
    valid_after_s: int
    fresh_until_s: int
    valid_until_s: int
    min_servers: int
    has_later_salt: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster file says. The facts of a signed list are kept, and not judged.

    `load` reads one from a file, `parse` from a text; `lab` makes one of addresses on this machine.
    """

    servers: tuple[ServerEntry, ...]
    policy: Policy = field(default_factory=Policy)
    name: str = ""
    salt: bytes = b""
    is_lab: bool = False
    signed: ListFacts | None = None
    signatures: tuple[str, ...] = ()  # the lines of a signed list, which prove nothing here
    has_names: bool = False  # hosts may be given by name, and any server may have a key of its own
    path: Path | None = field(default=None, compare=False)  # of the file that `load` read

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed list, or made to become one: then it is for `client/trust` to judge."""
        return self.signed is not None

    @property
    def hosts(self) -> frozenset[str]:
        """Its hosts, by their keys on the ring. A host may have several servers."""
        return hosts_of(self.servers)


def hosts_of(servers: Iterable[ServerEntry]) -> frozenset[str]:
    """Returns the hosts of these servers, by their keys on the ring."""
    return frozenset(server.key for server in servers)


def parse_address(text: str) -> Address:
    """Reads `192.0.2.7:7400` or `[2001:db8::7]:7400`. Raises ValueError, which says what was expected."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    why = ""
    try:
        ip = _plain(IPv6Address(host[1:-1])) if bracketed else str(IPv4Address(host))
        if is_port(port):
            return ip, int(port)
        why = "; ports are 1 to 65535"
    except ValueError:
        if is_host_name(host):
            why = "; names are not looked up"
    raise ValueError(f"expected IP:PORT or [IPv6]:PORT, not {shown(text)}{why}")


def is_host_name(text: str) -> bool:
    """Returns whether this can be the name of a host: labels of letters, digits, `-` and `_`, with dots
    between them, the last one not all digits. It is no address then."""
    if len(text) > _HOST_CHARS_MAX:
        return False
    labels = text.removesuffix(".").split(".")
    return all(map(_HOST_LABEL.fullmatch, labels)) and not labels[-1].isdigit()


def is_list_name(text: str) -> bool:
    """Returns whether a signed list may have this name (§10.4), such as `example.org/lab`."""
    return len(text) <= _LIST_NAME_CHARS_MAX and _LIST_NAME.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Returns whether this is a whole number that a cluster file may have."""
    # Python's int() takes more: signs, underscores, other alphabets' digits. isdigit() takes others.
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


def is_port(text: str) -> bool:
    """Returns whether this is a UDP port, 1 to 65535."""
    return is_number(text) and 0 < int(text) < 65536


def shown(text: str) -> str:
    """Returns what a message quotes of a text, which may be long and odd."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}...")


def host_key(address: Address) -> str:
    """Returns the ring key of an address outside labs (§8.1): the IPv4 address, or the IPv6 address's /64.

    The port is left out, and so are the 64 bits that the owner of an IPv6 network may choose freely:
    otherwise trying ports or addresses until one falls beside a topic would cost nothing.
    """
    host, _ = address
    return f"{IPv6Address(int(IPv6Address(host)) >> 64 << 64)}/64" if ":" in host else host


def own_key(addresses: tuple[Address, ...], is_lab: bool) -> str | None:
    """Returns the key of a server whose line gives none; None for one without addresses."""
    if not addresses:
        return None
    return format_address(addresses[0]) if is_lab else host_key(addresses[0])


def _plain(ip: IPv6Address) -> str:
    """Returns an IPv4 address where this is one, mapped. Raises ValueError for an address with a scope."""
    if ip.scope_id:
        raise ValueError("an address with a scope means another thing on each machine")
    return str(ip.ipv4_mapped or ip)


def facts_of(cluster: Cluster) -> ListFacts:
    """Returns what a signed list says beside its servers. Raises ClusterError where it is none."""
    if cluster.signed is None:
        raise ClusterError("it is no signed list: 'kcast servers init NAME --from FILE' makes one of it")
    return cluster.signed


@dataclass(frozen=True, slots=True)
class ListState:
    """What a client knows of the signed list `name` that it goes by. Times are in seconds since 1970.

    `version` is that of the list in force, signed under version `trust` of the trust document. `upcoming` is
    the version of a newer one that holds only later, None where there is none. `log_size` is the size of the
    public log as it was seen last. `checked_unix_s` is when this client looked last with success, None where
    it has not yet. `troubles` are those that have not passed.
    """

    name: str
    version: int
    trust: int
    log_size: int
    valid_after_s: int
    fresh_until_s: int
    valid_until_s: int
    upcoming: int | None = None
    checked_unix_s: float | None = None
    troubles: tuple[ListTrouble, ...] = ()
