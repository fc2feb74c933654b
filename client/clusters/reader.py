"""Reads a cluster file's text. Sans-IO. PROTOCOL §10.1, §10.4.

Any text gives a cluster or a complaint that names a line, in time that grows with its length alone. Lines as
`format_cluster` writes them for servers with one IPv4 address are found all at once by one regular
expression, since lists may have 100,000 of them; all other lines are read word by word.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from itertools import takewhile
from typing import NamedTuple, cast

from kcast.client.clusters.facts import (
    SHOWN_CHARS_MAX,
    Cluster,
    ClusterError,
    ListFacts,
    ServerEntry,
    hosts_of,
    is_host_name,
    is_list_name,
    is_number,
    is_port,
    own_key,
    parse_address,
    shown,
)
from kcast.hashring.policy import Policy, Side
from kcast.pubsub.endpoint import Address, format_address

SIGNATURE_MARK = "\N{EM DASH} "
"""What every signature line begins with."""
HEADER = "kcast-cluster 1"
SALT_BYTES_MAX = 64
ADDRESSES_MAX = 2  # of one server: one for each IP version

# What other readers or screens may take for the end of a line, or may not show at all.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONE_CR = re.compile("\r(?!\n)")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_CANONICAL = re.compile(rf"^server ({_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}):({_PORT})\n", re.MULTILINE)

_NUMBERS = ("version", "trust", "valid-after", "fresh-until", "valid-until", "min-servers")
_UNUSED = ("pending", "next-salt", "salt-reveal")  # signed lists of 0.4 may have them
_SIGNED_WORDS = (*_NUMBERS, *_UNUSED)
_REPEATED = ("server", "salt", *_UNUSED)
_ADDRESSES_EXPECTED = "IP:PORT[,[IPv6]:PORT] [key=NAME]"


def read(text: str, source: str = "cluster") -> Cluster:
    """Reads a cluster file's text; `source` stands in error messages. Raises ClusterError."""
    reader = _Reader(source)
    # All that is refused cannot be printed, and whether there is such a thing is found faster.
    is_plain = text.replace("\n", "").isprintable()
    if not is_plain and (refused := _REFUSED.search(text)):
        what = f"expected no control characters, not U+{ord(refused[0]):04X}"
        raise reader.error(what, _line_of(text, refused.start()))
    lone_cr = _LONE_CR.search(text)
    if lone_cr:
        what = "expected lines that end with LF or CR LF, not with CR"
        raise reader.error(what, _line_of(text, lone_cr.start()))
    facts, tail = cut(text)
    signatures = tuple(tail.removesuffix("\n").split("\n"))
    if not all(line.startswith(SIGNATURE_MARK) for line in signatures):
        facts, signatures = text, ()  # an empty line among the facts, or behind them
    reader.read(facts)
    cluster = reader.cluster(signatures)
    if cluster.is_signed:
        for char, what in (("\t", "spaces, not tabs"), ("\r", "LF alone at the end of a line, not CR LF")):
            if char in text:
                raise reader.error(f"expected {what}, in a signed list", _line_of(text, text.index(char)))
        if not text.endswith("\n"):
            raise reader.error("expected LF at the end of a signed list", _line_of(text, len(text)))
    return cluster


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _words(line: str) -> list[str]:
    """Returns the words of a line, without its comment."""
    # Of ASCII only space, tab, CR and LF are left to separate words here; outside it nothing does.
    words = line.split() if line.isascii() else [word for word in re.split("[ \t\r\n]+", line) if word]
    if "#" not in line:
        return words
    return list(takewhile(lambda word: not word.startswith("#"), words))


def _host_and_port(text: str) -> tuple[str, int] | None:
    """Reads `kcast-0.kcast:7400`. Returns None where it is no name with a port."""
    host, _, port = text.rpartition(":")
    return (host.lower(), int(port)) if is_host_name(host) and is_port(port) else None


class _ServerLine(NamedTuple):
    """A line `server`, as it was read; it has either addresses or a name."""

    number: int
    addresses: tuple[Address, ...]
    named: tuple[str, int] | None
    key: str | None


class _CanonicalLines(NamedTuple):
    """Lines `server A.B.C.D:PORT` that follow each other; `number` is that of the first."""

    number: int
    addresses: Sequence[Address]

    def entries(self, is_lab: bool) -> Iterator[ServerEntry]:
        """Yields the servers."""
        keys = map(format_address, self.addresses) if is_lab else (host for host, _ in self.addresses)
        return map(ServerEntry, zip(self.addresses), keys)


class _Reader:
    """Reads a file's facts line by line; every complaint names the line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._number = 0
        self._has_header = False
        self._line_of_word: dict[str, int] = {}
        self._name = ""
        self._policy: dict[str, str] | None = None
        self._salt: bytes | None = None
        self._later_salts: list[tuple[int, bytes]] = []  # each with from=
        self._is_lab = False
        self._has_names = False
        self._numbers: dict[str, int] = {}
        self._servers: list[_ServerLine | _CanonicalLines] = []
        self._words: dict[str, Callable[[list[str]], None]] = {
            "name": self._read_name,
            "policy": self._read_policy,
            "salt": self._read_salt,
            "lab": self._read_lab,
            "names": self._read_names,
            "server": self._read_server,
            **dict.fromkeys(_NUMBERS, self._read_number),
            **dict.fromkeys(_UNUSED, self._ignore),
        }

    def error(self, expected: str, line: int | None = None) -> ClusterError:
        """Returns the complaint about a line: the one being read, if none is given."""
        return ClusterError(f"{self._source}:{self._number if line is None else line}: {expected}")

    # --- Line by line

    def read(self, text: str) -> None:
        """Reads the facts: the text without the signatures."""
        pieces = _CANONICAL.split(text)  # other lines, host, port, other lines, host, port, ..., other lines
        hosts, ports = pieces[1::3], pieces[2::3]
        begun = 0
        for index, others in enumerate(pieces[::3]):
            if not others and index < len(hosts):
                continue
            self._take_canonical(hosts[begun:index], ports[begun:index])
            begun = index
            for line in StringIO(others, newline="\n"):
                self._number += 1
                if line != "\n":
                    self._read_line(_words(line))

    def _take_canonical(self, hosts: list[str], ports: list[str]) -> None:
        if not hosts:
            return
        if not self._has_header:
            self._number += 1
            self._read_line(["server", f"{hosts[0]}:{ports[0]}"])
        addresses = list(zip(hosts, map(int, ports), strict=True))
        self._servers.append(_CanonicalLines(self._number + 1, addresses))
        self._number += len(hosts)

    def _read_line(self, words: list[str]) -> None:
        if not words:
            return
        if not self._has_header:
            if " ".join(words) != HEADER:
                raise self.error(f"expected {HEADER!r} as the first line, not {shown(' '.join(words))}")
            self._has_header = True
            return
        word = words[0]
        if word.startswith("x-"):
            return
        if word.startswith(SIGNATURE_MARK.strip()):
            raise self.error("expected signatures at the end of the file alone, behind its last empty line")
        read = self._words.get(word)
        if read is None:
            among = f"expected one of {', '.join(self._words)} or x-..., not {shown(word)}"
            raise self.error(among + _meant(word, self._words))
        if word not in _REPEATED and word in self._line_of_word:
            raise self.error(f"expected {word!r} once; it stands in line {self._line_of_word[word]} already")
        self._line_of_word.setdefault(word, self._number)
        read(words)

    def _read_name(self, words: list[str]) -> None:
        if len(words) != 2:
            raise self.error("expected 'name NAME', the name without spaces")
        self._name = words[1]

    def _read_policy(self, words: list[str]) -> None:
        self._policy = self._settings(words[1:], ("k", "publish", "subscribe", "scheme", "k'", "side"))

    def _read_salt(self, words: list[str]) -> None:
        try:
            salt = bytes.fromhex(words[1])
        except (IndexError, ValueError):
            raise self.error("expected 'salt HEX', an even number of hex digits") from None
        if len(salt) > SALT_BYTES_MAX:
            raise self.error(f"expected a salt of at most {SALT_BYTES_MAX} bytes, not {len(salt)}")
        settings = self._settings(words[2:], ("from",))
        if not settings:
            if self._salt is not None:
                raise self.error("expected one salt")
            self._salt = salt
            return
        if not is_number(settings["from"]):
            raise self.error("expected 'salt HEX from=UNIX-SECONDS'")
        from_s = int(settings["from"])
        self._later_salts.append((from_s, salt))
        self._line_of_word.setdefault("from=", self._number)

    def _read_lab(self, words: list[str]) -> None:
        if len(words) != 1:
            raise self.error("expected 'lab' alone on its line")
        self._is_lab = True

    def _read_names(self, words: list[str]) -> None:
        if len(words) != 1:
            raise self.error("expected 'names' alone on its line")
        self._has_names = True

    def _read_number(self, words: list[str]) -> None:
        if len(words) != 2 or not is_number(words[1]):
            raise self.error(f"expected '{words[0]} NUMBER'")
        self._numbers[words[0]] = int(words[1])

    def _read_server(self, words: list[str]) -> None:
        if len(words) < 2:
            raise self.error(f"expected 'server {_ADDRESSES_EXPECTED}' or 'server HOST:PORT key=NAME'")
        named = _host_and_port(words[1])
        self._servers.append(self._server_line(words, named))

    def _ignore(self, words: list[str]) -> None:
        """Takes no notice: what the word said once has no meaning any more."""

    def _server_line(self, words: list[str], named: tuple[str, int] | None) -> _ServerLine:
        addresses: tuple[Address, ...] = ()
        if named is None:
            texts = words[1].split(",", ADDRESSES_MAX)
            if len(texts) > ADDRESSES_MAX:
                raise self.error(f"expected at most {ADDRESSES_MAX} addresses: one for each IP version")
            try:
                addresses = tuple(map(parse_address, texts))
            except ValueError as error:
                advice = (
                    "; beside a name nothing else may stand" if len(texts) > 1 and self._has_names else ""
                )
                raise self.error(f"{error}{advice}") from None
        key = self._settings(words[2:], ("key",)).get("key")
        return _ServerLine(self._number, addresses, named, key)

    def _settings(self, words: list[str], names: tuple[str, ...]) -> dict[str, str]:
        settings: dict[str, str] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if name not in names or not equals or not value or name in settings:
                each = ", ".join(f"{name}=..." for name in names)
                near = "" if name in names else _meant(name, names)
                raise self.error(f"expected {each}, each once, not {shown(word)}{near}")
            settings[name] = value
        return settings

    # --- As a whole

    def cluster(self, signatures: tuple[str, ...]) -> Cluster:
        """Returns what has been read."""
        if not self._has_header:
            raise self.error(
                f"expected {HEADER!r} as the first line, but there is none; if kcast serve writes it, "
                "wait until it has",
                1,
            )
        if not self._servers:
            raise self.error("expected at least one 'server IP:PORT' line before the end of the file")
        servers: list[ServerEntry] = []
        for lines in self._servers:
            if isinstance(lines, _CanonicalLines):
                servers.extend(lines.entries(self._is_lab))
            else:
                servers.append(self._entry(lines))
        self._refuse_twins(servers)
        signed = self._facts(signatures)
        return Cluster(
            servers=tuple(servers),
            policy=self._cluster_policy(servers),
            name=self._name,
            salt=self._salt_of(signed),
            is_lab=self._is_lab,
            signed=signed,
            signatures=signatures,
            has_names=self._has_names,
        )

    def _entry(self, line: _ServerLine) -> ServerEntry:
        if line.named and not self._has_names:
            raise self.error(
                f"{line.named[0]} is a name: give the address, or add a line 'names' to have it looked up",
                line.number,
            )
        if line.named and line.key is None:
            raise self.error(
                "expected key=NAME: the ring needs a key that stays when addresses change", line.number
            )
        if line.key is not None and not (self._is_lab or self._has_names):
            raise self.error(
                "key= may stand in files with 'lab' or 'names' only; add one of these lines, or drop key=",
                line.number,
            )
        key = line.key or own_key(line.addresses, self._is_lab)
        assert key is not None  # it has a key or an address
        return ServerEntry(line.addresses, key, line.named)

    def _refuse_twins(self, entries: list[ServerEntry]) -> None:
        """Raises ClusterError where two servers have an address, or a host and port, in common."""
        # Mostly a host is its one address, so that one set tells that there are none. Where two of its
        # members are the same, an address of one server may only look like the key of another.
        places: list[object] = []
        for lines in self._servers:
            named = lines.named if isinstance(lines, _ServerLine) else None
            places += [named] if named else lines.addresses
        keyed = (entry for entry in entries if entry.named or entry.key != entry.addresses[0][0])
        places += [(entry.key, entry.port) for entry in keyed]
        if len(set(places)) == len(places):
            return
        line_of: dict[Address | None, int] = {}
        line_of_host: dict[tuple[str, int], int] = {}
        for number, entry in zip(self._server_numbers(), entries, strict=True):
            for address in entry.addresses or (entry.named,):
                if address is not None and address in line_of:
                    raise self.error(
                        f"{format_address(address)} stands in line {line_of[address]} already", number
                    )
                line_of[address] = number
            host = entry.key, entry.port
            if host in line_of_host:
                there = line_of_host[host]
                raise self.error(
                    f"expected another port: line {there} has port {entry.port} on {shown(entry.key)} too",
                    number,
                )
            line_of_host[host] = number

    def _server_numbers(self) -> Iterator[int]:
        """Yields the line of each server."""
        for lines in self._servers:
            count = len(lines.addresses) if isinstance(lines, _CanonicalLines) else 1
            yield from range(lines.number, lines.number + count)

    def _facts(self, signatures: tuple[str, ...]) -> ListFacts | None:
        """Returns the facts of a signed list; None in an unsigned file."""
        signed_lines = [self._line_of_word[word] for word in _SIGNED_WORDS if word in self._line_of_word]
        if not signed_lines and not signatures:
            return None
        line = min(signed_lines, default=self._number + 2)  # else that of the first signature
        if self._has_names:
            names = self._line_of_word["names"]
            raise self.error(
                "expected no 'names' in a signed list: names are for files that nobody signs", names
            )
        missing = [word for word in _NUMBERS if word not in self._numbers]
        if missing:
            raise self.error(f"expected {', '.join(map(repr, missing))} too, in a signed list", line)
        if not is_list_name(self._name):
            raise self.error(
                "expected 'name NAME' in a signed list: such as example.org/lab, 1 to 64 of a-z 0-9 . - /",
                self._line_of_word.get("name", line),
            )
        version, trust, valid_after_s, fresh_until_s, valid_until_s, min_servers = (
            self._numbers[word] for word in _NUMBERS
        )
        for word in ("version", "trust"):
            if self._numbers[word] < 1:
                raise self.error(f"expected '{word} NUMBER', which counts from 1", self._line_of_word[word])
        for word, before in (("fresh-until", "valid-after"), ("valid-until", "fresh-until")):
            if self._numbers[word] < self._numbers[before]:
                raise self.error(
                    f"expected '{word}' not before '{before}', {self._numbers[before]}",
                    self._line_of_word[word],
                )
        return ListFacts(
            version,
            trust,
            valid_after_s,
            fresh_until_s,
            valid_until_s,
            min_servers,
            has_later_salt=any(from_s > valid_after_s for from_s, _ in self._later_salts),
        )

    def _salt_of(self, signed: ListFacts | None) -> bytes:
        """Returns the salt. In a signed list of 0.4 it may be one with from=, which held when that began."""
        if signed is None and self._later_salts:
            what = "expected one salt, without from=: to change it, put another file in the place of this one"
            raise self.error(what, self._line_of_word["from="])
        begun = [each for each in self._later_salts if signed and each[0] <= signed.valid_after_s]
        return max(begun)[1] if begun else self._salt or b""

    def _cluster_policy(self, servers: list[ServerEntry]) -> Policy:
        settings = self._policy
        if settings is None:
            return Policy()
        try:
            given = {name: value for name, value in settings.items() if name not in ("scheme", "side")}
            for name, value in given.items():
                if not is_number(value):
                    raise ValueError(f"{name} is {shown(value)}: give a whole number")
            numbers = {name: int(value) for name, value in given.items()}
            if "scheme" not in settings:
                if not numbers.keys() == {"k", "publish", "subscribe"}:
                    raise ValueError("k, publish and subscribe are all needed")
                return Policy(numbers["k"], numbers["publish"], numbers["subscribe"])
            side = settings.get("side")
            if side not in (None, "publish", "subscribe"):
                raise ValueError(f"side is {shown(side)}: use publish or subscribe")
            scheme = settings["scheme"][:SHOWN_CHARS_MAX]
            return Policy.from_scheme(
                scheme,
                k=numbers.get("k"),
                k_prime=numbers.get("k'"),
                side=cast("Side | None", side),
                servers=len(hosts_of(servers)) if scheme == "R" else None,
                publish=numbers.get("publish"),
                subscribe=numbers.get("subscribe"),
            )
        except ValueError as error:
            raise self.error(
                f"{error}; expected 'policy k=K publish=M subscribe=N' or 'policy scheme=S|R|CH|RCH ...'",
                self._line_of_word["policy"],
            ) from None


def cut(text: str) -> tuple[str, str]:
    """Returns a signed note's text (PROTOCOL §10.4, C2SP signed-note), with its last LF, and what follows its
    last empty line.

    The text may have empty lines of its own. Where there is no empty line, all of it is text.
    """
    head, empty_line, tail = text.rpartition("\n\n")
    return (f"{head}\n", tail) if empty_line else (text, "")


def _meant(word: str, names: Iterable[str]) -> str:
    """Returns which names resemble a word of a file, whose length is anybody's choice."""
    from kcast.client.errors import did_you_mean  # slow to import, and seldom needed

    return did_you_mean(word[:SHOWN_CHARS_MAX], names)
