"""client/sealed/dhkem.py, against RFC 9180 and RFC 5869."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kcast.client.sealed.dhkem import decapsulate, encapsulate, expand, extract, public_key
from tests.support.sealed_lines import SMALL_ORDER

# RFC 9180, A.1.1
EPHEMERAL = bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736")
ENC = bytes.fromhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431")
PRIVATE = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
PUBLIC = bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
SHARED = bytes.fromhex("fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc")


def test_the_example_of_hpke() -> None:
    assert public_key(PRIVATE) == PUBLIC
    assert encapsulate(EPHEMERAL, PUBLIC) == (SHARED, ENC)
    assert decapsulate(X25519PrivateKey.from_private_bytes(PRIVATE), PUBLIC, ENC) == SHARED


def test_the_example_of_hkdf() -> None:
    """RFC 5869, A.3."""
    secret = extract(b"\x0b" * 22)
    assert secret.hex() == "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04"
    assert expand(secret, b"").hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_points_of_small_order(point: bytes) -> None:
    assert decapsulate(X25519PrivateKey.from_private_bytes(PRIVATE), PUBLIC, point) is None
    with pytest.raises(ValueError):
        encapsulate(EPHEMERAL, point)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_other_lengths(size: int) -> None:
    assert decapsulate(X25519PrivateKey.from_private_bytes(PRIVATE), PUBLIC, bytes(size)) is None


def test_one_point_written_in_two_ways_gives_two_secrets() -> None:
    """X25519 passes over the highest bit; but `enc` as it is written is in the secret."""
    other = ENC[:-1] + bytes([ENC[-1] | 0x80])
    found = decapsulate(X25519PrivateKey.from_private_bytes(PRIVATE), PUBLIC, other)
    assert found is not None and found != SHARED
