"""client/trust/forms/ed25519.py: what is a signature, and what only some libraries take for one."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms import ed25519

ORDER = 2**252 + 27742317777372353535851937790883648493
P = 2**255 - 19
# All points whose order divides 8, and all other ways to write them: y not reduced, or the sign of x = 0.
SMALL_Y = (
    *(0, 1, P - 1, P, P + 1),
    int.from_bytes(
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
    ),
    int.from_bytes(
        bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"
    ),
)
SMALL = tuple((y | sign << 255).to_bytes(32, "little") for y in SMALL_Y for sign in (0, 1))


def test_the_example_of_the_rfc() -> None:
    """RFC 8032 7.1, test 2."""
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert ed25519.public_key(seed) == public
    assert ed25519.sign(seed, b"\x72") == signature
    assert ed25519.is_signed(public, b"\x72", signature)
    assert not ed25519.is_signed(public, b"\x73", signature)


@pytest.mark.parametrize("public", SMALL, ids=bytes.hex)
def test_keys_of_small_order_sign_nothing(public: bytes) -> None:
    """With such a key A and S = 0, one of the small points R satisfies S B = R + h A for any message."""
    assert not any(ed25519.is_signed(public, b"anything", point + bytes(32)) for point in SMALL)


def test_a_signature_has_one_form() -> None:
    """S and S + L satisfy the same equation."""
    seed = bytes(range(32))
    signature = ed25519.sign(seed, b"text")
    s = int.from_bytes(signature[32:], "little")
    for times in range(1, 15):
        other = signature[:32] + (s + times * ORDER).to_bytes(32, "little")
        assert not ed25519.is_signed(ed25519.public_key(seed), b"text", other)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_other_lengths_are_no_signatures(length: int) -> None:
    seed = bytes(range(32))
    public, signature = ed25519.public_key(seed), ed25519.sign(seed, b"text")
    assert ed25519.is_signed(public, b"text", signature)
    assert not ed25519.is_signed((public + public)[:length], b"text", signature)
    assert not ed25519.is_signed(public, b"text", signature[:length] if length < 64 else signature + b"\0")


def test_every_flipped_bit_is_noticed() -> None:
    seed = bytes(range(32))
    public, signature = ed25519.public_key(seed), ed25519.sign(seed, b"text")
    for bit in range(512):
        flipped = bytearray(signature)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not ed25519.is_signed(public, b"text", bytes(flipped))
