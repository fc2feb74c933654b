"""What a log and its witnesses sign, and how proofs travel. Sans-IO. PROTOCOL §10.6.

- A *checkpoint* (C2SP tlog-checkpoint) is a signed note on a tree: its log's name, its size and its root.
- A *cosignature* (C2SP tlog-cosignature, Ed25519) is a witness's signature on it, with a time.
- A *log proof* (C2SP tlog-proof) shows that an entry is in the tree of a checkpoint.
- An *add-checkpoint body* (C2SP tlog-witness) shows that the tree of a checkpoint extends an older one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kcast.client.clusters.facts import shown
from kcast.client.trust.forms import ed25519
from kcast.client.trust.forms.merkle import HASH_BYTES, SIZE_MAX, includes, leaf_hash
from kcast.client.trust.forms.note import (
    KIND_COSIGNATURE,
    BadSignature,
    Note,
    NoteError,
    Signature,
    SigningKey,
    VerifierKey,
    decode_base64,
    encode_base64,
    is_key_name,
)

PROOF_HEADER = "c2sp.org/tlog-proof@v1"
PATH_HASHES_MAX = 63
_TIME_BYTES = 8
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")


def read_size(text: str) -> int:
    """Reads the size of a tree, or an index in it: decimal, without leading zeros. Raises NoteError."""
    if not _NUMBER.fullmatch(text) or int(text) > SIZE_MAX:
        raise NoteError(f"expected a number of at most 2^63 - 1 without leading zeros, not {shown(text)}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A log's tree: the log's name, which is that of its key, the number of its leaves, and its root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text of its note."""
        return f"{self.origin}\n{self.size}\n{encode_base64(self.root)}\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Reads the text of a note. Raises NoteError, also where it has extension lines."""
        lines = text.split("\n")
        if len(lines) != 4 or not is_key_name(lines[0]) or lines[3]:
            raise NoteError("expected a checkpoint: three lines with the log's name, size and root")
        root = decode_base64(lines[2])
        if len(root) != HASH_BYTES:
            raise NoteError(f"expected a root of {HASH_BYTES} bytes, not {len(root)}")
        return cls(lines[0], read_size(lines[1]), root)

    @classmethod
    def read(cls, data: bytes) -> "Checkpoint":
        """Reads a signed note; who has signed it is not looked at. Raises NoteError."""
        return cls.parse(Note.parse(data).text)


def _cosigned(text: str, at_unix_s: int) -> bytes:
    return f"cosignature/v1\ntime {at_unix_s}\n{text}".encode()


def cosign(note: Note, key: SigningKey, at_unix_s: int) -> Signature:
    """Returns a witness's signature, with its time, on a checkpoint."""
    if key.verifier.kind != KIND_COSIGNATURE:
        raise NoteError(f"{key.verifier.name} is a key for notes: it makes no cosignatures")
    signed = ed25519.sign(key.seed, _cosigned(note.text, at_unix_s))
    return Signature(key.verifier.name, key.verifier.key_id, at_unix_s.to_bytes(_TIME_BYTES, "big") + signed)


def cosignatures(note: Note, witnesses: Iterable[VerifierKey]) -> dict[VerifierKey, int]:
    """Returns which of these witnesses have cosigned a checkpoint, each with its newest time in seconds since
    1970. Each public key counts once.

    Raises BadSignature where a cosignature of one of them fails.
    """
    found: dict[bytes, tuple[VerifierKey, int]] = {}
    for key in witnesses:
        if key.kind != KIND_COSIGNATURE:
            continue
        for signature in note.signatures:
            if not signature.is_of(key):
                continue
            at_unix_s = int.from_bytes(signature.body[:_TIME_BYTES], "big")
            signed = signature.body[_TIME_BYTES:]
            if at_unix_s > SIZE_MAX or not ed25519.is_signed(
                key.public, _cosigned(note.text, at_unix_s), signed
            ):
                raise BadSignature(f"the cosignature of {key.name} is not one of this checkpoint")
            if key.public not in found or found[key.public][1] < at_unix_s:
                found[key.public] = key, at_unix_s
    return dict(found.values())


@dataclass(frozen=True, slots=True)
class LogProof:
    """That the tree of a checkpoint has an entry at an index, from 0. `extra` is the entry, or says what
    it is: nothing vouches for it but the proof."""

    extra: bytes
    index: int
    path: tuple[bytes, ...]
    checkpoint: Note

    def shows(self, entry: bytes, tree: Checkpoint) -> bool:
        """Returns whether it proves that a tree, mostly that of its own checkpoint, has this entry."""
        return includes(self.index, tree.size, leaf_hash(entry), self.path, tree.root)

    @property
    def data(self) -> bytes:
        """The bytes of a .tlog-proof file."""
        extra = f"extra {encode_base64(self.extra)}\n" if self.extra else ""
        head = f"{PROOF_HEADER}\n{extra}index {self.index}\n{_hash_lines(self.path)}\n"
        return head.encode() + self.checkpoint.data

    @classmethod
    def parse(cls, data: bytes) -> "LogProof":
        """Reads a .tlog-proof file. Raises NoteError."""
        lines, checkpoint = _head_and_checkpoint(data, "a log proof")
        if lines[0] != PROOF_HEADER:
            raise NoteError(f"expected {PROOF_HEADER!r} as the first line of a log proof")
        extra = b""
        rest = lines[1:]
        if rest and rest[0].startswith("extra "):
            extra = decode_base64(rest.pop(0).removeprefix("extra "))
            if not extra:
                raise NoteError("expected no line 'extra' without data in a log proof")
        if not rest or not rest[0].startswith("index "):
            raise NoteError("expected a line 'index N' in a log proof")
        return cls(extra, read_size(rest[0].removeprefix("index ")), _read_path(rest[1:]), checkpoint)


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """That the tree of a checkpoint extends the tree of `old_size`: what a witness is asked with."""

    old_size: int
    path: tuple[bytes, ...]
    checkpoint: Note

    @property
    def data(self) -> bytes:
        """The body of the request."""
        return f"old {self.old_size}\n{_hash_lines(self.path)}\n".encode() + self.checkpoint.data

    @classmethod
    def parse(cls, data: bytes) -> "AddCheckpoint":
        """Reads the body of a request. Raises NoteError."""
        lines, checkpoint = _head_and_checkpoint(data, "an add-checkpoint body")
        if not lines[0].startswith("old "):
            raise NoteError("expected a line 'old N' at the beginning of an add-checkpoint body")
        return cls(read_size(lines[0].removeprefix("old ")), _read_path(lines[1:]), checkpoint)


def _hash_lines(path: Sequence[bytes]) -> str:
    return "".join(f"{encode_base64(each)}\n" for each in path)


def _read_path(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > PATH_HASHES_MAX:
        raise NoteError(f"expected at most {PATH_HASHES_MAX} hashes in a proof, not {len(lines)}")
    path = tuple(map(decode_base64, lines))
    if any(len(each) != HASH_BYTES for each in path):
        raise NoteError(f"expected hashes of {HASH_BYTES} bytes in a proof")
    return path


def _head_and_checkpoint(data: bytes, what: str) -> tuple[list[str], Note]:
    """Splits at the first empty line. What follows it is a checkpoint, verbatim."""
    head, separator, rest = data.partition(b"\n\n")
    if not separator:
        raise NoteError(f"expected {what}: some lines, an empty line, and a checkpoint")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise NoteError(f"expected {what}, which is ASCII text before its checkpoint") from None
    return lines, Note.parse(rest)
