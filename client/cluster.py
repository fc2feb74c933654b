"""The cluster file: which servers there are, and the policy that all clients must share. PROTOCOL §10.

It is text, one fact a line; `#` begins a comment. This module is the only reader and the only writer of it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import cast

from kcast.hashring.policy import Policy, Side
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError

HEADER = "kcast-cluster 1"
FILE_BYTES_MAX = 64 * 1024 * 1024
_NUMBER_DIGITS_MAX = 18
_SIGNATURE_MARK = "\N{EM DASH}"
_HOST_CHARS_MAX = 253
_HOST_LABEL = re.compile("[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII | re.IGNORECASE)


class ClusterError(KcastError, ValueError):
    """A cluster file that cannot be used; the message names the line and says what was expected."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server: its addresses (one for each IP version, or one), and the key of its host on the ring.

    Where the file gives the name of its host, `named` is that and the port, and `addresses` is empty: those
    that the name has at the moment are for the client's driver to look up.
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
class Cluster:
    """What a cluster file says. Reserved facts (a signed list's dates and keys) are kept, not acted on.

    `load` reads one from a file, `parse` from a text; `lab` makes one of addresses on this machine.
    """

    servers: tuple[ServerEntry, ...]
    policy: Policy = field(default_factory=Policy)
    name: str = ""
    salt: bytes = b""
    is_lab: bool = False
    next_salts: tuple[tuple[bytes, int], ...] = ()  # (salt, unix seconds from which it holds)
    reserved: tuple[tuple[str, str], ...] = ()
    signatures: tuple[str, ...] = ()
    has_names: bool = False  # hosts may be given by name, and any server may have a key of its own
    path: Path | None = field(default=None, compare=False)  # of the file that `load` read


def load(path: str | Path, name: str = "") -> Cluster:
    """Reads a cluster file; complaints name it by its path, or as `name`.

    Raises ClusterError, also where the file cannot be read.
    """
    path = Path(path)
    name = name or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)  # it may be a pipe, or a device without an end
        if len(data) > FILE_BYTES_MAX:
            raise ClusterError(f"{name}: longer than {FILE_BYTES_MAX} bytes; is it a cluster file?")
        text = data.decode("utf-8-sig")  # some editors begin a file with U+FEFF
    except OSError as error:
        raise ClusterError(f"{name}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise ClusterError(f"{name}:{number}: not UTF-8 text; is it a cluster file?") from None
    return replace(parse(text, name), path=path)


def parse(text: str, source: str = "cluster") -> Cluster:
    """Reads a cluster file's text; `source` stands in error messages. Raises ClusterError."""
    reader = _Reader(source)
    for number, line in enumerate(text.splitlines(), 1):
        reader.number = number
        if reader.signatures or line.startswith(_SIGNATURE_MARK):
            reader.signatures.append(line)
        else:
            reader.read(_without_comment(line).split())
    return reader.cluster()


def format_cluster(cluster: Cluster) -> str:
    """Returns the text that `parse` reads back as the same cluster, but for signatures."""
    lines = [HEADER]
    if cluster.name:
        lines.append(f"name   {cluster.name}")
    lines.append(f"policy {_format_policy(cluster.policy)}")
    if cluster.salt:
        lines.append(f"salt   {cluster.salt.hex()}")
    lines += [f"salt   {salt.hex()} from={from_s}" for salt, from_s in cluster.next_salts]
    lines += [f"{word} {value}" for word, value in cluster.reserved]
    if cluster.is_lab:
        lines.append("lab")
    if cluster.has_names:
        lines.append("names")
    for server in cluster.servers:
        where = server.name if server.named else ",".join(map(format_address, server.addresses))
        is_keyed = server.key != _own_key(server.addresses, cluster.is_lab)
        lines.append(f"server {where}" + (f" key={server.key}" if is_keyed else ""))
    return "\n".join(lines) + "\n"


def lab(addresses: Iterable[Address], policy: Policy | None = None, name: str = "lab") -> Cluster:
    """Returns a cluster of servers on this machine, each a host of its own on the ring. No file is needed:

    Client(lab([("127.0.0.1", 7401)], Policy(1, 1, 1)))
    """
    servers = tuple(ServerEntry((address,), format_address(address)) for address in addresses)
    return Cluster(servers, policy or Policy(), name, salt=b"kcast", is_lab=True)


def parse_address(text: str) -> Address:
    """Reads `192.0.2.7:7400` or `[2001:db8::7]:7400`. Raises ValueError, which says what was expected."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    why = ""
    try:
        ip = ip_address(host[1:-1] if bracketed else host)
        if bracketed == (ip.version == 6) and not (isinstance(ip, IPv6Address) and ip.scope_id):
            if _is_number(port) and 0 < int(port) < 65536:
                return _plain(ip), int(port)
            why = "; ports are 1 to 65535"
    except ValueError:
        if is_host_name(host):
            why = "; names are not looked up"
    raise ValueError(f"expected IP:PORT or [IPv6]:PORT, not {text!r}{why}")


def is_host_name(text: str) -> bool:
    """Returns whether this can be the name of a host: labels of letters, digits, `-` and `_`, with dots
    between them, the last one not all digits. It is no address then."""
    labels = text.removesuffix(".").split(".")
    is_sound = len(text) <= _HOST_CHARS_MAX and all(map(_HOST_LABEL.fullmatch, labels))
    return is_sound and not labels[-1].isdigit()


def _plain(ip: IPv4Address | IPv6Address) -> str:
    return str(ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else str(ip)


def host_key(address: Address) -> str:
    """Returns the ring key of an address outside labs (§8.1): the IPv4 address, or the IPv6 address's /64.

    The port is left out, and so are the 64 bits that the owner of an IPv6 network may choose freely:
    otherwise trying ports or addresses until one falls beside a topic would cost nothing.
    """
    ip = ip_address(address[0])
    return str(ip) if ip.version == 4 else str(IPv6Network((ip, 64), strict=False))


def _own_key(addresses: tuple[Address, ...], is_lab: bool) -> str | None:
    """Returns the key of a server whose line gives none; None for one without addresses."""
    if not addresses:
        return None
    return format_address(addresses[0]) if is_lab else host_key(addresses[0])


def _without_comment(line: str) -> str:
    words = line.split()
    for index, word in enumerate(words):
        if word.startswith("#"):
            return " ".join(words[:index])
    return line


def _is_number(text: str) -> bool:
    # Python's int() takes more: signs, underscores, other alphabets' digits. isdigit() takes others.
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


def _format_policy(policy: Policy) -> str:
    if policy.scheme in ("S", "R"):
        return f"scheme={policy.scheme}" + (
            f" publish={policy.publish} subscribe={policy.subscribe}" if policy.scheme == "R" else ""
        )
    return f"k={policy.k} publish={policy.publish} subscribe={policy.subscribe}"


@dataclass(frozen=True, slots=True)
class _ServerLine:
    """A line `server`, as it was read; it has either addresses or a name."""

    number: int
    addresses: tuple[Address, ...]
    named: tuple[str, int] | None
    key: str | None


def _host_and_port(text: str) -> tuple[str, int] | None:
    """Reads `kcast-0.kcast:7400`. Returns None where it is no name with a port."""
    host, _, port = text.rpartition(":")
    if is_host_name(host) and _is_number(port) and 0 < int(port) < 65536:
        return host.lower(), int(port)
    return None


class _Reader:
    """Reads a file's facts line by line; every complaint names the line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.number = 0
        self.signatures: list[str] = []
        self._has_header = False
        self._once: dict[str, int] = {}
        self._name = ""
        self._policy: dict[str, str] | None = None
        self._policy_line = 0
        self._salts: list[tuple[bytes, int | None]] = []
        self._reserved: list[tuple[str, str]] = []
        self._is_lab = False
        self._has_names = False
        self._servers: list[_ServerLine] = []
        self._words: dict[str, Callable[[list[str]], None]] = {
            "name": self._read_name,
            "policy": self._read_policy,
            "salt": self._read_salt,
            "lab": self._read_lab,
            "names": self._read_names,
            "server": self._read_server,
            "version": self._read_number,
            "valid-after": self._read_number,
            "fresh-until": self._read_number,
            "valid-until": self._read_number,
            "min-servers": self._read_number,
            "next-keys": self._read_keys,
        }

    def _error(self, expected: str, line: int | None = None) -> ClusterError:
        return ClusterError(f"{self._source}:{self.number if line is None else line}: {expected}")

    def read(self, words: list[str]) -> None:
        if not words:
            return
        if not self._has_header:
            if " ".join(words) != HEADER:
                raise self._error(f"expected {HEADER!r} as the first line, not {' '.join(words)!r}")
            self._has_header = True
            return
        word = words[0]
        if word.startswith("x-"):
            return
        read = self._words.get(word)
        if read is None:
            raise self._error(f"expected one of {', '.join(self._words)} or x-..., not {word!r}")
        if word not in ("server", "salt"):
            if word in self._once:
                raise self._error(f"expected {word!r} once; it stands in line {self._once[word]} already")
            self._once[word] = self.number
        read(words)

    def _read_name(self, words: list[str]) -> None:
        if len(words) != 2:
            raise self._error("expected 'name NAME', the name without spaces")
        self._name = words[1]

    def _read_policy(self, words: list[str]) -> None:
        self._policy = self._settings(words[1:], ("k", "publish", "subscribe", "scheme", "k'", "side"))
        self._policy_line = self.number

    def _read_salt(self, words: list[str]) -> None:
        try:
            salt = bytes.fromhex(words[1])
        except (IndexError, ValueError):
            raise self._error("expected 'salt HEX', an even number of hex digits") from None
        settings = self._settings(words[2:], ("from",))
        from_s = int(settings["from"]) if _is_number(settings.get("from", "")) else None
        if len(words) > 2 and from_s is None:
            raise self._error("expected 'salt HEX from=UNIX-SECONDS'")
        if from_s is None and any(at is None for _, at in self._salts):
            raise self._error("expected from=UNIX-SECONDS on a second salt")
        self._salts.append((salt, from_s))

    def _read_lab(self, words: list[str]) -> None:
        if len(words) != 1:
            raise self._error("expected 'lab' alone on its line")
        self._is_lab = True

    def _read_names(self, words: list[str]) -> None:
        if len(words) != 1:
            raise self._error("expected 'names' alone on its line")
        self._has_names = True

    def _read_number(self, words: list[str]) -> None:
        if len(words) != 2 or not _is_number(words[1]):
            raise self._error(f"expected '{words[0]} NUMBER'")
        self._reserved.append((words[0], words[1]))

    def _read_keys(self, words: list[str]) -> None:
        if len(words) < 2:
            raise self._error(f"expected '{words[0]} KEY...'")
        self._reserved.append((words[0], " ".join(words[1:])))

    def _read_server(self, words: list[str]) -> None:
        if len(words) < 2:
            raise self._error(
                "expected 'server IP:PORT[,[IPv6]:PORT] [key=NAME]' or 'server HOST:PORT key=NAME'"
            )
        named = _host_and_port(words[1])
        addresses: tuple[Address, ...] = ()
        if named is None:
            try:
                addresses = tuple(parse_address(text) for text in words[1].split(","))
            except ValueError as error:
                advice = (
                    "; beside a name nothing else may stand" if "," in words[1] and self._has_names else ""
                )
                raise self._error(f"{error}{advice}") from None
        key = self._settings(words[2:], ("key",)).get("key")
        self._servers.append(_ServerLine(self.number, addresses, named, key))

    def _settings(self, words: list[str], names: tuple[str, ...]) -> dict[str, str]:
        settings: dict[str, str] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if name not in names or not equals or not value or name in settings:
                raise self._error(f"expected {', '.join(f'{n}=...' for n in names)}, each once, not {word!r}")
            settings[name] = value
        return settings

    def cluster(self) -> Cluster:
        if not self._has_header:
            raise self._error(
                f"expected {HEADER!r} as the first line, but there is none; if kcast serve writes it, "
                "wait until it has",
                1,
            )
        if not self._servers:
            raise self._error("expected at least one 'server IP:PORT' line before the end of the file")
        if self._has_names and (self.signatures or self._signed_words()):
            what = self._signed_words() or "signatures"
            raise self._error(f"expected no 'names' beside {what}: names are for files that nobody signs")
        servers: list[ServerEntry] = []
        line_of: dict[tuple[str, int], int] = {}
        port_of_host: dict[tuple[str, int], int] = {}
        for line in self._servers:
            for address in (*line.addresses, *((line.named,) if line.named else ())):
                if address in line_of:
                    there = line_of[address]
                    raise self._error(
                        f"{format_address(address)} stands in line {there} already", line.number
                    )
                line_of[address] = line.number
            host_port = self._key_of(line), (line.named or line.addresses[0])[1]
            if host_port in port_of_host:
                there = port_of_host[host_port]
                raise self._error(
                    f"expected another port: line {there} has port {host_port[1]} on {host_port[0]!r} too",
                    line.number,
                )
            port_of_host[host_port] = line.number
            servers.append(ServerEntry(line.addresses, host_port[0], line.named))
        return Cluster(
            servers=tuple(servers),
            policy=self._cluster_policy(len({server.key for server in servers})),
            name=self._name,
            salt=next((salt for salt, from_s in self._salts if from_s is None), b""),
            is_lab=self._is_lab,
            next_salts=tuple((salt, from_s) for salt, from_s in self._salts if from_s is not None),
            reserved=tuple(self._reserved),
            signatures=tuple(self.signatures),
            has_names=self._has_names,
        )

    def _signed_words(self) -> str:
        """Returns the words of signed lists that stand in this file."""
        words = [word for word, _ in self._reserved]
        words += ["salt ... from="] * any(from_s is not None for _, from_s in self._salts)
        return ", ".join(map(repr, words))

    def _key_of(self, line: "_ServerLine") -> str:
        if line.named and not self._has_names:
            raise self._error(
                f"{line.named[0]} is a name: give the address, or add a line 'names' to have it looked up",
                line.number,
            )
        if line.named and line.key is None:
            raise self._error(
                "expected key=NAME: the ring needs a key that stays when addresses change", line.number
            )
        if line.key is not None and not (self._is_lab or self._has_names):
            raise self._error(
                "key= may stand in files with 'lab' or 'names' only; add one of these lines, or drop key=",
                line.number,
            )
        key = line.key or _own_key(line.addresses, self._is_lab)
        assert key is not None  # it has a key or an address
        return key

    def _cluster_policy(self, host_count: int) -> Policy:
        settings = self._policy
        if settings is None:
            return Policy()
        try:
            given = {name: value for name, value in settings.items() if name not in ("scheme", "side")}
            for name, value in given.items():
                if not _is_number(value):
                    raise ValueError(f"{name} is {value!r}: give a whole number")
            numbers = {name: int(value) for name, value in given.items()}
            if "scheme" not in settings:
                if not numbers.keys() == {"k", "publish", "subscribe"}:
                    raise ValueError("k, publish and subscribe are all needed")
                return Policy(numbers["k"], numbers["publish"], numbers["subscribe"])
            side = settings.get("side")
            if side not in (None, "publish", "subscribe"):
                raise ValueError(f"side is {side!r}: use publish or subscribe")
            scheme = settings["scheme"]
            return Policy.from_scheme(
                scheme,
                k=numbers.get("k"),
                k_prime=numbers.get("k'"),
                side=cast("Side | None", side),
                servers=host_count if scheme == "R" else None,
                publish=numbers.get("publish"),
                subscribe=numbers.get("subscribe"),
            )
        except ValueError as error:
            raise self._error(
                f"{error}; expected 'policy k=K publish=M subscribe=N' or 'policy scheme=S|R|CH|RCH ...'",
                self._policy_line,
            ) from None
