"""Group files: one epoch of a group, with its secrets wrapped for each member. Sans-IO. PROTOCOL §9.8.

    kcast-group 1
    name ops
    owner VKEY
    epoch 3
    after 2                 the epoch that holds until this one begins; those between never hold
    from 1790000000         when it begins, and until when the file may be used: seconds since 1970
    until 1797776000
    public HASH             SHA-256 of the epoch's public key
    sender KEY              whose messages count; without such lines all members' do
    reader KEY WRAPPED      HPKE(the epoch's private key, the topic secret)
    writer KEY WRAPPED      HPKE(the epoch's public key, the topic secret)

    — NAME SIGNATURE        the owner's, alone

HASH, KEY and WRAPPED are base64url. Lines of one word are sorted. So a file has one form, and may lie where
anybody can read it. HPKE (RFC 9180) is of base mode, with X25519, HKDF-SHA256 and ChaCha20-Poly1305; its
`info` names group, epoch, role and member, so that no line can be moved.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from kcast.client.clusters.facts import shown
from kcast.client.messages import base64url
from kcast.client.trust.extras import MissingExtra

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
except ImportError:
    raise MissingExtra("a group") from None

from kcast.client.trust.forms.note import (
    KIND_ED25519,
    Note,
    NoteError,
    SigningKey,
    VerifierKey,
    sign,
    verify,
)

HEADER = "kcast-group 1"
MEMBERS_MAX = 1_000
FILE_BYTES_MAX = 320 * 1024  # of 1,000 members who all are senders: 253,000
KEY_BYTES = 32
WRAPPED_BYTES = 32 + 2 * KEY_BYTES + 16  # `enc`, two keys, the tag
NAME_FORM = "1 to 64 of a-z, 0-9, '-' and '_'"

_NAME = re.compile("[a-z0-9_-]{1,64}")
_NUMBER = re.compile("0|[1-9][0-9]{0,11}")
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_ANY_PRIVATE = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))


class GroupFileError(NoteError):
    """A group file that cannot be used. The message names the line where there is one."""


class Role(StrEnum):
    """What a member may do. Whoever may read may write, too, unless the group has senders."""

    READER = "reader"
    WRITER = "writer"


class Secrets(NamedTuple):
    """The secrets of an epoch; `private` is None for those who may only write."""

    public: bytes
    topic_secret: bytes
    private: bytes | None = None

    def __repr__(self) -> str:
        """Returns a text without the secrets."""
        return f"Secrets({'to read' if self.private else 'to write'})"

    @classmethod
    def of(cls, private: bytes, topic_secret: bytes) -> "Secrets":
        """Returns the secrets of an epoch with this private key; both are 32 bytes."""
        public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        return cls(public, topic_secret, private)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A line of a member: its Ed25519 key, its role, and the secrets that it alone can open."""

    key: bytes
    role: Role
    data: bytes


class Recipient(NamedTuple):
    """A member, for whom secrets are wrapped: its Ed25519 key and its X25519 key."""

    key: bytes
    hpke_public: bytes
    role: Role = Role.READER
    is_sender: bool = False


class Term(NamedTuple):
    """An epoch's number and times: it begins at `from_unix_s`, and ends the epoch `after`. The file with it
    may be used until `until_unix_s`."""

    epoch: int
    after: int
    from_unix_s: int
    until_unix_s: int


@dataclass(frozen=True)
class GroupFile:
    """What a group file says."""

    name: str
    owner: VerifierKey
    term: Term
    public_hash: bytes
    senders: tuple[bytes, ...] = ()
    members: tuple[Wrapped, ...] = field(default=(), repr=False)  # readers, then writers

    @property
    def epoch(self) -> int:
        """The epoch's number, from 1."""
        return self.term.epoch

    @cached_property
    def text(self) -> str:
        """The text that is signed."""
        term = self.term
        lines = [
            HEADER,
            f"name {self.name}",
            f"owner {self.owner}",
            f"epoch {term.epoch}",
            f"after {term.after}",
            f"from {term.from_unix_s}",
            f"until {term.until_unix_s}",
            f"public {base64url.encode(self.public_hash)}",
            *(f"sender {base64url.encode(key)}" for key in self.senders),
            *(
                f"{each.role} {base64url.encode(each.key)} {base64url.encode(each.data)}"
                for each in self.members
            ),
        ]
        return "\n".join(lines) + "\n"

    def role_of(self, key: bytes) -> Role | None:
        """Returns the role of the member with this Ed25519 key; None where there is none."""
        return next((each.role for each in self.members if each.key == key), None)

    def open(self, key: bytes, hpke_private: bytes) -> Secrets | None:
        """Returns the epoch's secrets for the member with this Ed25519 key; None where there is none.

        Raises GroupFileError where the line was wrapped for another key, or holds other secrets.
        """
        line = next((each for each in self.members if each.key == key), None)
        if line is None:
            return None
        private = X25519PrivateKey.from_private_bytes(hpke_private)
        try:
            data = _SUITE.decrypt(line.data, private, info=_info(self.name, self.epoch, line.role, key))
        except (InvalidTag, ValueError):
            raise GroupFileError(
                f"the {line.role} line of {base64url.encode(key)} is not for the key that belongs to it: "
                "the owner must add this member anew, by the word that 'kcast key show' prints"
            ) from None
        secrets = _secrets(line.role, data)
        if secrets is None or sha256(secrets.public).digest() != self.public_hash:
            raise GroupFileError(
                f"the {line.role} line of {base64url.encode(key)} holds no secrets of this epoch"
            )
        return secrets


def make(
    owner: SigningKey, name: str, term: Term, secrets: Secrets, recipients: Iterable[Recipient]
) -> tuple[GroupFile, bytes]:
    """Returns a group file, and its bytes, signed. Raises GroupFileError."""
    ordered = sorted(recipients, key=lambda each: (each.role, base64url.encode(each.key)))
    members = tuple(
        Wrapped(each.key, each.role, _wrapped(name, term.epoch, secrets, each)) for each in ordered
    )
    senders = sorted((each.key for each in ordered if each.is_sender), key=base64url.encode)
    file = GroupFile(
        name,
        owner.verifier,
        term,
        sha256(secrets.public).digest(),
        tuple(senders),
        members,
    )
    data = sign(file.text, [owner]).data
    parse_text(file.text)  # whoever makes one finds what is wrong with it, and not its readers
    return file, data


def parse(data: bytes) -> GroupFile:
    """Reads a group file that the owner whom it names has signed. Who that is, is for others to judge.

    Raises GroupFileError.
    """
    if len(data) > FILE_BYTES_MAX:
        raise GroupFileError(f"expected a group file of at most {FILE_BYTES_MAX} bytes")
    try:
        note = Note.parse(data)
        file = parse_text(note.text)
        signers = verify(note, [file.owner])
    except GroupFileError:
        raise
    except NoteError as error:
        raise GroupFileError(str(error)) from None
    if not signers:
        raise GroupFileError(f"{file.owner.name}, its owner, has not signed it")
    if len(note.signatures) != 1 or note.data != data:
        raise GroupFileError("expected one signature, that of its owner")
    return file


def parse_text(text: str) -> GroupFile:
    """Reads the text of a group file. Raises GroupFileError, which names the line."""
    lines = _Lines(text)
    try:
        return _group_file(lines)
    except NoteError as error:
        raise GroupFileError(f"line {lines.at}: {error}") from None


def is_name(text: str) -> bool:
    """Returns whether a group may be called so."""
    return _NAME.fullmatch(text) is not None


# --- Wrapping -----------------------------------------------------------------------------------------


def _info(name: str, epoch: int, role: Role, key: bytes) -> bytes:
    # None of these can hold a LF: so no two have the same bytes.
    return f"{HEADER}\n{name}\n{epoch}\n{role}\n{base64url.encode(key)}\n".encode()


def _wrapped(name: str, epoch: int, secrets: Secrets, to: Recipient) -> bytes:
    first = secrets.private if to.role is Role.READER else secrets.public
    if first is None:
        raise GroupFileError("whoever makes an epoch needs its private key")
    try:
        public = X25519PublicKey.from_public_bytes(to.hpke_public)
        return _SUITE.encrypt(first + secrets.topic_secret, public, info=_info(name, epoch, to.role, to.key))
    except ValueError:
        raise GroupFileError(f"the member {base64url.encode(to.key)} has a key that seals nothing") from None


def _secrets(role: Role, data: bytes) -> Secrets | None:
    first, topic_secret = data[:KEY_BYTES], data[KEY_BYTES:]
    if len(data) != 2 * KEY_BYTES:
        return None
    if role is Role.READER:
        return Secrets.of(first, topic_secret)
    try:  # a public key of small order would have all that is sealed for it open to anybody
        _ANY_PRIVATE.exchange(X25519PublicKey.from_public_bytes(first))
    except ValueError:
        return None
    return Secrets(first, topic_secret)


# --- Reading ------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a text, taken one after the other. `at` is the number of the one looked at last."""

    def __init__(self, text: str) -> None:
        if not text.endswith("\n"):
            raise GroupFileError("expected a text that ends with LF")
        self._lines = text.split("\n")[:-1]
        self.at = 0

    def next(self) -> str:
        """Takes the next line; an empty one where there is none."""
        self.at += 1
        return self._lines[self.at - 1] if self.at <= len(self._lines) else ""

    def value(self, word: str) -> str:
        """Takes the next line, of this word and one value."""
        line = self.next()
        found, _, value = line.partition(" ")
        if found != word or not value or " " in value:
            raise NoteError(f"expected {word!r} and one value, not {shown(line)}")
        return value

    def number(self, word: str) -> int:
        """Takes the next line, of this word and a number."""
        value = self.value(word)
        if not _NUMBER.fullmatch(value):
            raise NoteError(f"expected a number of at most 12 digits after {word!r}, not {shown(value)}")
        return int(value)

    def all_of(self, word: str, values: int) -> Iterator[Sequence[str]]:
        """Takes lines as long as they begin with this word; yields their values."""
        while self.at < len(self._lines) and self._lines[self.at].startswith(f"{word} "):
            words = self.next().split(" ")
            if len(words) != values + 1:
                raise NoteError(f"expected {word!r} and {values} values, not {shown(' '.join(words))}")
            yield words[1:]

    def end(self) -> None:
        """Sees that there are no more."""
        if self.at < len(self._lines):
            line = self.next()
            raise NoteError(f"expected sorted 'sender', 'reader' and 'writer' lines, not {shown(line)}")


def _group_file(lines: _Lines) -> GroupFile:
    if (header := lines.next()) != HEADER:
        raise NoteError(f"expected {HEADER!r}, not {shown(header)}")
    name = lines.value("name")
    if not is_name(name):
        raise NoteError(f"expected a group's name, {NAME_FORM}, not {shown(name)}")
    owner = VerifierKey.parse(lines.value("owner"))
    if owner.kind != KIND_ED25519:
        raise NoteError("expected an owner's key of type 1")
    term = _term(lines)
    public_hash = _decoded(lines.value("public"), KEY_BYTES)
    senders: list[bytes] = []
    for (text,) in lines.all_of("sender", 1):
        senders.append(_next_key(text, senders))
        _require_few(senders)
    members: list[Wrapped] = []
    for role in Role:
        keys: list[bytes] = []
        for text, wrapped in lines.all_of(role.value, 2):
            keys.append(_next_key(text, keys))
            members.append(Wrapped(keys[-1], role, _decoded(wrapped, WRAPPED_BYTES)))
            _require_few(members)
    lines.end()
    if len({each.key for each in members}) != len(members):
        raise NoteError("expected each member in one role")
    if not members:
        raise NoteError("expected a 'reader' or a 'writer'")
    return GroupFile(name, owner, term, public_hash, tuple(senders), tuple(members))


def _term(lines: _Lines) -> Term:
    epoch = lines.number("epoch")
    if not epoch:
        raise NoteError("expected epochs to count from 1")
    after = lines.number("after")
    if after >= epoch:
        raise NoteError(f"expected an epoch before {epoch}, not {after}")
    from_unix_s = lines.number("from")
    until_unix_s = lines.number("until")
    if until_unix_s <= from_unix_s:
        raise NoteError("expected a time after that of 'from'")
    return Term(epoch, after, from_unix_s, until_unix_s)


def _next_key(text: str, before: Sequence[bytes]) -> bytes:
    key = _decoded(text, KEY_BYTES)
    if before and base64url.encode(before[-1]) >= text:
        raise NoteError("expected each key once, and sorted")
    return key


def _decoded(text: str, count: int) -> bytes:
    data = base64url.decode(text)
    if data is None or len(data) != count:
        raise NoteError(f"expected {count} bytes in base64url, not {shown(text)}")
    return data


def _require_few(found: Sequence[object]) -> None:
    if len(found) > MEMBERS_MAX:
        raise NoteError(f"expected at most {MEMBERS_MAX:,} members")
