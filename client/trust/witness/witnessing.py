"""What a witness answers, and when it cosigns. Sans-IO. PROTOCOL §10.6, C2SP tlog-witness.

A witness remembers one checkpoint of each log: the latest that it has cosigned. It cosigns the next one only
with a proof that the tree has only grown. So it never cosigns two histories of a log, whoever asks, and
whoever has the log's key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

from kcast.client.trust.forms import note as notes
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, cosign, cosignatures
from kcast.client.trust.forms.merkle import EMPTY_ROOT, extends
from kcast.client.trust.forms.note import Note, NoteError, SigningKey, VerifierKey

BODY_BYTES_MAX = 65_536  # 63 hashes and 16 signatures have 8 kB

SIZE_TYPE = "text/x.tlog.size"
TEXT_TYPE = "text/plain; charset=utf-8"


class Status(IntEnum):
    """The status codes of C2SP tlog-witness."""

    COSIGNED = 200
    MALFORMED = 400
    NOT_SIGNED = 403
    UNKNOWN = 404
    OTHER_SIZE = 409
    NOT_CONSISTENT = 422


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back. `cosigned` is the checkpoint to store first, durably, before it is sent."""

    status: Status
    body: str
    content_type: str = TEXT_TYPE
    cosigned: Note | None = None
    fork: Note | None = None  # the same log has signed this beside the checkpoint held


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a log of ours has signed."""

    checkpoint: Checkpoint
    added: AddCheckpoint
    signed: Note  # with the log's signatures only


def origin_hash(origin: str) -> str:
    """Returns how a log is named in URLs, and in the state folder."""
    return sha256(origin.encode()).hexdigest()


class WitnessCore:
    """Decides for one witness. `logs` are the keys of the logs that it serves; a log is its key's name, and
    may have several keys. The caller keeps the checkpoints, and asks for one log at a time."""

    def __init__(self, key: SigningKey, logs: Iterable[VerifierKey]) -> None:
        self._key = key
        self._logs: dict[str, list[VerifierKey]] = {}
        for log in logs:
            if log.kind != notes.KIND_ED25519:
                raise NoteError(f"{log.name} is a key for cosignatures: no log signs with it")
            self._logs.setdefault(log.name, []).append(log)

    @property
    def origins(self) -> tuple[str, ...]:
        """The logs, by name."""
        return tuple(self._logs)

    def read(self, body: bytes) -> Request | Answer:
        """Reads the body of an add-checkpoint request: what can be said of it without knowing the log's
        state."""
        try:
            added = AddCheckpoint.parse(body)
            checkpoint = Checkpoint.parse(added.checkpoint.text)
        except NoteError as error:
            return Answer(Status.MALFORMED, f"{error}\n")
        keys = self._logs.get(checkpoint.origin)
        if keys is None:
            return Answer(Status.UNKNOWN, "this witness does not serve that log\n")
        try:
            signers = notes.verify(added.checkpoint, keys)
        except notes.BadSignature as error:
            return Answer(Status.NOT_SIGNED, f"{error}\n")
        if not signers:
            return Answer(Status.NOT_SIGNED, "no signature of the log\n")
        if added.old_size > checkpoint.size:
            return Answer(Status.MALFORMED, "the old size is larger than the checkpoint's\n")
        signatures = tuple(
            each for each in added.checkpoint.signatures if any(each.is_of(key) for key in signers)
        )
        return Request(checkpoint, added, Note(added.checkpoint.text, signatures))

    def decide(self, request: Request, held: Checkpoint | None, now_unix_s: int) -> Answer:
        """Returns the answer, given the latest checkpoint of that log that this witness has cosigned."""
        new, old_size = request.checkpoint, request.added.old_size
        held_size, held_root = (held.size, held.root) if held else (0, EMPTY_ROOT)
        if old_size != held_size:
            is_fork = held is not None and new.size == held_size and new.root != held_root
            fork = request.signed if is_fork else None
            return Answer(Status.OTHER_SIZE, f"{held_size}\n", SIZE_TYPE, fork=fork)
        if new.size == held_size and new.root != held_root:
            fork = request.signed if held else None
            return Answer(Status.NOT_CONSISTENT, "another root of the same size\n", fork=fork)
        if not extends(old_size, new.size, request.added.path, held_root, new.root):
            return Answer(Status.NOT_CONSISTENT, "the proof does not lead from the old root to the new one\n")
        cosignature = cosign(request.signed, self._key, now_unix_s)
        cosigned = request.signed.with_signatures([cosignature])
        return Answer(Status.COSIGNED, f"{cosignature.line}\n", cosigned=cosigned)

    def held(self, origin: str, stored: bytes) -> Checkpoint:
        """Reads a checkpoint that was stored before. Raises NoteError if it is not one of this log that this
        witness has cosigned: then nobody knows what it has cosigned. The log may have another key by now."""
        note = Note.parse(stored)
        checkpoint = Checkpoint.parse(note.text)
        if checkpoint.origin != origin:
            raise NoteError(f"expected a checkpoint of {origin}, not {checkpoint.origin}")
        if not cosignatures(note, [self._key.verifier]):
            raise NoteError("expected a checkpoint cosigned by this witness")
        return checkpoint
