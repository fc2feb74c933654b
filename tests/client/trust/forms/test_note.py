"""Signed notes: the specification's example, and what is refused."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import (
    KIND_COSIGNATURE,
    BadSignature,
    Note,
    NoteError,
    Signature,
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
    note = sign("one\n\ntwo\n", [key := SigningKey.from_seed("a/b", bytes(range(32)))])
    assert verify(Note.parse(note.data), [key.verifier]) == (key.verifier,)


def test_a_public_key_counts_once() -> None:
    one, again = (SigningKey.from_seed(name, bytes(32)) for name in ("a", "b"))
    note = sign("text\n", [one, again])
    assert verify(note, [one.verifier, again.verifier]) == (one.verifier,)


@pytest.mark.parametrize("data", [b"", b"text\n", b"a\n\n", b"a\tb\n\n\xe2\x80\x94 a AAAAAAA=\n"])
def test_what_is_no_note_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        Note.parse(data)


def lines(*keys: SigningKey, text: str = "text\n") -> str:
    return "".join(f"{signature.line}\n" for signature in sign(text, keys).signatures)


STRANGERS = [SigningKey.from_seed(f"stranger-{i}", bytes([i + 100]) * 32) for i in range(16)]
ONE, TWO = (SigningKey.from_seed(name, bytes([seed]) * 32) for name, seed in (("one", 1), ("two", 2)))


def test_sixteen_signatures_are_looked_at() -> None:
    for strangers, found in ((15, (ONE.verifier,)), (16, ())):
        note = Note.parse(f"text\n\n{lines(*STRANGERS[:strangers], ONE)}".encode())
        assert len(note.signatures) == 16
        assert verify(note, [ONE.verifier]) == found
    behind = f"text\n\n{lines(*STRANGERS)}\N{EM DASH} two !\n"
    assert len(Note.parse(behind.encode()).signatures) == 16
    with pytest.raises(NoteError, match="expected base64"):
        Note.parse(f"text\n\n{lines(*STRANGERS[1:])}\N{EM DASH} two !\n".encode())


def test_name_and_key_id_together_make_a_key_known() -> None:
    """A stranger may share either, and means nothing; what shares both must verify."""
    other_text = sign("other\n", [ONE]).signatures[0]
    for name, key_id in (("one", TWO.verifier.key_id), ("two", ONE.verifier.key_id)):
        note = Note("text\n", (*sign("text\n", [TWO]).signatures, Signature(name, key_id, other_text.body)))
        assert verify(note, [ONE.verifier, TWO.verifier]) == (TWO.verifier,)
    with pytest.raises(BadSignature, match="the signature of one is not one of this text"):
        verify(Note("text\n", (other_text,)), [ONE.verifier])


def test_one_sound_signature_does_not_mend_another() -> None:
    sound, failing = sign("text\n", [ONE]).signatures[0], sign("other\n", [ONE]).signatures[0]
    for signatures in ((sound, failing), (failing, sound)):
        with pytest.raises(BadSignature):
            verify(Note("text\n", signatures), [ONE.verifier])
    assert verify(Note("text\n", (sound, sound)), [ONE.verifier]) == (ONE.verifier,)


def test_no_control_character_but_lf() -> None:
    for code in [*range(10), *range(11, 32)]:
        data = f"te{chr(code)}xt\n\n{lines(ONE)}".encode()
        with pytest.raises(NoteError, match="no control characters but LF"):
            Note.parse(data)
        with pytest.raises(NoteError):
            sign(f"te{chr(code)}xt\n", [ONE])


NO_LINES = (  # @ is the em dash, ~ a space that does not break
    *(" ", "@", "@ one", "@ one ", "@  one AAAAAAA=", "@ one AAAAAAA= ", " @ one AAAAAAA=", "@~one AAAAAAA="),
    *("- one AAAAAAA=", "\N{EN DASH} one AAAAAAA=", "@ on+e AAAAAAA=", "@ o~ne AAAAAAA=", "text"),
    *(
        "@ one AAAAAA==",
        "@ one AAAAAAB=",
        "@ one AAAAAAA",
        "@ one AAAA_AA=",
        "@ one =AAAAAAA",
        "@ one AAAAAAA=@",
    ),
)


@pytest.mark.parametrize("line", NO_LINES)
def test_what_is_no_signature_line(line: str) -> None:
    line = line.replace("@", "\N{EM DASH}").replace("~", "\N{NO-BREAK SPACE}")
    for first, second in ((lines(ONE), f"{line}\n"), (f"{line}\n", lines(ONE))):
        with pytest.raises(NoteError):
            Note.parse(f"text\n\n{first}{second}".encode())


def test_what_would_not_be_read_as_a_note_is_not_signed() -> None:
    for text in ("", "no end", "a tab\t\n"):
        with pytest.raises(NoteError, match="expected a text that ends with LF"):
            sign(text, [ONE])


def test_a_key_for_cosignatures_counts_under_no_note() -> None:
    """Not even where it has signed the note's text itself: its kind is to sign checkpoints with a time."""
    witness = SigningKey.from_seed("w.example.net", bytes(32), KIND_COSIGNATURE).verifier
    signed = sign("text\n", [SigningKey.from_seed("w.example.net", bytes(32))]).signatures[0]
    note = Note("text\n", (Signature(witness.name, witness.key_id, signed.body),))
    assert verify(note, [witness]) == ()
