"""Whatever comes in, a parser gives a value or a NoteError; and each value has one form.

So two programs that hash, sign or compare what they have read have read the same bytes.
"""

from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import SIGNATURES_MAX, NoteError
from tests.fuzz.signed_forms import FORMS, MESSAGE_CHARS_MAX
from tests.support import trust_vectors

MUTANTS = 2_000
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


SOUND = {
    "note": trust_vectors.LIST,
    "document": trust_vectors.DOCUMENT,
    "proof": trust_vectors.PROOF,
    "add-checkpoint": trust_vectors.ADDED[41],
    "record": trust_vectors.ENTRIES[0],
    "checkpoint": trust_vectors.CHECKPOINT_TEXT,
    "vkey": trust_vectors.LOG.vkey,
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


@pytest.mark.parametrize("kind", SOUND)
def test_mutants(kind: str) -> None:
    sound, forms = SOUND[kind], FORMS[kind]
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


@pytest.mark.parametrize("kind", SOUND)
def test_random_bytes(kind: str) -> None:
    forms = FORMS[kind]
    rng = Random(kind)
    for size in (0, 1, 2, 3, 10, 100, 1_000):
        for _ in range(50):
            with pytest.raises(NoteError):
                forms(rng.randbytes(size))


@pytest.mark.parametrize("kind", SOUND)
def test_much_of_the_same(kind: str) -> None:
    """64 KiB, the most that is read of most files: no form takes more than a pass or two."""
    for token in [*TOKENS, b"a\n\n", "\N{EM DASH} a AAAAAAA=\n".encode(), b"A+", b"a b\n"]:
        sound, forms = SOUND[kind], FORMS[kind]
        for data in (b"", sound.encode()):
            many = token * ((1 << 16) // len(token))
            for each in (data + many, many + data):
                try:
                    written, expected = forms(each)
                except NoteError as error:
                    assert len(str(error)) < MESSAGE_CHARS_MAX
                else:
                    assert written == expected


SIGNATURE_LINE = "\N{EM DASH} a AAAAAAA=\n"
NOTES = {  # up to their signatures; the mark of one stands in the text of the first
    "note": f"{SIGNATURE_LINE}\n",
    "proof": "c2sp.org/tlog-proof@v1\nindex 0\n\n\n\n",
    "add-checkpoint": "old 0\n\n\n\n",
}


@pytest.mark.parametrize("kind", NOTES)
@pytest.mark.parametrize("behind", ["!\n", SIGNATURE_LINE, "\N{EM DASH}\n", f"!\n{SIGNATURE_LINE}!\n"])
def test_what_follows_sixteen_signatures_is_not_read(kind: str, behind: str) -> None:
    read = (NOTES[kind] + SIGNATURE_LINE * SIGNATURES_MAX).encode()
    assert FORMS[kind](read) == (read, read)
    assert FORMS[kind](read + behind.encode()) == (read, read)
    with pytest.raises(NoteError):  # an empty line ends the text, and here no signature follows it
        FORMS[kind](read + b"\n!\n")


@pytest.mark.parametrize("kind", NOTES)
def test_a_line_that_is_read_is_a_signature(kind: str) -> None:
    with pytest.raises(NoteError, match="expected a signature line"):
        FORMS[kind]((NOTES[kind] + SIGNATURE_LINE * (SIGNATURES_MAX - 1) + "!\n").encode())
