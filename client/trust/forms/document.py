"""Trust documents: who may say which servers there are. Sans-IO. PROTOCOL §10.5.

A trust document is a signed note of its owners. It names those who sign lists, what a list may change at
once, and the log and the witnesses that must have seen it. Its first version is believed because of its
*pin*, which people give to each other; each further one because the owners of the version before, and its
own, have signed it.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, cast

from kcast.client.clusters.facts import is_list_name, shown
from kcast.client.trust.forms.note import KIND_ED25519, Note, NoteError, VerifierKey, verify
from kcast.client.trust.forms.quorum import Policy, read_policy

HEADER = "kcast-trust 1"
DOCUMENT_BYTES_MAX = 64 * 1024
KEYS_MAX = 16  # owners, and signers: as many signatures of a note are looked at
OWNER_THRESHOLD_MAX = KEYS_MAX // 2  # so that a note can have the signatures of two versions' owners
URLS_MAX = 16
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")

Admission = Literal["now", "epoch"]
Expiry = Literal["warn", "refuse"]


class DocumentError(NoteError):
    """A trust document that cannot be used. The message names the line where there is one."""


def pin_of(text: str) -> str:
    """Returns the pin of a trust document's text: 43 characters, the base64url of its SHA-256."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class TrustDocument:
    """What a trust document says. Without owners, its signers are its owners.

    `churn_percent` is how many of the hosts a list may add or take away, against the list held;
    `except_version` may do more. `hosts_per_prefix` is the most hosts of one IPv4 /24 or IPv6 /48, 0 for any
    number. `floor` is the least number of hosts. Versions of lists count from `lists_from`. `admission` is
    `epoch` in documents of 0.4 alone: owners may follow one, but no list is under it any more.
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

    def has_enough_signers(self, note: Note) -> bool:
        """Returns whether as many of them as sign a list have signed a note. Raises BadSignature."""
        return len(self.signers_of(note)) >= self.signer_threshold

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
    """Reads the text of a trust document. Raises DocumentError, which names the line."""
    if not text.endswith("\n"):
        raise DocumentError("expected a text that ends with LF")
    lines = _Lines(text)
    try:
        return _document(lines)
    except DocumentError:  # it names an earlier line
        raise
    except NoteError as error:
        raise DocumentError(f"line {lines.at}: {error}") from None


def why_not_used(document: TrustDocument) -> str | None:
    """Returns why no list is used under a trust document; None where lists may be."""
    if document.admission == "now":
        return None
    return (
        f"version {document.version} of its trust document has 'admission epoch', which kcast 0.4 alone "
        "knows: its owners run 'kcast servers rotate --admission now' with kcast 0.4 first"
    )


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


class _Lines:
    """The lines of a text, taken one after the other. `at` is the number of the line that was looked at last.

    All words are there, in one order, with one space between them. So a document has one form, and no client
    has a default that another one lacks.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")[:-1]
        self.at = 0

    def one(self, form: str) -> list[str]:
        """Returns the values of the next line, of this form: a word, and what its values are called."""
        word = form.partition(" ")[0]
        line = self._next()
        self.at += 1
        words = line.split(" ")
        if words[0] != word:
            raise NoteError(f"expected {form!r}, not {shown(line)}" if line else f"expected {form!r}")
        if "" in words:
            raise NoteError(f"expected {form!r}, with one space between words")
        return words[1:]

    def single(self, form: str) -> str:
        """Returns the value of the next line, which has one."""
        values = self.one(form)
        if len(values) != 1:
            raise NoteError(f"expected {form!r}")
        return values[0]

    def all(self, form: str) -> Iterator[str]:
        """Yields the values of the next lines, as many as have this form."""
        while self._next().startswith(form.partition(" ")[0] + " "):
            yield self.single(form)

    def rest(self) -> Iterator[str]:
        """Yields all further lines."""
        while self.at < len(self._lines):
            line = self._next()
            self.at += 1
            yield line

    def _next(self) -> str:
        return self._lines[self.at] if self.at < len(self._lines) else ""


def _threshold(lines: _Lines, form: str, most: int) -> Callable[[tuple[VerifierKey, ...]], int]:
    """Reads how many of how many keys it takes; returns what looks whether these keys are as many, and what
    it takes of them."""
    match lines.one(form):
        case [needed_text, "of", count_text]:
            needed, count, line = _number(needed_text), _number(count_text), lines.at
        case _:
            raise NoteError(f"expected {form!r}")

    def of(keys: tuple[VerifierKey, ...]) -> int:
        if count != len(keys):
            raise DocumentError(f"line {line}: expected {form!r} with N = {len(keys)}, as keys follow")
        if not 1 <= needed <= min(count, most):
            raise DocumentError(f"line {line}: expected {form!r} with T from 1 to {min(count, most)}")
        return needed

    return of


def _document(lines: _Lines) -> TrustDocument:
    if lines.one(HEADER) != HEADER.split()[1:]:
        raise NoteError(f"expected {HEADER!r}")
    name = lines.single("name NAME")
    if not is_list_name(name):
        raise NoteError("expected 'name NAME', of 1 to 64 of a-z, 0-9, '.', '/' and '-'")
    version = _number(lines.single("version NUMBER"), 1)
    owner_threshold = _threshold(lines, "owners T of N", OWNER_THRESHOLD_MAX)
    own_owners = _keys(lines, "owner VKEY")
    signer_threshold = _threshold(lines, "lists T of N", KEYS_MAX)
    signers = _keys(lines, "signer VKEY")
    owners_needed, signers_needed = owner_threshold(own_owners or signers), signer_threshold(signers)
    churn_percent, except_version = _churn(lines)
    return TrustDocument(
        name=name,
        version=version,
        signers=signers,
        signer_threshold=signers_needed,
        owner_threshold=owners_needed,
        own_owners=own_owners,
        churn_percent=churn_percent,
        except_version=except_version,
        hosts_per_prefix=_hosts(lines),
        floor=_number(lines.single("floor NUMBER"), 1),
        admission=cast("Admission", _choice(lines, "admission epoch|now")),
        expiry=cast("Expiry", _choice(lines, "expiry warn|refuse")),
        lists_from=_number(lines.single("lists-from VERSION"), 1),
        urls=_urls(lines),
        policy=_policy(lines),
    )


def _keys(lines: _Lines, form: str) -> tuple[VerifierKey, ...]:
    keys: dict[bytes, VerifierKey] = {}
    for vkey in lines.all(form):
        key = VerifierKey.parse(vkey)
        if key.kind != KIND_ED25519:
            raise NoteError(f"expected {form!r}, of type 1, not one for cosignatures")
        if key.public in keys:
            raise NoteError(f"expected {form!r}, another key on each line")
        if len(keys) == KEYS_MAX:
            raise NoteError(f"expected at most {KEYS_MAX} lines {form!r}")
        keys[key.public] = key
    return tuple(keys.values())


def _churn(lines: _Lines) -> tuple[int, int | None]:
    match lines.one("churn N%"):
        case [percent] if percent.endswith("%"):
            return _number(percent.removesuffix("%")), None
        case [percent, "except", version] if percent.endswith("%"):
            return _number(percent.removesuffix("%")), _number(version, 1)
    raise NoteError("expected 'churn N%' or 'churn N% except VERSION'")


def _hosts(lines: _Lines) -> int:
    match lines.one("hosts N per-prefix"):
        case [count, "per-prefix"]:
            return _number(count)
    raise NoteError("expected 'hosts N per-prefix'")


def _choice(lines: _Lines, form: str) -> str:
    value = lines.single(form)
    if value not in form.partition(" ")[2].split("|"):
        raise NoteError(f"expected {form!r}")
    return value


def _urls(lines: _Lines) -> tuple[str, ...]:
    urls = tuple(lines.all("from URL"))
    if len(urls) > URLS_MAX:
        raise NoteError(f"expected at most {URLS_MAX} lines 'from URL'")
    return urls


def _policy(lines: _Lines) -> Policy:
    if lines.one("policy"):
        raise NoteError("expected 'policy' alone on its line")
    return read_policy(lines.rest())


def _number(text: str, least: int = 0) -> int:
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise NoteError(f"expected a number from {least}, of at most 18 digits, not {shown(text)}")
    return int(text)
