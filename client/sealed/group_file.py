"""Group files: one epoch of a group, with its secrets wrapped for each member. Sans-IO. PROTOCOL §9.8.

    kcast-group 2           the head, which the owner signs
    name ops
    epoch 3
    after 2                 the epoch that holds until this one begins; those between never hold
    from 1790000000         when it begins, until when the owner means to have made another one, and until
    fresh-until 1790604800  when the file may be used: seconds since 1970
    until 1797776000
    rest HASH               SHA-256 of all that follows the signature

    — NAME SIGNATURE
    owner VKEY              the rest
    secrets HASH            SHA-256 of the epoch's public key and topic secret
    senders SEALED          the keys of those whose messages count, for members alone
    reader WRAPPED          HPKE(the epoch's private key, the topic secret)
    writer WRAPPED          HPKE(the epoch's public key, the topic secret)

HASH, SEALED and WRAPPED are base64url. So a file may lie where anybody can read it: it tells how many read
and write, and not who. A member tries each line. HPKE (RFC 9180) is of base mode, with X25519, HKDF-SHA256
and ChaCha20-Poly1305; its `info` names owner, group, epoch, role and member, so that no line can be moved.

The senders are sealed with ChaCha20-Poly1305 under a key that follows from the topic secret. That is drawn
for one file alone, and so is the key: its nonce may be the same each time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from kcast.client.clusters.facts import shown
from kcast.client.messages import base64url
from kcast.client.trust.extras import MissingExtra

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
except ImportError:
    raise MissingExtra("a group") from None

from kcast.client.sealed.dhkem import KEY_BYTES, derive, is_weak, public_key
from kcast.client.trust.forms.note import KIND_ED25519, Note, NoteError, SigningKey, VerifierKey, sign, verify

if TYPE_CHECKING:
    from kcast.client.sealed.keys import Identity

HEADER = "kcast-group 2"
MEMBERS_MAX = 1_000
HEAD_BYTES_MAX = 500  # it is a message, too
FILE_BYTES_MAX = 256 * 1024  # of 1,000 members who all are senders: 202,000
WRAPPED_BYTES = 32 + 2 * KEY_BYTES + 16  # `enc`, two keys, the tag
NAME_FORM = "1 to 64 of a-z, 0-9, '-' and '_'"

_HEAD_LINES = 10  # with the empty one, and the signature
_TAG_BYTES = 16
_NAME = re.compile("[a-z0-9_-]{1,64}")
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class GroupFileError(NoteError):
    """A group file that cannot be used."""


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
        return cls(public_key(private), topic_secret, private)


class Recipient(NamedTuple):
    """A member, for whom secrets are wrapped: its Ed25519 key and its X25519 key."""

    key: bytes
    hpke_public: bytes
    role: Role = Role.READER
    is_sender: bool = False


class Term(NamedTuple):
    """An epoch's number and times: it begins at `from_unix_s`, and ends the epoch `after`. The file with it
    may be used until `until_unix_s`; by `fresh_until_unix_s` the owner means to have made another one."""

    epoch: int
    after: int
    from_unix_s: int
    until_unix_s: int
    fresh_until_unix_s: int


@dataclass(frozen=True, slots=True)
class Head:
    """What the owner signs of an epoch, and members tell each other; `note` is it with its signature."""

    name: str
    term: Term
    rest_hash: bytes
    note: Note = field(compare=False, repr=False)

    @property
    def data(self) -> bytes:
        """The head as it stands in the file."""
        return self.note.data

    @classmethod
    def parse(cls, data: bytes) -> "Head":
        """Reads a head. Nothing is proven before `verify`. Raises GroupFileError."""
        if len(data) > HEAD_BYTES_MAX:
            raise GroupFileError(f"expected a head of at most {HEAD_BYTES_MAX} bytes")
        try:
            note = Note.parse(data)
        except NoteError as error:
            raise GroupFileError(str(error)) from None
        return cls(*_head(note.text), note)

    def verify(self, owner: VerifierKey) -> None:
        """Sees that the owner has signed it, alone. Raises GroupFileError."""
        try:
            signers = verify(self.note, [owner])
        except NoteError as error:
            raise GroupFileError(str(error)) from None
        if not signers:
            raise GroupFileError(f"{owner.name}, its owner, has not signed it")
        if len(self.note.signatures) != 1:
            raise GroupFileError("expected one signature, that of its owner")


class Opened(NamedTuple):
    """What a file gives to a member: the epoch's secrets, and the keys of those whose messages count."""

    secrets: Secrets
    senders: frozenset[bytes]


@dataclass(frozen=True)
class GroupFile:
    """What a group file says; `members` are a role each, and the secrets that one member can open."""

    head: Head
    owner: VerifierKey
    secrets_hash: bytes
    sealed_senders: bytes = field(repr=False)
    members: tuple[tuple[Role, bytes], ...] = field(repr=False)  # readers, then writers

    def __hash__(self) -> int:
        """Returns a number that is found at once, whatever the number of members."""
        return int.from_bytes(self.head.rest_hash[:8], "big")

    @property
    def name(self) -> str:
        """The group's name."""
        return self.head.name

    @property
    def term(self) -> Term:
        """The epoch's number and times."""
        return self.head.term

    @property
    def epoch(self) -> int:
        """The epoch's number, from 1."""
        return self.head.term.epoch

    def open(self, me: "Identity") -> Opened | None:
        """Returns what the file gives to a member; None where nothing is for it.

        Raises GroupFileError where that is not of this epoch.
        """
        at = _line_of(self, me)
        if at is None:
            return None
        role, wrapped = self.members[at]
        data = _unwrapped(self, role, wrapped, me)
        secrets = None if data is None else _secrets(role, data)
        if secrets is None or sha256(secrets.public + secrets.topic_secret).digest() != self.secrets_hash:
            raise GroupFileError(f"a {role} line holds no secrets of this epoch")
        try:
            keys = _senders_cipher(secrets).decrypt(_ONLY_NONCE, self.sealed_senders, None)
        except InvalidTag:
            raise GroupFileError("its list of senders is not of this epoch") from None
        return Opened(secrets, frozenset(keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)))


def make(
    owner: SigningKey, name: str, term: Term, secrets: Secrets, recipients: Iterable[Recipient]
) -> tuple[GroupFile, bytes]:
    """Returns a group file, and its bytes, signed. Where nobody is a sender, all are. Raises GroupFileError.

    The secrets must be new ones: no two files have the same.
    """
    to = list(recipients)
    marked = [each.key for each in to if each.is_sender] or [each.key for each in to]
    members = sorted(
        (each.role.value, _wrapped(owner.verifier, name, term.epoch, secrets, each)) for each in to
    )
    sealed = _senders_cipher(secrets).encrypt(_ONLY_NONCE, b"".join(sorted(set(marked))), None)
    rest = (
        f"owner {owner.verifier}",
        f"secrets {base64url.encode(sha256(secrets.public + secrets.topic_secret).digest())}",
        f"senders {base64url.encode(sealed)}",
        *(f"{role} {wrapped}" for role, wrapped in members),
    )
    rest_data = "".join(f"{line}\n" for line in rest).encode()
    head = (
        HEADER,
        f"name {name}",
        f"epoch {term.epoch}",
        f"after {term.after}",
        f"from {term.from_unix_s}",
        f"fresh-until {term.fresh_until_unix_s}",
        f"until {term.until_unix_s}",
        f"rest {base64url.encode(sha256(rest_data).digest())}",
    )
    data = sign("".join(f"{line}\n" for line in head), [owner]).data + rest_data
    return parse(data), data  # whoever makes one finds what is wrong with it, and not its readers


def parse(data: bytes) -> GroupFile:
    """Reads a group file that the owner whom it names has signed. Who that is, is for others to judge.

    Raises GroupFileError.
    """
    if len(data) > FILE_BYTES_MAX:
        raise GroupFileError(f"expected a group file of at most {FILE_BYTES_MAX} bytes")
    if data.startswith(b"kcast-group 1\n"):
        raise GroupFileError(
            "an older kcast made it: its owner has to update kcast, and to run 'kcast group renew'"
        )
    head_lines = data.split(b"\n", _HEAD_LINES)
    rest = head_lines.pop() if len(head_lines) > _HEAD_LINES else b""
    head = Head.parse(data.removesuffix(rest))
    if sha256(rest).digest() != head.rest_hash:
        raise GroupFileError("it was cut or changed on its way: its rest is not what its owner has signed")
    try:
        file = _group_file(head, rest.decode(errors="replace"))
    except NoteError as error:
        raise GroupFileError(str(error)) from None
    head.verify(file.owner)
    return file


def is_name(text: str) -> bool:
    """Returns whether a group may be called so."""
    return _NAME.fullmatch(text) is not None


# --- Wrapping -----------------------------------------------------------------------------------------

_ONLY_NONCE = bytes(12)


def _senders_cipher(secrets: Secrets) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(derive(secrets.topic_secret, b"kcast-senders 1"))


def _info(owner: VerifierKey, name: str, epoch: int, role: Role, key: bytes) -> bytes:
    # None of these can hold a LF: so no two have the same bytes.
    by = base64url.encode(owner.public)
    return f"{HEADER}\n{by}\n{name}\n{epoch}\n{role}\n{base64url.encode(key)}\n".encode()


def _wrapped(owner: VerifierKey, name: str, epoch: int, secrets: Secrets, to: Recipient) -> str:
    first = secrets.private if to.role is Role.READER else secrets.public
    if first is None:
        raise GroupFileError("whoever makes an epoch needs its private key")
    try:
        public = X25519PublicKey.from_public_bytes(to.hpke_public)
        info = _info(owner, name, epoch, to.role, to.key)
        return base64url.encode(_SUITE.encrypt(first + secrets.topic_secret, public, info=info))
    except ValueError:
        raise GroupFileError(f"the member {base64url.encode(to.key)} has a key that seals nothing") from None


def _unwrapped(file: GroupFile, role: Role, wrapped: bytes, me: "Identity") -> bytes | None:
    private = X25519PrivateKey.from_private_bytes(me.hpke_private)
    try:
        info = _info(file.owner, file.name, file.epoch, role, me.signer.key)
        return _SUITE.decrypt(wrapped, private, info=info)
    except (InvalidTag, ValueError):
        return None


@lru_cache(maxsize=16)
def _line_of(file: GroupFile, me: "Identity") -> int | None:
    """Returns which line is for a member. Of 1,000 that takes a tenth of a second; it keeps no secret of the
    epoch's."""
    lines = enumerate(file.members)
    return next((at for at, (role, data) in lines if _unwrapped(file, role, data, me) is not None), None)


def _secrets(role: Role, data: bytes) -> Secrets | None:
    first, topic_secret = data[:KEY_BYTES], data[KEY_BYTES:]
    if len(data) != 2 * KEY_BYTES:
        return None
    if role is Role.READER:
        return Secrets.of(first, topic_secret)
    return None if is_weak(first) else Secrets(first, topic_secret)


# --- Reading ------------------------------------------------------------------------------------------

_NUMBER, _HASH, _WRAPPED = "(0|[1-9][0-9]{0,11})", "([0-9A-Za-z_-]{43})", "[0-9A-Za-z_-]{150}"
_TIMES = f"from {_NUMBER}\nfresh-until {_NUMBER}\nuntil {_NUMBER}\n"
_HEAD = re.compile(
    f"{HEADER}\nname ([a-z0-9_-]{{1,64}})\nepoch {_NUMBER}\nafter {_NUMBER}\n{_TIMES}rest {_HASH}\n"
)
_REST = re.compile(
    f"owner ([^\n]+)\nsecrets {_HASH}\nsenders ([0-9A-Za-z_-]+)\n"
    f"((?:reader {_WRAPPED}\n)*)((?:writer {_WRAPPED}\n)*)"
)


def _head(text: str) -> tuple[str, Term, bytes]:
    found = _HEAD.fullmatch(text)
    if found is None:
        raise GroupFileError(f"expected the head of a group file, {HEADER!r} first (PROTOCOL 9.8)")
    epoch, after, begin, fresh_until, until = map(int, found.groups()[1:6])
    if not after < epoch or not begin < fresh_until <= until:
        raise GroupFileError("expected an epoch after the one that it follows, which begins before it ends")
    return found[1], Term(epoch, after, begin, until, fresh_until), _decoded(found[7], KEY_BYTES)


def _group_file(head: Head, text: str) -> GroupFile:
    found = _REST.fullmatch(text)
    if found is None:
        raise GroupFileError("expected owner, secrets, senders, readers and writers (PROTOCOL 9.8)")
    owner, secrets_hash = VerifierKey.parse(found[1]), _decoded(found[2], KEY_BYTES)
    if owner.kind != KIND_ED25519:
        raise GroupFileError("expected an owner's key of type 1")
    senders = base64url.decode(found[3]) or b""
    count, over = divmod(len(senders), KEY_BYTES)
    lines = [tuple(line.split(" ")) for line in (found[4] + found[5]).splitlines()]
    if over != _TAG_BYTES or not 1 <= count <= MEMBERS_MAX or not 1 <= len(lines) <= MEMBERS_MAX:
        raise GroupFileError(f"expected 1 to {MEMBERS_MAX:,} senders, and as many members")
    if lines != sorted(set(lines)):
        raise GroupFileError("expected each line of a member once, and sorted")
    members = tuple((Role(role), _decoded(wrapped, WRAPPED_BYTES)) for role, wrapped in lines)
    return GroupFile(head, owner, secrets_hash, senders, members)


def _decoded(text: str, count: int) -> bytes:
    data = base64url.decode(text)
    if data is None or len(data) != count:
        raise GroupFileError(f"expected {count} bytes in base64url, not {shown(text)}")
    return data
