"""Signed messages: who signs, and what is a signature. Sans-IO. PROTOCOL §9.6.

    TOPIC %@PUB.SEQ;t=MS;g=BASE64URL(KEY || SIGNATURE) PAYLOAD

Signed is the line without `;g=...`. All lines here end with LF.
"""

from base64 import urlsafe_b64encode
from typing import NamedTuple

from kcast.client.messages import base64url
from kcast.client.trust.extras import MissingExtra

try:
    from nacl import bindings
except ImportError:
    raise MissingExtra("a signed message") from None

from kcast.client.trust.forms import ed25519
from kcast.client.trust.forms.ed25519 import PUBLIC_BYTES, SEED_BYTES, SIGNATURE_BYTES

_SIGN = b"kcast-sign 1\n"
_CLAIM_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES

SIGNATURE_CHARS = len(";g=") + _CLAIM_BYTES * 4 // 3  # by which a line grows that is signed


class MessageSignature(NamedTuple):
    """What `g` claims: proven is nothing before `is_signed`."""

    key: bytes
    signature: bytes


def parse_signature(text: str) -> MessageSignature | None:
    """Reads the value of `g`; None where it is malformed, so that the whole message is."""
    data = base64url.decode(text)
    if data is None or len(data) != _CLAIM_BYTES:
        return None
    return MessageSignature(data[:PUBLIC_BYTES], data[PUBLIC_BYTES:])


def is_signed(claimed: MessageSignature, unsigned_line: bytes) -> bool:
    """Returns whether a signature is one of this line, which is as it was before it was signed."""
    return ed25519.is_signed(claimed.key, _SIGN + unsigned_line, claimed.signature)


def key_text(key: bytes) -> str:
    """Returns a public key as people pass it on: 43 base64url characters."""
    return base64url.encode(key)


def parse_key(text: str) -> bytes | None:
    """Reads the 43 characters of a public key; None where they are none, or not in their one form."""
    key = base64url.decode(text)
    return key if key is not None and len(key) == PUBLIC_BYTES else None


class Signer:
    """Signs with one key. The secret is in no text of it."""

    __slots__ = ("_secret", "key")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"expected a seed of {SEED_BYTES} bytes, not of {len(seed)}")
        self.key, self._secret = bindings.crypto_sign_seed_keypair(seed)

    @property
    def key_text(self) -> str:
        """The public key as text."""
        return key_text(self.key)

    def sign_bytes(self, data: bytes) -> bytes:
        """Returns the signature of some bytes, 64 bytes. Their beginning must say what they are."""
        return bindings.crypto_sign(data, self._secret)[:SIGNATURE_BYTES]

    def sign(self, line: bytes) -> bytes:
        """Returns a line with its signature, `g`, as the last of its attributes."""
        topic, envelope, payload = line.split(b" ", 2)
        text = urlsafe_b64encode(self.key + self.sign_bytes(_SIGN + line))
        return b"%b %b;g=%b %b" % (topic, envelope, text, payload)
