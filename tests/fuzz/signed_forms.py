"""What is signed or hashed: any bytes give a value that has one form, or an error of one line. PROTOCOL §10.

So two programs that hash, sign or compare what they have read have read the same bytes.
"""

from collections.abc import Callable

from kcast.client.trust.forms import bundle
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.bundle import BundleError
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof
from kcast.client.trust.forms.note import SIGNATURES_MAX, Note, NoteError, VerifierKey
from kcast.client.trust.forms.record import read_record

MESSAGE_CHARS_MAX = 1_000  # 80 characters are quoted, each with up to ten

Forms = Callable[[bytes], tuple[bytes, bytes]]
"""Reads bytes; returns what is written again, and what should be."""


def check(data: bytes) -> None:
    """Takes a byte for the form, and the rest as something in it."""
    if data:
        forms = list(FORMS.values())[data[0] % len(FORMS)]
        try:
            written, expected = forms(data[1:])
        except (NoteError, BundleError) as error:
            assert str(error).isprintable() and len(str(error)) <= MESSAGE_CHARS_MAX, str(error)
        else:
            assert written == expected


def _of_note(data: bytes) -> tuple[bytes, bytes]:
    return Note.parse(data).data, _as_looked_at(data)


def _of_proof(data: bytes) -> tuple[bytes, bytes]:
    return LogProof.parse(data).data, _as_looked_at(data)


def _of_add_checkpoint(data: bytes) -> tuple[bytes, bytes]:
    return AddCheckpoint.parse(data).data, _as_looked_at(data)


def _as_looked_at(data: bytes) -> bytes:
    """A note, or what ends with one, without what follows its sixteenth signature: nobody reads that, and it
    may have any form."""
    text, empty_line, tail = data.rpartition(b"\n\n")
    return text + empty_line + b"".join(tail.splitlines(keepends=True)[:SIGNATURES_MAX])


def _of_document(data: bytes) -> tuple[bytes, bytes]:
    """A policy may have comments and spaces (C2SP tlog-policy); what comes before it has one form."""
    document, note = documents.parse(data)
    assert documents.parse_text(document.text) == document
    return _before_policy(document.text), _before_policy(note.text)


def _before_policy(text: str) -> bytes:
    return text.partition("\npolicy\n")[0].encode()


def _of_text(parse: Callable[[str], object]) -> Forms:
    def forms(data: bytes) -> tuple[bytes, bytes]:
        text = data.decode("utf-8", "surrogateescape")
        return str(parse(text)).encode(), data

    return forms


FORMS: dict[str, Forms] = {
    "note": _of_note,
    "document": _of_document,
    "proof": _of_proof,
    "add-checkpoint": _of_add_checkpoint,
    "record": lambda data: (read_record(data).data, data),
    "checkpoint": _of_text(lambda text: Checkpoint.parse(text).text),
    "vkey": _of_text(VerifierKey.parse),
    "bundle": lambda data: (bundle.format_bundle(bundle.parse(data)), data),
}
