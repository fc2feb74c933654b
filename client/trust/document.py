"""Trust documents: who may say which servers there are. Sans-IO. PROTOCOL §10.5.

A trust document is a signed note of its owners. It names those who sign lists, what a list may change at
once, and the log and the witnesses that must have seen it. Its first version is believed because of its
*pin*, which people give to each other; each further one because the owners of the version before, and its
own, have signed it.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, cast

from kcast.client.trust.note import KIND_ED25519, Note, NoteError, VerifierKey, verify
from kcast.client.trust.quorum import Policy, PolicyReader

HEADER = "kcast-trust 1"
DOCUMENT_BYTES_MAX = 64 * 1024
KEYS_MAX = 16  # owners, and signers: a note has as many signatures
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?)*")
_NAME_CHARS_MAX = 64
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")

Admission = Literal["now", "epoch"]
Expiry = Literal["warn", "refuse"]


class DocumentError(NoteError):
    """A trust document that cannot be used. The message names the line where there is one."""


def is_name(text: str) -> bool:
    """Returns whether this can be the name of a list: 1 to 64 of a-z, 0-9, '.', '/' and '-', where each part
    between slashes begins and ends with a letter or digit."""
    return len(text) <= _NAME_CHARS_MAX and _NAME.fullmatch(text) is not None and ".." not in text


def pin_of(text: str) -> str:
    """Returns the pin of a trust document's text: 43 characters, the base64url of its SHA-256."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class TrustDocument:
    """What a trust document says. Without owners, its signers are its owners.

    `churn_percent` is how many of the hosts a list may add or take away, against the list held;
    `except_version` may do more. `hosts_per_prefix` is the most hosts of one IPv4 /24 or IPv6 /48, 0 for any
    number. `floor` is the least number of hosts. Versions of lists count from `lists_from`.
    """

    name: str
    version: int
    signers: tuple[VerifierKey, ...]
    signer_threshold: int
    owner_threshold: int
    policy: Policy
    own_owners: tuple[VerifierKey, ...] = ()
    churn_percent: int = 25
    except_version: int | None = None
    hosts_per_prefix: int = 1
    floor: int = 1
    admission: Admission = "now"
    expiry: Expiry = "warn"
    lists_from: int = 1
    urls: tuple[str, ...] = field(default=())

    @property
    def owners(self) -> tuple[VerifierKey, ...]:
        """The keys of those who sign the next trust document, and have signed this one."""
        return self.own_owners or self.signers

    @property
    def text(self) -> str:
        """The text that is signed."""
        churn = f"churn {self.churn_percent}%"
        lines = [
            HEADER,
            f"name {self.name}",
            f"version {self.version}",
            f"owners {self.owner_threshold} of {len(self.owners)}",
            *(f"owner {key}" for key in self.own_owners),
            f"lists {self.signer_threshold} of {len(self.signers)}",
            *(f"signer {key}" for key in self.signers),
            churn if self.except_version is None else f"{churn} except {self.except_version}",
            f"hosts {self.hosts_per_prefix} per-prefix",
            f"floor {self.floor}",
            f"admission {self.admission}",
            f"expiry {self.expiry}",
            f"lists-from {self.lists_from}",
            *(f"from {url}" for url in self.urls),
            "policy",
        ]
        return "\n".join(lines) + "\n" + self.policy.text

    @property
    def pin(self) -> str:
        """The pin of this text. That of a document read from elsewhere is the pin of the text there."""
        return pin_of(self.text)

    def signers_of(self, note: Note) -> tuple[VerifierKey, ...]:
        """Returns which of those who sign lists have signed a note. Raises BadSignature."""
        return verify(note, self.signers)

    def owners_of(self, note: Note) -> tuple[VerifierKey, ...]:
        """Returns which of the owners have signed a note. Raises BadSignature."""
        return verify(note, self.owners)


def parse(data: bytes) -> tuple[TrustDocument, Note]:
    """Reads a trust document, signed note and all; who has signed it is not looked at. Raises NoteError."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise DocumentError(f"expected a trust document of at most {DOCUMENT_BYTES_MAX} bytes")
    note = Note.parse(data)
    return parse_text(note.text), note


def parse_text(text: str) -> TrustDocument:
    """Reads the text of a trust document. Raises DocumentError."""
    reader = _Reader()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            reader.read(line)
        except NoteError as error:
            raise DocumentError(f"line {number}: {error}") from None
    try:
        return reader.document()
    except NoteError as error:
        raise DocumentError(str(error)) from None


def check_first(data: bytes, pin: str) -> TrustDocument:
    """Returns the trust document that has this pin, if enough of its own owners have signed it.

    Raises DocumentError.
    """
    note = Note.parse(data)
    if pin_of(note.text) != pin:
        raise DocumentError(f"its pin is {pin_of(note.text)}, and not {pin}")
    return check_own(data)


def check_own(data: bytes) -> TrustDocument:
    """Returns a trust document that enough of its own owners have signed: it is whole, whoever they are.

    Raises NoteError.
    """
    document, note = parse(data)
    _demand(document, note, document)
    return document


def check_next(former: TrustDocument, data: bytes) -> TrustDocument:
    """Returns the trust document that follows `former`: of the same name, one version on, and signed by
    enough owners of both. Raises NoteError."""
    document, note = parse(data)
    if document.name != former.name:
        raise DocumentError(f"it is named {document.name}, and not {former.name}")
    if document.version != former.version + 1:
        raise DocumentError(f"it is version {document.version}, and not {former.version + 1}")
    _demand(former, note, document)
    _demand(document, note, document)
    return document


def _demand(whose: TrustDocument, note: Note, document: TrustDocument) -> None:
    count = len(whose.owners_of(note))
    if count < whose.owner_threshold:
        raise DocumentError(
            f"version {document.version} is signed by {count} of the {whose.owner_threshold} owners "
            f"of version {whose.version} that it takes"
        )


class _Reader:
    """Reads a trust document line by line."""

    def __init__(self) -> None:
        self._has_header = False
        self._policy: PolicyReader | None = None
        self._once: set[str] = set()
        self._values: dict[str, int] = {}
        self._name = ""
        self._admission: Admission = "now"
        self._expiry: Expiry = "warn"
        self._counts: dict[str, int] = {}
        self._owners: list[VerifierKey] = []
        self._signers: list[VerifierKey] = []
        self._urls: list[str] = []
        self._words: dict[str, Callable[[list[str]], None]] = {
            "name": self._read_name,
            "version": self._read_number,
            "owners": self._read_threshold,
            "owner": self._read_key,
            "lists": self._read_threshold,
            "signer": self._read_key,
            "churn": self._read_churn,
            "hosts": self._read_hosts,
            "floor": self._read_number,
            "admission": self._read_choice,
            "expiry": self._read_choice,
            "lists-from": self._read_number,
            "from": self._read_from,
            "policy": self._read_policy,
        }

    def read(self, line: str) -> None:
        if not self._has_header:
            if line != HEADER:
                raise NoteError(f"expected {HEADER!r}, not {line[:40]!r}")
            self._has_header = True
            return
        words = line.split()
        if not words or words[0].startswith("#"):
            return
        if self._policy is not None:
            self._policy.read(words)
            return
        read = self._words.get(words[0])
        if read is None:
            raise NoteError(f"expected one of {', '.join(self._words)}, not {words[0][:40]!r}")
        if words[0] not in ("owner", "signer", "from"):
            if words[0] in self._once:
                raise NoteError(f"expected {words[0]!r} once")
            self._once.add(words[0])
        read(words)

    def _read_name(self, words: list[str]) -> None:
        if len(words) != 2 or not is_name(words[1]):
            raise NoteError("expected 'name NAME', of 1 to 64 of a-z, 0-9, '.', '/' and '-'")
        self._name = words[1]

    def _read_number(self, words: list[str]) -> None:
        if len(words) != 2:
            raise NoteError(f"expected '{words[0]} NUMBER'")
        self._values[words[0]] = _number(words[1])

    def _read_threshold(self, words: list[str]) -> None:
        if len(words) != 4 or words[2] != "of":
            raise NoteError(f"expected '{words[0]} T of N'")
        self._values[words[0]], self._counts[words[0]] = _number(words[1]), _number(words[3])

    def _read_key(self, words: list[str]) -> None:
        keys = self._owners if words[0] == "owner" else self._signers
        if len(words) != 2:
            raise NoteError(f"expected '{words[0]} VKEY'")
        key = VerifierKey.parse(words[1])
        if key.kind != KIND_ED25519:
            raise NoteError(f"expected a {words[0]}'s key of type 1, not one for cosignatures")
        if any(each.public == key.public for each in keys):
            raise NoteError(f"expected {words[0]}s with different keys")
        if len(keys) == KEYS_MAX:
            raise NoteError(f"expected at most {KEYS_MAX} {words[0]}s")
        keys.append(key)

    def _read_churn(self, words: list[str]) -> None:
        if len(words) not in (2, 4) or not words[1].endswith("%") or words[2:3] not in ([], ["except"]):
            raise NoteError("expected 'churn N%' or 'churn N% except VERSION'")
        self._values["churn"] = _number(words[1].removesuffix("%"))
        if len(words) == 4:
            self._values["except"] = _number(words[3])

    def _read_hosts(self, words: list[str]) -> None:
        if len(words) != 3 or words[2] != "per-prefix":
            raise NoteError("expected 'hosts N per-prefix'")
        self._values["hosts"] = _number(words[1])

    def _read_choice(self, words: list[str]) -> None:
        choices = {"admission": ("epoch", "now"), "expiry": ("warn", "refuse")}[words[0]]
        if len(words) != 2 or words[1] not in choices:
            raise NoteError(f"expected '{words[0]} {'|'.join(choices)}'")
        if words[0] == "admission":
            self._admission = cast("Admission", words[1])
        else:
            self._expiry = cast("Expiry", words[1])

    def _read_from(self, words: list[str]) -> None:
        if len(words) != 2 or len(self._urls) == KEYS_MAX:
            raise NoteError(f"expected 'from URL', at most {KEYS_MAX} times")
        self._urls.append(words[1])

    def _read_policy(self, words: list[str]) -> None:
        if len(words) != 1:
            raise NoteError("expected 'policy' alone on its line")
        self._policy = PolicyReader()

    def document(self) -> TrustDocument:
        missing = {"name", "version", "owners", "lists", "policy"} - self._once
        if missing or self._policy is None:
            raise NoteError(f"expected a line '{min(missing)}' before the end")
        if self._values["version"] < 1 or self._values.get("lists-from", 1) < 1:
            raise NoteError("expected versions that count from 1")
        owners = self._owners or self._signers
        for word, keys in (("owners", owners), ("lists", self._signers)):
            if not 1 <= self._values[word] <= len(keys) == self._counts[word]:
                raise NoteError(
                    f"expected '{word} T of {len(keys)}', as many as there are keys, and T from 1 to that"
                )
        values = self._values
        return TrustDocument(
            name=self._name,
            version=values["version"],
            signers=tuple(self._signers),
            signer_threshold=values["lists"],
            owner_threshold=values["owners"],
            policy=self._policy.policy(),
            own_owners=tuple(self._owners),
            churn_percent=values.get("churn", 25),
            except_version=values.get("except"),
            hosts_per_prefix=values.get("hosts", 1),
            floor=values.get("floor", 1),
            admission=self._admission,
            expiry=self._expiry,
            lists_from=values.get("lists-from", 1),
            urls=tuple(self._urls),
        )


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise NoteError(f"expected a number, not {text[:40]!r}")
    return int(text)
