"""client/sealed/signing.py: what is a signed line, alone and in a batch, and everything that is none."""

import re
import subprocess
from base64 import urlsafe_b64decode
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("nacl")

from kcast.client.messages import base64url
from kcast.client.sealed import signing
from kcast.client.sealed.merkle_batches import leaf_of, tree_of
from kcast.client.sealed.signing import (
    SIGNATURE_CHARS,
    MessageSignature,
    Signer,
    Verifier,
    key_text,
    parse_key,
    parse_signature,
)
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.client.trust.forms import ed25519
from tests.client.trust.forms.test_ed25519 import ORDER, SMALL

SEED = bytes(range(32))
SIGNER = Signer(SEED)
LINE = b"weather/oslo %@AbCdEfGhIjK.7;t=1790000000000 rain, 4 degrees\n"
LINES = [b"weather/oslo %%@AbCdEfGhIjK.%d;t=1790000000000 rain\n" % number for number in range(1, 40)]
SIGNED_LINE = re.compile(rb"([^ ]+ [^ ]+?);g=([^ ;]*)( [^\n]*\n)")


def taken(line: bytes, verifier: Verifier | None = None) -> bool:
    """Whether a receiver believes a line: it has a signature in its one form, of what is left without it."""
    found = SIGNED_LINE.fullmatch(line)
    claimed = found and parse_signature(found[2].decode("latin-1"))
    if not found or not claimed:
        return False
    return (verifier or Verifier()).is_signed(claimed, found[1] + found[3])


def claim_of(line: bytes) -> MessageSignature:
    """The signature that a signed line has."""
    found = SIGNED_LINE.fullmatch(line)
    claimed = found and parse_signature(found[2].decode())
    assert claimed
    return claimed


def batch_of(count: int) -> list[bytes]:
    """The lines of one batch, signed."""
    return SIGNER.sign_many(LINES[:count], LINE_BYTES_MAX)


# --- What is signed ----------------------------------------------------------------------------------


def test_a_line_signed_alone_byte_for_byte() -> None:
    signature = ed25519.sign(SEED, b"kcast-sign 1\n" + LINE)
    text = base64url.encode(ed25519.public_key(SEED) + signature)
    assert len(text) == 128
    expected = LINE.replace(b" rain", b";g=%b rain" % text.encode(), 1)
    assert SIGNER.sign(LINE) == expected
    assert len(expected) == len(LINE) + SIGNATURE_CHARS
    assert taken(expected)
    assert parse_signature(text) == MessageSignature(SIGNER.key, signature)


def test_a_batch_byte_for_byte() -> None:
    root, paths = tree_of([leaf_of(line) for line in LINES[:3]])
    signature = ed25519.sign(SEED, b"kcast-batch 1\n3\n" + root)
    for index, line in enumerate(batch_of(3)):
        text = base64url.encode(SIGNER.key + signature + paths[index])
        assert line == LINES[index].replace(b" rain", b";g=%b.3.%d rain" % (text.encode(), index))
        assert claim_of(line) == MessageSignature(SIGNER.key, signature, paths[index], (3, index))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 18, 33])
def test_each_line_of_a_batch_is_verifiable_alone(count: int) -> None:
    signed = batch_of(count)
    assert all(taken(line) for line in signed)
    verifier = Verifier()
    assert all(taken(line, verifier) for line in reversed(signed))
    places = [claim_of(line).place for line in signed]
    full, left = divmod(count, 16)
    expected = [(16, index) for _ in range(full) for index in range(16)]
    assert places == [*expected, *([None] if left == 1 else [(left, index) for index in range(left)])]


def test_a_batch_of_one_is_signed_alone() -> None:
    assert batch_of(1) == [SIGNER.sign(LINES[0])]
    assert batch_of(0) == []


def test_the_signature_stands_last_among_the_attributes_also_without_others_and_without_payload() -> None:
    for line in (b"t %@P.1 \n", b"t %@P.1;t=5;x=y \n", b"t %@P.1;t=5 a ;g=b c\n"):
        signed = SIGNER.sign(line)
        assert taken(signed)
        head = signed.split(b" ")[1]
        assert head.split(b";")[-1].startswith(b"g=")
        assert SIGNED_LINE.sub(rb"\1\3", signed) == line


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16])
def test_a_line_that_does_not_fit_with_its_path_is_signed_alone(count: int) -> None:
    """The others of its batch stay together, whatever the limit is."""
    lines = [*LINES[: count - 1], LINES[count - 1][:-1] + b"x" * 500 + b"\n"]
    for most in range(len(lines[-1]) + SIGNATURE_CHARS, len(lines[-1]) + SIGNATURE_CHARS + 110, 3):
        signed = SIGNER.sign_many(lines, most)
        assert all(taken(line) and len(line) <= most for line in signed)
        long_alone = claim_of(signed[-1]).place is None
        assert long_alone == (len(lines[-1]) + signing._batch_chars(count) > most)
        rest = count - 1 if long_alone else count
        assert [claim_of(line).place for line in signed[:-1]] == (
            [None] if rest == 1 else [(rest, index) for index in range(count - 1)]
        )


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 1200), max_size=40),
    st.integers(SIGNATURE_CHARS + 20, 1400),
)
def test_lines_of_any_length_are_signed_in_their_order(lengths: list[int], most: int) -> None:
    lines = [b"t %%@P.%d %b\n" % (at, b"x" * length) for at, length in enumerate(lengths, 1)]
    signed = SIGNER.sign_many(lines, most)
    assert [SIGNED_LINE.sub(rb"\1\3", line) for line in signed] == lines
    assert all(len(line) <= most or claim_of(line).place is None for line in signed)
    verifier = Verifier()
    assert all(taken(line, verifier) for line in signed)


# --- What is no signature ----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("line", [SIGNER.sign(LINE), batch_of(5)[1], batch_of(5)[4]])
def test_a_line_of_which_one_byte_was_changed_is_refused(line: bytes) -> None:
    verifier = Verifier()
    assert taken(line, verifier)
    for at, byte in enumerate(line):
        for other in {byte ^ 1 << bit for bit in range(8)} | set(b" ;=.A0\n"):
            if other != byte:
                changed = line[:at] + bytes([other]) + line[at + 1 :]
                assert not taken(changed, verifier), (at, other)
    assert taken(line, verifier)


@pytest.mark.parametrize("line", [SIGNER.sign(LINE), batch_of(5)[1]])
def test_a_line_with_a_byte_more_or_less_is_refused(line: bytes) -> None:
    verifier = Verifier()
    for at in range(len(line)):
        assert not taken(line[:at] + line[at + 1 :], verifier)
        assert not taken(line[:at] + line[at : at + 1] + line[at:], verifier)


def test_a_path_of_another_batch_is_refused() -> None:
    ours = batch_of(5)
    theirs = SIGNER.sign_many(LINES[5:10], LINE_BYTES_MAX)
    verifier = Verifier()
    for one, other, unsigned in zip(ours, theirs, LINES, strict=False):
        mine, foreign = claim_of(one), claim_of(other)
        assert verifier.is_signed(mine, unsigned)
        assert not verifier.is_signed(mine._replace(path=foreign.path), unsigned)
        assert not verifier.is_signed(mine._replace(signature=foreign.signature), unsigned)
        assert not verifier.is_signed(foreign, unsigned)
        assert not verifier.is_signed(MessageSignature(mine.key, mine.signature), unsigned)


@pytest.mark.parametrize(
    "place", [(0, 0), (0, 1), (1, 0), (17, 0), (17, 1), (5, 5), (5, 99), (99, 1), (4, 1), (6, 1), (5, 2)]
)
def test_a_place_that_is_not_its_own_is_refused(place: tuple[int, int]) -> None:
    claimed = claim_of(batch_of(5)[1])
    assert claimed.place == (5, 1)
    text = base64url.encode(claimed.key + claimed.signature + claimed.path)
    read = parse_signature(f"{text}.{place[0]}.{place[1]}")
    assert read is not None, "its form is right, so the message is not malformed"
    assert not Verifier().is_signed(read, LINES[1])


@pytest.mark.parametrize("count", [0, 1, 17, 18, 32])
def test_a_batch_of_a_size_that_there_is_not_is_refused_though_its_key_has_signed_it(count: int) -> None:
    lines = LINES[: max(count, 1)]
    root, paths = tree_of([leaf_of(line) for line in lines])
    signature = SIGNER.sign_bytes(b"kcast-batch 1\n%d\n%b" % (count, root))
    for index in range(len(lines)):
        claimed = MessageSignature(SIGNER.key, signature, paths[index], (count, index))
        assert not Verifier().is_signed(claimed, lines[index])


def test_a_message_signed_alone_that_claims_to_be_a_batch_is_refused() -> None:
    claimed = claim_of(SIGNER.sign(LINE))
    text = base64url.encode(claimed.key + claimed.signature)
    for place in ("0.0", "1.0", "0.1", "2.0"):
        read = parse_signature(f"{text}.{place}")
        assert read is not None and read.place is not None
        assert not Verifier().is_signed(read, LINE)


@pytest.mark.parametrize("key", SMALL, ids=bytes.hex)
def test_keys_of_small_order_sign_nothing(key: bytes) -> None:
    """Also in other encodings; there such a signature would be one of any message."""
    verifier = Verifier()
    for point in SMALL:
        assert not verifier.is_signed(MessageSignature(key, point + bytes(32)), LINE)
        for place in ((2, 0), (2, 1)):
            claimed = MessageSignature(key, point + bytes(32), bytes(16), place)
            assert not verifier.is_signed(claimed, LINE)


@pytest.mark.parametrize("line", [SIGNER.sign(LINES[1]), batch_of(5)[1]])
def test_a_signature_has_one_form(line: bytes) -> None:
    """S and S + L satisfy the same equation."""
    claimed = claim_of(line)
    verifier = Verifier()
    assert verifier.is_signed(claimed, LINES[1])
    s = int.from_bytes(claimed.signature[32:], "little")
    for times in range(1, 15):
        other = claimed.signature[:32] + (s + times * ORDER).to_bytes(32, "little")
        assert not verifier.is_signed(claimed._replace(signature=other), LINES[1])


def test_signatures_for_other_ends_are_none() -> None:
    """Each kind of text that a key signs begins otherwise."""
    for prefix in (b"", b"kcast-sign 2\n", b"kcast-batch 1\n", b"kcast-seal-sign 1\n", b"kcast-member 1\n"):
        claimed = MessageSignature(SIGNER.key, SIGNER.sign_bytes(prefix + LINE))
        assert not Verifier().is_signed(claimed, LINE)


def test_another_key_is_refused() -> None:
    other = Signer(bytes(32))
    for line in (SIGNER.sign(LINES[1]), batch_of(5)[1]):
        assert not Verifier().is_signed(claim_of(line)._replace(key=other.key), LINES[1])


# --- The memory of batches ---------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The signatures that the library was asked to verify."""
    asked = []
    verify = ed25519.is_signed

    def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
        asked.append(signature)
        return verify(key, message, signature)

    monkeypatch.setattr(ed25519, "is_signed", is_signed)
    return asked


def test_a_batch_is_verified_once(calls: list[bytes]) -> None:
    verifier = Verifier()
    assert all(taken(line, verifier) for line in batch_of(16) * 2)
    assert len(calls) == 1
    assert not verifier.is_signed(claim_of(batch_of(16)[0])._replace(key=bytes(32)), LINES[0])
    assert len(calls) == 2, "the memory is of this key alone"


# --- Forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 127,
        "A" * 129,
        "A" * 132,
        "A" * 127 + "=",
        "A" * 127 + "+",
        "A" * 127 + "/",
        "A" * 127 + "é",
        "A" * 127 + "\n",
        "A" * 150,  # a path without its place
        "A" * 128 + ".",
        "A" * 128 + ".2",
        "A" * 150 + ".2.",
        "A" * 150 + "..1",
        "A" * 150 + ".2.1.",
        "A" * 150 + ".2.1.0",
        "A" * 150 + ".02.1",
        "A" * 150 + ".2.00",
        "A" * 150 + ".2.100",
        "A" * 150 + ".2.+1",
        "A" * 150 + ".2. 1",
        "A" * 150 + ".2.1\n",
        "A" * 150 + ".٢.1",
        "A" * 149 + "B.2.1",  # unused bits
        "A" * 151 + ".2.1",
        "A" * 149 + ".2.1",
        "A" * 172 + ".2.1",  # 129 bytes
        "A" * 64 + ".2.1",
        "." * 1000,
    ],
)
def test_what_is_malformed(text: str) -> None:
    assert parse_signature(text) is None


@pytest.mark.parametrize("place", ["0.0", "2.1", "99.99", "17.3"])
@pytest.mark.parametrize("chars", [128, 150, 171, 192, 214, 235])
def test_what_is_not_malformed(chars: int, place: str) -> None:
    read = parse_signature("A" * chars + f".{place}")
    assert read is not None
    assert read.place == tuple(map(int, place.split(".")))
    assert not Verifier().is_signed(read, LINE)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet="AQgw-_09.=+", max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    claimed = parse_signature(text)
    assert claimed is None or not Verifier().is_signed(claimed, LINE)
    key = parse_key(text)
    assert key is None or key_text(key) == text


def test_keys_as_text() -> None:
    assert parse_key(SIGNER.key_text) == SIGNER.key
    assert len(SIGNER.key_text) == 43
    assert urlsafe_b64decode(SIGNER.key_text + "=") == SIGNER.key
    for text in (
        "",
        "A" * 42,
        "A" * 44,
        "A" * 42 + "B",
        "A" * 42 + "=",
        "A" * 42 + "é",
        SIGNER.key_text + "\n",
    ):
        assert parse_key(text) is None


# --- Other programs ----------------------------------------------------------------------------------


@pytest.mark.world
@pytest.mark.skipif(which("openssl") is None, reason="there is no openssl here")
@pytest.mark.parametrize("is_batched", [False, True])
def test_openssl_verifies_our_signature(is_batched: bool, tmp_path: Path) -> None:
    """`openssl pkeyutl -verify -rawin`, with the key in DER as RFC 8410 has it."""
    claimed = claim_of(batch_of(5)[1] if is_batched else SIGNER.sign(LINE))
    root = tree_of([leaf_of(line) for line in LINES[:5]])[0]
    text = b"kcast-batch 1\n5\n" + root if is_batched else b"kcast-sign 1\n" + LINE
    (tmp_path / "key.der").write_bytes(bytes.fromhex("302a300506032b6570032100") + claimed.key)
    (tmp_path / "signature").write_bytes(claimed.signature)
    for name, data, code in (("text", text, 0), ("other", text + b"x", 1)):
        (tmp_path / name).write_bytes(data)
        command = f"openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey key.der -in {name}"
        done = subprocess.run(
            f"{command} -sigfile signature", shell=True, cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == code, (done.stdout, done.stderr)
