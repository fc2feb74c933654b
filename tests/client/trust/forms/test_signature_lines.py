"""What is read of signatures: sixteen lines, and nothing behind. Mutants: `tests/fuzz/signed_forms.py`."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import SIGNATURES_MAX, NoteError
from tests.fuzz.signed_forms import FORMS

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
