"""client/sealed/signing.py: what is a signed line, and what is none.

`test_guard_vectors.py` changes every byte of one.
"""

import re
import subprocess
from base64 import urlsafe_b64decode
from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("nacl")

from kcast.client.messages import base64url
from kcast.client.sealed.signing import (
    SIGNATURE_CHARS,
    MessageSignature,
    Signer,
    is_signed,
    parse_key,
    parse_signature,
)
from kcast.client.trust.forms import ed25519
from tests.client.trust.forms.test_ed25519 import ORDER, SMALL

SEED = bytes(range(32))
SIGNER = Signer(SEED)
LINE = b"weather/oslo %@AbCdEfGhIjK.7;t=1790000000000 rain, 4 degrees\n"
SIGNED_LINE = re.compile(rb"([^ ]+ [^ ]+?);g=([^ ;]*)( [^\n]*\n)")


def claim_of(line: bytes) -> MessageSignature:
    """The signature that a signed line has."""
    found = SIGNED_LINE.fullmatch(line)
    claimed = found and parse_signature(found[2].decode())
    assert claimed
    return claimed


def test_a_signed_line_byte_for_byte() -> None:
    signature = ed25519.sign(SEED, b"kcast-sign 1\n" + LINE)
    text = base64url.encode(ed25519.public_key(SEED) + signature)
    assert len(text) == 128
    expected = LINE.replace(b" rain", b";g=%b rain" % text.encode(), 1)
    assert SIGNER.sign(LINE) == expected
    assert len(expected) == len(LINE) + SIGNATURE_CHARS
    assert parse_signature(text) == MessageSignature(SIGNER.key, signature)


def test_the_signature_stands_last_among_the_attributes_also_without_others_and_without_payload() -> None:
    for line in (b"t %@P.1 \n", b"t %@P.1;t=5;x=y \n", b"t %@P.1;t=5 a ;g=b c\n"):
        signed = SIGNER.sign(line)
        assert is_signed(claim_of(signed), line)
        assert signed.split(b" ")[1].split(b";")[-1].startswith(b"g=")
        assert SIGNED_LINE.sub(rb"\1\3", signed) == line


def test_what_is_no_signature_of_a_line() -> None:
    """One has one form, though S and S + L satisfy the same equation; keys of small order sign nothing; and
    each kind of text that a key signs begins otherwise."""
    claimed = claim_of(SIGNER.sign(LINE))
    assert is_signed(claimed, LINE)
    assert not is_signed(claimed._replace(key=Signer(bytes(32)).key), LINE)
    s = int.from_bytes(claimed.signature[32:], "little")
    for times in range(1, 15):
        other = claimed.signature[:32] + (s + times * ORDER).to_bytes(32, "little")
        assert not is_signed(claimed._replace(signature=other), LINE)
    for key in SMALL:
        for point in SMALL:
            assert not is_signed(MessageSignature(key, point + bytes(32)), LINE)
    for prefix in (b"", b"kcast-sign 2\n", b"kcast-seal-sign 1\n", b"kcast-member 1\n"):
        assert not is_signed(MessageSignature(SIGNER.key, SIGNER.sign_bytes(prefix + LINE)), LINE)


@pytest.mark.parametrize(
    "text",
    [
        *("", "A" * 127, "A" * 129, "A" * 132, "A" * 127 + "=", "A" * 127 + "+", "A" * 127 + "/"),
        *("A" * 127 + "é", "A" * 127 + "\n", "A" * 128 + ".", "A" * 150 + ".2.1", "." * 1000),
    ],
)
def test_what_is_malformed(text: str) -> None:
    assert parse_signature(text) is None


def test_keys_as_text() -> None:
    assert parse_key(SIGNER.key_text) == SIGNER.key
    assert urlsafe_b64decode(SIGNER.key_text + "=") == SIGNER.key
    wrong = ("", "A" * 42, "A" * 44, "A" * 42 + "B", "A" * 42 + "=", "A" * 42 + "é", SIGNER.key_text + "\n")
    assert not any(map(parse_key, wrong))


@pytest.mark.world
@pytest.mark.skipif(which("openssl") is None, reason="there is no openssl here")
def test_openssl_verifies_our_signature(tmp_path: Path) -> None:
    """`openssl pkeyutl -verify -rawin`, with the key in DER as RFC 8410 has it."""
    claimed = claim_of(SIGNER.sign(LINE))
    (tmp_path / "key.der").write_bytes(bytes.fromhex("302a300506032b6570032100") + claimed.key)
    (tmp_path / "signature").write_bytes(claimed.signature)
    text = b"kcast-sign 1\n" + LINE
    for name, data, code in (("text", text, 0), ("other", text + b"x", 1)):
        (tmp_path / name).write_bytes(data)
        command = f"openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey key.der -in {name}"
        done = subprocess.run(
            f"{command} -sigfile signature", shell=True, cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == code, (done.stdout, done.stderr)
