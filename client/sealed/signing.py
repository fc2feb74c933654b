"""Signed messages: who signs, and what is a signature. Sans-IO. PROTOCOL §9.6.

    TOPIC %@PUB.SEQ;t=MS;g=BASE64URL(KEY || SIGNATURE) PAYLOAD
    TOPIC %@PUB.SEQ;t=MS;g=BASE64URL(KEY || SIGNATURE || PATH).COUNT.INDEX PAYLOAD

Signed is the line without `;g=...`: by itself, or by the root of a Merkle tree over several lines
(`kcast.client.sealed.merkle_batches`). All lines here end with LF.
"""

import re
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from kcast.client.messages import base64url
from kcast.client.sealed.merkle_batches import BATCH_MAX, HASH_BYTES, leaf_of, root_by, tree_of
from kcast.client.trust.extras import MissingExtra

try:
    from nacl import bindings
except ImportError:
    raise MissingExtra("a signed message") from None

from kcast.client.trust.forms import ed25519
from kcast.client.trust.forms.ed25519 import PUBLIC_BYTES, SEED_BYTES, SIGNATURE_BYTES

_ALONE = b"kcast-sign 1\n"
_BATCH = b"kcast-batch 1\n%d\n%b"  # how many, and the root
_NAMED_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES
_VERIFIED_MAX = 1024  # roots of batches

_NUMBER = re.compile("0|[1-9][0-9]?")

SIGNATURE_CHARS = len(";g=") + _NAMED_BYTES * 4 // 3  # by which a line grows that is signed alone


class MessageSignature(NamedTuple):
    """What `g` claims: proven is nothing before `Verifier.is_signed`.

    In a batch `path` leads to the root, and `place` says how many messages it has, and which of them, from 0,
    this is. A message that is signed alone has no path, and None.
    """

    key: bytes
    signature: bytes
    path: bytes = b""
    place: tuple[int, int] | None = None


def parse_signature(text: str) -> MessageSignature | None:
    """Reads the value of `g`; None where it is malformed, so that the whole message is.

    Which batches there can be is not asked here: a message of one that cannot be has a bad signature.
    """
    encoded, *place = text.split(".", 3)
    data = base64url.decode(encoded)
    if data is None or len(data) < _NAMED_BYTES:
        return None
    key, signature, path = data[:PUBLIC_BYTES], data[PUBLIC_BYTES:_NAMED_BYTES], data[_NAMED_BYTES:]
    if not place:
        return None if path else MessageSignature(key, signature)
    if len(path) % HASH_BYTES or len(place) != 2 or not all(map(_NUMBER.fullmatch, place)):
        return None
    return MessageSignature(key, signature, path, (int(place[0]), int(place[1])))


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
        """Returns a line with its signature: it is signed alone."""
        return _with(line, urlsafe_b64encode(self.key + self.sign_bytes(_ALONE + line)))

    def sign_many(self, lines: Sequence[bytes], line_bytes_max: int) -> list[bytes]:
        """Returns lines with their signatures, in batches of 16.

        A line is signed alone that would be longer than `line_bytes_max` with the longest path of its batch,
        and one that is left alone. Whether it fits then is not asked.
        """
        signed: list[bytes] = []
        for start in range(0, len(lines), BATCH_MAX):
            signed += self._sign_batch(lines[start : start + BATCH_MAX], line_bytes_max)
        return signed

    def _sign_batch(self, lines: Sequence[bytes], line_bytes_max: int) -> list[bytes]:
        room = line_bytes_max - _batch_chars(len(lines))
        together = [line for line in lines if len(line) <= room]
        if len(together) < 2:
            return [self.sign(line) for line in lines]
        root, paths = tree_of([leaf_of(line) for line in together])
        count = len(together)
        # It has 96 bytes, a multiple of 3, so that the text of a path can be put behind its text.
        common = urlsafe_b64encode(self.key + self.sign_bytes(_BATCH % (count, root)))
        texts = (b"%b%b.%d.%d" % (common, _encode(path), count, at) for at, path in enumerate(paths))
        signed = map(_with, together, texts)
        return [next(signed) if len(line) <= room else self.sign(line) for line in lines]


class Verifier:
    """Verifies signed lines. It remembers the signatures of batches that it has verified, and no others, so
    that whoever forges some pushes none out."""

    def __init__(self) -> None:
        self._verified: OrderedDict[tuple[bytes, bytes, bytes, int], None] = OrderedDict()

    def is_signed(self, claimed: MessageSignature, unsigned_line: bytes) -> bool:
        """Returns whether the signature is one of this line, which is as it was before it was signed."""
        key, signature, path, place = claimed
        if place is None:
            return not path and ed25519.is_signed(key, _ALONE + unsigned_line, signature)
        count, index = place
        root = root_by(path, leaf_of(unsigned_line), count, index)
        if root is None:
            return False
        batch = (key, signature, root, count)
        if batch in self._verified:
            self._verified.move_to_end(batch)
            return True
        if not ed25519.is_signed(key, _BATCH % (count, root), signature):
            return False
        self._verified[batch] = None
        if len(self._verified) > _VERIFIED_MAX:
            self._verified.popitem(last=False)
        return True


def _with(line: bytes, text: bytes) -> bytes:
    """Returns a line with `g` as the last of its attributes."""
    topic, envelope, payload = line.split(b" ", 2)
    return b"%b %b;g=%b %b" % (topic, envelope, text, payload)


def _encode(path: bytes) -> bytes:
    return urlsafe_b64encode(path).rstrip(b"=")


def _batch_chars(count: int) -> int:
    """Returns how much longer a line can become in a batch of `count`."""
    path_bytes = HASH_BYTES * (count - 1).bit_length()
    encoded_chars = (4 * (_NAMED_BYTES + path_bytes) + 2) // 3
    return len(f";g=.{count}.{count - 1}") + encoded_chars
