"""Whatever comes in, a parser gives a value or a NoteError; and each value has one form.

So two programs that hash, sign or compare what they have read have read the same bytes.
"""

from collections.abc import Callable
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof
from kcast.client.trust.forms.note import SIGNATURES_MAX, Note, NoteError, VerifierKey
from kcast.client.trust.forms.record import read_record
from tests.support import trust_vectors

MUTANTS = 2_000
MESSAGE_CHARS_MAX = 1_000  # 80 characters are quoted, each with up to ten
TOKENS = (
    *(b"\n", b"\n\n", b" ", b"\t", b"\r", b"\0", b"=", b"+", b"A", b"0", b"-1", b"99999999999999999999"),
    *(
        "\N{EM DASH} ".encode(),
        "\N{LINE SEPARATOR}".encode(),
        "\N{NO-BREAK SPACE}".encode(),
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(
        b"of",
        b"none",
        b"all",
        b"quorum q\n",
        b"old 0\n",
        b"index 0\n",
        b"extra AAAA\n",
        b"# a\n",
        b"\xef\xbb\xbf",
    ),
)


def forms_of_note(data: bytes) -> tuple[bytes, bytes]:
    """What is written again, and what should be: the lines after the sixteenth signature are not read."""
    note = Note.parse(data)
    if len(note.signatures) < SIGNATURES_MAX:
        return note.data, data
    return note.data, data[: len(note.data)]


def forms_of_proof(data: bytes) -> tuple[bytes, bytes]:
    written = LogProof.parse(data).data
    return written, data[: len(written)] if data.count(b"\n\xe2\x80\x94") > SIGNATURES_MAX else data


def forms_of_add_checkpoint(data: bytes) -> tuple[bytes, bytes]:
    written = AddCheckpoint.parse(data).data
    return written, data[: len(written)] if data.count(b"\n\xe2\x80\x94") > SIGNATURES_MAX else data


def forms_of_document(data: bytes) -> tuple[bytes, bytes]:
    """A policy may have comments and spaces (C2SP tlog-policy); what comes before it has one form."""
    document, note = documents.parse(data)
    assert documents.parse_text(document.text) == document
    return before_policy(document.text), before_policy(note.text)


def before_policy(text: str) -> bytes:
    return text.partition("\npolicy\n")[0].encode()


def forms_of_text(parse: Callable[[str], object]) -> Callable[[bytes], tuple[bytes, bytes]]:
    def forms(data: bytes) -> tuple[bytes, bytes]:
        text = data.decode("utf-8", "surrogateescape")
        return str(parse(text)).encode(), data

    return forms


FORMS: dict[str, tuple[str, Callable[[bytes], tuple[bytes, bytes]]]] = {
    "note": (trust_vectors.LIST, forms_of_note),
    "document": (trust_vectors.DOCUMENT, forms_of_document),
    "proof": (trust_vectors.PROOF, forms_of_proof),
    "add-checkpoint": (trust_vectors.ADDED[41], forms_of_add_checkpoint),
    "record": (trust_vectors.ENTRIES[0], lambda data: (read_record(data).data, data)),
    "checkpoint": (trust_vectors.CHECKPOINT_TEXT, forms_of_text(lambda text: Checkpoint.parse(text).text)),
    "vkey": (trust_vectors.LOG.vkey, forms_of_text(VerifierKey.parse)),
}


def mutant_of(data: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at, to = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        match rng.randrange(6):
            case 0:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
            case 2:
                data = data[:at] + rng.choice(TOKENS) + data[at + 1 :]
            case 3:
                data = data[:at] + data[min(to, at + 80) :]
            case 4:
                data = data[:to] + data[at:to] + data[to:]
            case 5:
                lines = data.split(b"\n")
                first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[first], lines[second] = lines[second], lines[first]
                data = b"\n".join(lines)
    return data


@pytest.mark.parametrize("kind", FORMS)
def test_mutants(kind: str) -> None:
    sound, forms = FORMS[kind]
    written, expected = forms(sound.encode())
    assert written == expected
    rng, taken = Random(kind), 0
    for _ in range(MUTANTS):
        data = mutant_of(sound.encode(), rng)
        try:
            written, expected = forms(data)
        except NoteError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < MESSAGE_CHARS_MAX
        else:
            taken += 1
            assert written == expected, data
    assert kind == "vkey" or taken, "no mutant was taken, so nothing was learnt of their forms"


@pytest.mark.parametrize("kind", FORMS)
def test_random_bytes(kind: str) -> None:
    _, forms = FORMS[kind]
    rng = Random(kind)
    for size in (0, 1, 2, 3, 10, 100, 1_000):
        for _ in range(50):
            with pytest.raises(NoteError):
                forms(rng.randbytes(size))


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("token", [*TOKENS, b"a\n\n", "\N{EM DASH} a AAAAAAA=\n".encode(), b"A+", b"a b\n"])
def test_much_of_the_same(kind: str, token: bytes) -> None:
    """64 KiB, the most that is read of most files: no form takes more than a pass or two."""
    sound, forms = FORMS[kind]
    for data in (b"", sound.encode()):
        many = token * ((1 << 16) // len(token))
        for each in (data + many, many + data):
            try:
                written, expected = forms(each)
            except NoteError as error:
                assert len(str(error)) < MESSAGE_CHARS_MAX
            else:
                assert written == expected
