"""Ed25519 (RFC 8032), by PyNaCl alone, so that no two clients differ on a signature.

PyNaCl (libsodium) refuses public keys of small order, for which a signature of any message can be made up,
and signatures whose scalar is not reduced, which would be second forms of sound ones. OpenSSL takes the
former.
"""

from kcast.client.trust.extras import MissingExtra

try:
    from nacl import bindings, exceptions
except ImportError:
    raise MissingExtra("a signed list") from None

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64


def public_key(seed: bytes) -> bytes:
    """Returns the public key, 32 bytes, of a secret seed of 32 bytes."""
    return bindings.crypto_sign_seed_keypair(seed)[0]


def sign(seed: bytes, message: bytes) -> bytes:
    """Returns the signature of a message, 64 bytes."""
    _, secret = bindings.crypto_sign_seed_keypair(seed)
    return bindings.crypto_sign(message, secret)[:SIGNATURE_BYTES]


def is_signed(public: bytes, message: bytes, signature: bytes) -> bool:
    """Returns whether this is a signature of the message by the key.

    False also for a key of small order, and where key or signature has another length than it should.
    """
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + message, public)
    except exceptions.BadSignatureError:
        return False
    return True
