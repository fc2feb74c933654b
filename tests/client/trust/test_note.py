"""Signed notes: the specification's example, and what is refused."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.note import (
    BadSignature,
    Note,
    NoteError,
    SigningKey,
    VerifierKey,
    sign,
    verify,
)

SPEC_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SPEC_NOTE = (
    "This is an example message.\n\n\N{EM DASH} example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()


def test_the_example_of_the_specification() -> None:
    key, note = VerifierKey.parse(SPEC_KEY), Note.parse(SPEC_NOTE)
    assert str(key) == SPEC_KEY
    assert verify(note, [key]) == (key,)
    assert note.data == SPEC_NOTE


def test_the_text_ends_at_the_last_empty_line() -> None:
    key = SigningKey.from_seed("a/b", bytes(range(32)))
    note = sign("one\n\ntwo\n", [key])
    assert Note.parse(note.data) == note
    assert verify(Note.parse(note.data), [key.verifier]) == (key.verifier,)


def test_a_known_key_that_fails_rejects_the_note_and_unknown_ones_mean_nothing() -> None:
    one, two = (SigningKey.from_seed(name, bytes([seed]) * 32) for name, seed in (("a", 1), ("b", 2)))
    note = Note("text\n", (*sign("text\n", [one]).signatures, *sign("other\n", [two]).signatures))
    assert verify(note, [one.verifier]) == (one.verifier,)
    with pytest.raises(BadSignature):
        verify(note, [one.verifier, two.verifier])


def test_a_public_key_counts_once() -> None:
    one, again = (SigningKey.from_seed(name, bytes(32)) for name in ("a", "b"))
    note = sign("text\n", [one, again])
    assert verify(note, [one.verifier, again.verifier]) == (one.verifier,)


@pytest.mark.parametrize("data", [b"", b"text\n", b"a\n\n", b"a\tb\n\n\xe2\x80\x94 a AAAAAAA=\n"])
def test_what_is_no_note_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        Note.parse(data)
