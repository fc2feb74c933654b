"""Signed notes: a text, an empty line, and a line for each signature. Sans-IO.

PROTOCOL §10.5, C2SP signed-note.

    TEXT
    (an empty line)
    — NAME BASE64(KEY ID || SIGNATURE)

The text ends at the last empty line, so it may hold empty lines of its own. A key is known by its name and
its key ID together. Signatures of unknown keys mean nothing; one of a known key that fails makes the whole
note worthless.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from kcast.client.clusters.facts import shown
from kcast.client.clusters.reader import SIGNATURE_MARK, cut
from kcast.client.trust.forms import ed25519
from kcast.pubsub.errors import KcastError

KIND_ED25519 = 1
KIND_COSIGNATURE = 4  # C2SP tlog-cosignature: Ed25519 with a time
SIGNATURES_MAX = 16  # that are looked at; C2SP demands at least as many
KEY_ID_BYTES = 4
NAME_CHARS_MAX = 200  # of our keys; other lines of a note may have longer ones

_CONTROLS = bytes({*range(0x20)} - {*b"\n"})
_KEY_ID = re.compile("[0-9a-f]{8}")
_KEY_NAME = re.compile(r"[^\x00-\x20+\s\ud800-\udfff]+")


class NoteError(KcastError, ValueError):
    """A note, or a key, that is not in its one right form."""


class BadSignature(NoteError):
    """A signature of a known key that fails."""


def decode_base64(text: str) -> bytes:
    """Reads base64 (RFC 4648 §4) in its one canonical form. Raises NoteError."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        raise NoteError(f"expected base64, not {shown(text)}") from None
    if b64encode(data).decode() != text:
        raise NoteError(f"expected canonical base64, not {shown(text)}")
    return data


def encode_base64(data: bytes) -> str:
    """Returns the base64 (RFC 4648 §4) of some bytes."""
    return b64encode(data).decode("ascii")


def is_key_name(text: str) -> bool:
    """Returns whether a key may have this name: UTF-8, not empty, without spaces, controls and `+`."""
    return _KEY_NAME.fullmatch(text) is not None


def _has_controls(data: bytes) -> bool:
    # Twenty times as fast as a regular expression, which counts in a list of megabytes.
    return len(data.translate(None, _CONTROLS)) != len(data)


@dataclass(frozen=True)
class VerifierKey:
    """A public key with its name, as a *vkey*: `NAME+KEYID+BASE64(KIND || KEY)`."""

    name: str
    kind: int
    public: bytes

    def __post_init__(self) -> None:
        if not is_key_name(self.name):
            raise NoteError(
                f"expected a key's name, not empty and without spaces and '+', not {shown(self.name)}"
            )
        if len(self.name) > NAME_CHARS_MAX:
            raise NoteError(f"expected a key's name of at most {NAME_CHARS_MAX} characters")
        if self.kind not in (KIND_ED25519, KIND_COSIGNATURE):
            raise NoteError(f"expected a key of type 1 or 4, which are Ed25519, not {self.kind}")
        if len(self.public) != ed25519.PUBLIC_BYTES:
            raise NoteError(f"expected a key of {ed25519.PUBLIC_BYTES} bytes, not {len(self.public)}")

    @cached_property
    def key_id(self) -> bytes:
        """The first four bytes of SHA-256(NAME LF KIND KEY)."""
        identity = self.name.encode() + b"\n" + bytes([self.kind]) + self.public
        return sha256(identity).digest()[:KEY_ID_BYTES]

    def __str__(self) -> str:
        """Returns the vkey."""
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(bytes([self.kind]) + self.public)}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """Reads a vkey. Raises NoteError, also where the key ID is not that of the key."""
        name, _, rest = text.partition("+")
        key_id, plus, encoded = rest.partition("+")
        if not plus or not _KEY_ID.fullmatch(key_id):
            raise NoteError(f"expected NAME+KEYID+BASE64, not {shown(text)}")
        data = decode_base64(encoded)
        key = cls(name, data[0] if data else 0, data[1:])
        if key.key_id.hex() != key_id:
            raise NoteError(f"expected the key ID {key.key_id.hex()} in {shown(text)}")
        return key


@dataclass(frozen=True)
class SigningKey:
    """A secret key. Its seed is in no text of it."""

    verifier: VerifierKey
    seed: bytes = field(repr=False)

    @classmethod
    def from_seed(cls, name: str, seed: bytes, kind: int = KIND_ED25519) -> "SigningKey":
        """Returns the key of a seed of 32 bytes."""
        return cls(VerifierKey(name, kind, ed25519.public_key(seed)), seed)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature line. `body` is what follows the key ID: the signature, after its time in a cosignature."""

    name: str
    key_id: bytes
    body: bytes

    @property
    def line(self) -> str:
        """The line, without its LF."""
        return f"{SIGNATURE_MARK}{self.name} {encode_base64(self.key_id + self.body)}"

    @classmethod
    def parse(cls, line: str) -> "Signature":
        """Reads a signature line. Raises NoteError."""
        words = line.split(" ")
        if len(words) != 3 or f"{words[0]} " != SIGNATURE_MARK or not is_key_name(words[1]):
            raise NoteError(f"expected a signature line, '\N{EM DASH} NAME BASE64', not {shown(line)}")
        data = decode_base64(words[2])
        if len(data) <= KEY_ID_BYTES:
            raise NoteError(f"expected a key ID and a signature in {shown(line)}")
        return cls(words[1], data[:KEY_ID_BYTES], data[KEY_ID_BYTES:])

    def is_of(self, key: VerifierKey) -> bool:
        """Whether it claims to be of this key."""
        return self.name == key.name and self.key_id == key.key_id


@dataclass(frozen=True, slots=True)
class Note:
    """A text, which ends with LF, and its signatures, which prove nothing before `verify`."""

    text: str
    signatures: tuple[Signature, ...] = ()

    @property
    def data(self) -> bytes:
        """The note's bytes."""
        lines = "".join(f"{signature.line}\n" for signature in self.signatures)
        return f"{self.text}\n{lines}".encode()

    @classmethod
    def parse(cls, data: bytes) -> "Note":
        """Reads a note, which has at least one signature line. Raises NoteError.

        Of more than 16 signature lines, the first 16 are read.
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise NoteError("expected a signed note, which is UTF-8 text") from None
        if _has_controls(data):
            raise NoteError("expected a signed note, which has no control characters but LF")
        text, tail = cut(text)
        if not tail.endswith("\n"):
            raise NoteError("expected a signed note: a text, an empty line, and lines of signatures")
        lines = tail[:-1].split("\n", SIGNATURES_MAX)[:SIGNATURES_MAX]
        return cls(text, tuple(map(Signature.parse, lines)))

    def with_signatures(self, signatures: Iterable[Signature]) -> "Note":
        """Returns the note with further signatures; those that it has already are not added again."""
        return Note(self.text, tuple(dict.fromkeys((*self.signatures, *signatures))))

    def as_looked_at(self, needed: Iterable[VerifierKey]) -> "Note":
        """Returns the note with as many signatures as readers look at, one for each key: the needed first."""
        by_key = {(signature.name, signature.key_id): signature for signature in self.signatures}
        first = {(key.name, key.key_id) for key in needed}
        ranked = sorted(by_key, key=lambda known: known not in first)
        return Note(self.text, tuple(by_key[known] for known in ranked[:SIGNATURES_MAX]))


def verify(note: Note, keys: Iterable[VerifierKey]) -> tuple[VerifierKey, ...]:
    """Returns those of the keys, of type 1, that have signed the note; each public key counts once.

    Raises BadSignature where a signature of one of them fails.
    """
    signers: dict[bytes, VerifierKey] = {}
    text = note.text.encode()
    for key in keys:
        if key.kind != KIND_ED25519:
            continue
        for signature in note.signatures:
            if not signature.is_of(key):
                continue
            if not ed25519.is_signed(key.public, text, signature.body):
                raise BadSignature(f"the signature of {key.name} is not one of this text")
            signers.setdefault(key.public, key)
    return tuple(signers.values())


def sign(text: str, keys: Iterable[SigningKey]) -> Note:
    """Returns the note of a text, which ends with LF, with a signature of each key, of type 1."""
    if not text.endswith("\n") or _has_controls(text.encode()):
        raise NoteError("expected a text that ends with LF and has no other control characters")
    return Note(text, tuple(signature_of(text, key) for key in keys))


def signature_of(text: str, key: SigningKey) -> Signature:
    """Returns the signature of a note's text by one key, of type 1."""
    if key.verifier.kind != KIND_ED25519:
        raise NoteError(f"{key.verifier.name} is a key for cosignatures: it signs no notes")
    return Signature(key.verifier.name, key.verifier.key_id, ed25519.sign(key.seed, text.encode()))
