"""Signed and sealed messages made by hand: each form as PROTOCOL §9 has it, with all that can be wrong in it.

It imports nothing of the code that is tested, but PyNaCl and cryptography. A seed has equal bytes.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b, blake2s, sha256
from struct import pack
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from nacl.signing import SigningKey

Vector = dict[str, Any]

SENT_MS = 1_790_000_000_000
PUBLISHER = "AbCdEfGhIjK"
ORDER = 2**252 + 27742317777372353535851937790883648493
SMALL_KEY = (1).to_bytes(32, "little")
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def base64url(data: bytes) -> bytes:
    """RFC 4648 section 5, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")


class Key:
    """An Ed25519 key from a seed of 32 equal bytes."""

    def __init__(self, seed_byte: int) -> None:
        self.seed = bytes([seed_byte]) * 32
        self._secret = SigningKey(self.seed)
        self.public = bytes(self._secret.verify_key)
        self.text = base64url(self.public).decode()

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes."""
        return self._secret.sign(data).signature


ALICE, BOB, STRANGER = Key(0x41), Key(0x42), Key(0x53)
SMALL_TEXT = base64url(SMALL_KEY).decode()
SENDERS = [ALICE.text, BOB.text, SMALL_TEXT]


def topic_start(keys: Sequence[Key]) -> str:
    """How topics begin that name these keys."""
    texts = "".join(f"{text}\n" for text in sorted(key.text for key in keys))
    return "~" + base64url(sha256(texts.encode()).digest()[:16]).decode()


# --- signed ---------------------------------------------------------------------------------------------


def unsigned(
    seq: int, payload: str = "rain, 4 degrees", topic: str = "weather/oslo", sent_ms: int = SENT_MS
) -> bytes:
    """A line before it is signed."""
    return f"{topic} %@{PUBLISHER}.{seq};t={sent_ms} {payload}\n".encode()


def with_g(line: bytes, g: bytes) -> bytes:
    """A line with `g` after its other attributes."""
    topic, envelope, payload = line.split(b" ", 2)
    return b"%b %b;g=%b %b" % (topic, envelope, g, payload)


def signed(line: bytes, key: Key = ALICE, word: bytes = b"kcast-sign 1\n") -> bytes:
    """A line that is signed alone."""
    return with_g(line, base64url(key.public + key.sign(word + line)))


def leaf(line: bytes) -> bytes:
    """The hash of a line."""
    return blake2b(line, digest_size=16, person=b"kcastbl1").digest()


def node(left: bytes, right: bytes) -> bytes:
    """The hash of a node."""
    return blake2b(left + right, digest_size=16, person=b"kcastbn1").digest()


def levels(lines: Sequence[bytes]) -> list[list[bytes]]:
    """All levels of a tree, from the leaves to the root."""
    found = [[leaf(line) for line in lines]]
    while len(found[-1]) > 1:
        below = found[-1]
        pairs = [node(*below[at : at + 2]) for at in range(0, len(below) - 1, 2)]
        found.append(pairs + (below[-1:] if len(below) % 2 else []))
    return found


def path(lines: Sequence[bytes], index: int) -> list[bytes]:
    """The siblings of a leaf, upwards."""
    found = []
    for level in levels(lines)[:-1]:
        if index ^ 1 < len(level):
            found.append(level[index ^ 1])
        index //= 2
    return found


class Batch:
    """Lines that are signed together."""

    def __init__(self, lines: Sequence[bytes], key: Key = ALICE, count: int | None = None) -> None:
        self.lines = lines
        self.count = len(lines) if count is None else count
        (root,) = levels(lines)[-1]
        self.named = key.public + key.sign(b"kcast-batch 1\n%d\n%b" % (self.count, root))

    def line(
        self,
        index: int,
        *,
        siblings: Sequence[bytes] | None = None,
        place: str | None = None,
        unsigned_line: bytes | None = None,
        named: bytes | None = None,
    ) -> bytes:
        """A signed line, or one that has something else in place of what belongs there."""
        hashes = path(self.lines, index) if siblings is None else siblings
        where = f".{self.count}.{index}" if place is None else place
        g = base64url((named or self.named) + b"".join(hashes)) + where.encode()
        return with_g(self.lines[index] if unsigned_line is None else unsigned_line, g)


# --- sealed ---------------------------------------------------------------------------------------------


def hkdf_extract(key_material: bytes) -> bytes:
    """RFC 5869 2.2, without salt."""
    return hmac.digest(bytes(32), key_material, "sha256")


def hkdf_expand(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 2.3, 32 bytes."""
    return hmac.digest(secret, info + b"\x01", "sha256")


class Epoch:
    """The secrets of a group's epoch."""

    def __init__(self, group: str, number: int, private_byte: int, topic_secret_byte: int) -> None:
        self.group, self.number = group, number
        self.private = bytes([private_byte]) * 32
        self.public = X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()
        self.topic_secret = bytes([topic_secret_byte]) * 32

    def hidden(self, name: str) -> str:
        """The wire topic of a name."""

        def hashed(text: str, size: int) -> str:
            digest = hmac.digest(self.topic_secret, text.encode(), "sha256")
            return base64url(digest[:size]).decode()

        tag = re.search("{[^}]+}", name)
        return (f"{{{hashed(tag[0], 8)}}}" if tag else "") + hashed(name, 16)

    def tag(self, topic: str, enc: bytes, publisher: str = PUBLISHER) -> bytes:
        """What tells the epoch of a line."""
        data = b"kcast-tag 1\n" + publisher.encode() + b"\0" + enc + topic.encode()
        return blake2s(data, digest_size=6, key=self.topic_secret).digest()

    def vector(self) -> Vector:
        """What the file says of it."""
        return {
            "group": self.group,
            "number": self.number,
            "private_hex": self.private.hex(),
            "public_hex": self.public.hex(),
            "topic_secret_hex": self.topic_secret.hex(),
        }


OPS = Epoch("ops", 3, 0x03, 0x13)
BEFORE = Epoch("ops", 2, 0x02, 0x12)
AFTER = Epoch("ops", 4, 0x05, 0x15)
OTHER_GROUP = Epoch("dev", 3, 0x04, 0x13)  # whose owner has taken the topic secret of `ops`
EPHEMERAL = bytes([0x77]) * 32
ENC = X25519PrivateKey.from_private_bytes(EPHEMERAL).public_key().public_bytes_raw()


class Writer:
    """A process that seals for an epoch; `enc` may be another than it has."""

    def __init__(self, epoch: Epoch, topic: str, enc: bytes = ENC) -> None:
        self.epoch, self.topic, self.enc = epoch, topic, enc
        kem = b"HPKE-v1KEM\x00\x20"
        ephemeral = X25519PrivateKey.from_private_bytes(EPHEMERAL)
        dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(epoch.public))
        eae = hkdf_extract(kem + b"eae_prk" + dh)
        shared = hkdf_expand(eae, b"\0\x20" + kem + b"shared_secret" + ENC + epoch.public)
        info = b"kcast-seal 1\0" + epoch.public + PUBLISHER.encode() + b"\0" + topic.encode()
        self._cipher = AESGCMSIV(hkdf_expand(hkdf_extract(shared), info))

    def head(self, seq: int) -> bytes:
        """All before the payload."""
        seal = base64url(self.epoch.tag(self.topic, self.enc) + self.enc)
        return f"{self.topic} %@{PUBLISHER}.{seq};S=".encode() + seal + b" "

    def seal(self, seq: int, data: bytes) -> bytes:
        """A line with these bytes sealed."""
        head = self.head(seq)
        sealed = self._cipher.encrypt(seq.to_bytes(12, "big"), data, b"kcast-seal 1\n" + head)
        return head + base64url(sealed) + b"\n"

    def signing(self, seq: int, body: bytes, key: Key, of: Epoch | None = None) -> bytes:
        """Key and signature of a body, made for this epoch or another."""
        epoch = of or self.epoch
        said = f"kcast-seal-sign 1\n{epoch.group}\n{epoch.number}\n".encode()
        return key.public + key.sign(said + epoch.public + self.head(seq) + body)


def body(
    flags: int,
    content: str,
    attributes: str = "",
    count: int | None = None,
    sent_ms: int = SENT_MS,
    lengths: tuple[int, int] | None = None,
) -> bytes:
    """A frame before key and zeros."""
    attributes_bytes, content_bytes = lengths or (len(attributes), len(content))
    start = pack(">BQBH", flags, sent_ms, attributes_bytes, content_bytes)
    return start + (b"" if count is None else pack(">Q", count)) + (attributes + content).encode()


def padded(data: bytes, size: int = 0) -> bytes:
    """With zeros to a multiple of 32, or to a size."""
    return data.ljust(size or -(-len(data) // 32) * 32, b"\0")


class OtherNumber(Writer):
    """Puts another number before what it seals."""

    def seal(self, seq: int, data: bytes) -> bytes:
        """A line that was sealed under the next number."""
        return self.head(seq) + super().seal(seq + 1, data)[len(self.head(seq + 1)) :]


def seal_of(writer: Writer) -> bytes:
    """The value of `S`."""
    return base64url(writer.epoch.tag(writer.topic, writer.enc) + writer.enc)
