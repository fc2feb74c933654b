"""DHKEM(X25519, HKDF-SHA256) of RFC 9180 §4.1, and HKDF (RFC 5869). Sans-IO.

cryptography has HPKE as a whole only, which makes a new shared secret for each message.
"""

import hmac

from kcast.client.trust.extras import MissingExtra

try:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
except ImportError:
    raise MissingExtra("a sealed message") from None

KEY_BYTES = 32
_ANY_PRIVATE = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))
_SUITE = b"HPKE-v1KEM\x00\x20"  # version, and the number of this KEM


def public_key(private: bytes) -> bytes:
    """Returns the public key, 32 bytes, of a private one of X25519."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_weak(public: bytes) -> bool:
    """Returns whether what is sealed for a public key could be opened by anybody: it is of small order."""
    try:
        _ANY_PRIVATE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return True
    return False


def encapsulate(secret: bytes, public: bytes) -> tuple[bytes, bytes]:
    """Returns the shared secret, 32 bytes, and `enc`, from which who has the private key to `public` gets it.

    `secret` are 32 random bytes, which nothing else may be made of: the ephemeral private key. Raises
    ValueError for a public key of small order, with which everybody would know the shared secret.
    """
    ephemeral = X25519PrivateKey.from_private_bytes(secret)
    enc = ephemeral.public_key().public_bytes_raw()
    return _shared(ephemeral.exchange(X25519PublicKey.from_public_bytes(public)), enc, public), enc


def decapsulate(private: X25519PrivateKey, public: bytes, enc: bytes) -> bytes | None:
    """Returns the shared secret; None where `enc` is of small order, or has not 32 bytes.

    `public` belongs to `private`.
    """
    try:
        return _shared(private.exchange(X25519PublicKey.from_public_bytes(enc)), enc, public)
    except ValueError:  # cryptography raises it for 32 zeros, as RFC 7748 §6.1 has it
        return None


def _shared(dh: bytes, enc: bytes, public: bytes) -> bytes:
    """ExtractAndExpand of RFC 9180 §4.1."""
    secret = extract(_SUITE + b"eae_prk" + dh)
    return expand(secret, KEY_BYTES.to_bytes(2, "big") + _SUITE + b"shared_secret" + enc + public)


def derive(key_material: bytes, info: bytes) -> bytes:
    """Returns the first 32 bytes of HKDF without salt."""
    return expand(extract(key_material), info)


def extract(key_material: bytes) -> bytes:
    """Returns HKDF-Extract without salt."""
    return hmac.digest(b"", key_material, "sha256")


def expand(secret: bytes, info: bytes) -> bytes:
    """Returns the first 32 bytes of HKDF-Expand."""
    return hmac.digest(secret, info + b"\x01", "sha256")
