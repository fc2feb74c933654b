"""Signed and sealed messages made by hand: each form as PROTOCOL §9 has it, with all that can be wrong in it.

It imports nothing of the code that is tested, but PyNaCl and cryptography: so it is a second implementation,
which reads, too. A seed has equal bytes.
"""

import hmac
import re
from base64 import standard_b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2s, sha256
from struct import pack, unpack
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV, ChaCha20Poly1305
from nacl.signing import SigningKey, VerifyKey

Vector = dict[str, Any]

SENT_MS = 1_790_000_000_000
PUBLISHER = "AbCdEfGhIjK"
ORDER = 2**252 + 27742317777372353535851937790883648493
SMALL_KEY = (1).to_bytes(32, "little")
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def base64url(data: bytes) -> bytes:
    """RFC 4648 section 5, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")


def from_base64url(text: bytes) -> bytes:
    """The same backwards."""
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


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


_SIGNED_LINE = re.compile(rb"([^ ]+ %@[^ ]*);g=([0-9A-Za-z_-]{128})( [^\n]*\n)")


def signer_of(line: bytes) -> bytes:
    """The key that has signed a line. Raises an error where none has."""
    found = _SIGNED_LINE.fullmatch(line)
    assert found, line
    claim = from_base64url(found[2])
    verify(claim, b"kcast-sign 1\n" + found[1] + found[3])
    return claim[:32]


def verify(claim: bytes, data: bytes) -> None:
    """Sees that a key has signed some bytes: the claim has the key, and the signature."""
    VerifyKey(claim[:32]).verify(data, claim[32:])


# --- sealed ---------------------------------------------------------------------------------------------


def hkdf_extract(key_material: bytes) -> bytes:
    """RFC 5869 2.2, without salt."""
    return hmac.digest(bytes(32), key_material, "sha256")


def hkdf_expand(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 2.3, 32 bytes."""
    return hmac.digest(secret, info + b"\x01", "sha256")


class Epoch:
    """The secrets of a group's epoch."""

    def __init__(
        self, group: str, number: int, private_byte: int, topic_secret_byte: int, owner: str = ""
    ) -> None:
        self.group, self.number, self.owner = group, number, owner or ALICE.text
        self.set_secrets(bytes([private_byte]) * 32, bytes([topic_secret_byte]) * 32)

    def set_secrets(self, private: bytes, topic_secret: bytes) -> None:
        """Gives it other secrets."""
        self.private, self.topic_secret = private, topic_secret
        self.public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()

    def hidden(self, name: str) -> str:
        """The wire topic of a name."""

        def hashed(text: str, size: int) -> str:
            digest = hmac.digest(self.topic_secret, text.encode(), "sha256")
            return base64url(digest[:size]).decode()

        tag = re.search("{[^}]+}", name)
        tag_name = f"\0kcast-tag-of 1\n{tag[0]}" if tag else ""
        return (f"{{{hashed(tag_name, 8)}}}" if tag else "") + hashed(name, 16)

    def tag(self, topic: str, enc: bytes, publisher: str = PUBLISHER) -> bytes:
        """What tells the epoch of a line."""
        data = b"kcast-tag 1\n" + publisher.encode() + b"\0" + enc + topic.encode()
        return blake2s(data, digest_size=6, key=self.topic_secret).digest()

    def vector(self) -> Vector:
        """What the file says of it."""
        return {
            "owner": self.owner,
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
OTHER_OWNER = Epoch("ops", 3, 0x03, 0x13, BOB.text)  # who reads `ops`, and has taken all of it
EPHEMERAL = bytes([0x77]) * 32
ENC = X25519PrivateKey.from_private_bytes(EPHEMERAL).public_key().public_bytes_raw()


def shared_secret(private: bytes, public: bytes, enc: bytes, receiver: bytes) -> bytes:
    """RFC 9180 4.1, from either side: who has made `enc` has its private key, and a receiver its own."""
    kem = b"HPKE-v1KEM\x00\x20"
    dh = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    eae = hkdf_extract(kem + b"eae_prk" + dh)
    return hkdf_expand(eae, b"\0\x20" + kem + b"shared_secret" + enc + receiver)


def cipher_of(shared: bytes, epoch: Epoch, publisher: str, topic: str) -> AESGCMSIV:
    """What seals the lines of a process on a topic."""
    info = b"kcast-seal 1\0" + epoch.public + publisher.encode() + b"\0" + topic.encode()
    return AESGCMSIV(hkdf_expand(hkdf_extract(shared), info))


def signed_inside(epoch: Epoch, head: bytes, body: bytes) -> bytes:
    """What the signature in a sealed line is of."""
    return b"kcast-seal-sign 1\n%b\n%b\n%d\n%b%b%b" % (
        *(epoch.owner.encode(), epoch.group.encode(), epoch.number, epoch.public),
        *(head, body),
    )


class Writer:
    """A process that seals for an epoch; `enc` may be another than it has. `told` is said in clear."""

    def __init__(self, epoch: Epoch, topic: str, enc: bytes = ENC, told: str = "") -> None:
        self.epoch, self.topic, self.enc, self.told = epoch, topic, enc, told
        shared = shared_secret(EPHEMERAL, epoch.public, ENC, epoch.public)
        self._cipher = cipher_of(shared, epoch, PUBLISHER, topic)

    def head(self, seq: int) -> bytes:
        """All before the payload."""
        seal = base64url(self.epoch.tag(self.topic, self.enc) + self.enc)
        return f"{self.topic} %@{PUBLISHER}.{seq}{self.told};S=".encode() + seal + b" "

    def seal(self, seq: int, data: bytes) -> bytes:
        """A line with these bytes sealed."""
        head = self.head(seq)
        sealed = self._cipher.encrypt(seq.to_bytes(12, "big"), data, b"kcast-seal 1\n" + head)
        return head + base64url(sealed) + b"\n"

    def signing(self, seq: int, body: bytes, key: Key, of: Epoch | None = None) -> bytes:
        """Key and signature of a body, made for this epoch or another."""
        return key.public + key.sign(signed_inside(of or self.epoch, self.head(seq), body))

    def line(self, seq: int, data: bytes, key: Key = ALICE, size: int = 0) -> bytes:
        """The line of a body, signed and sealed."""
        return self.seal(seq, padded(data + self.signing(seq, data, key), size))


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
    return start + (b"" if count is None else pack(">Q", count)) + (attributes + content).encode("latin-1")


def padded(data: bytes, size: int = 0) -> bytes:
    """With zeros to a multiple of 32, or to a size."""
    return data.ljust(size or -(-len(data) // 32) * 32, b"\0")


_SEALED_LINE = re.compile(
    rb"(([^ ]+) %@([0-9A-Za-z_-]+)\.([0-9]+)(?:;[cp]=[^; ]+)*;S=([0-9A-Za-z_-]{51}) )([0-9A-Za-z_-]+)\n"
)


class Read(NamedTuple):
    """What is in a sealed line."""

    flags: int
    sent_ms: int
    attributes: str
    content: bytes
    number: int  # the count
    sender: bytes


def opened(epoch: Epoch, line: bytes) -> Read:
    """What a reader of an epoch finds in a line. Raises an error where anything is wrong with it."""
    found = _SEALED_LINE.fullmatch(line)
    assert found, line
    head, topic, publisher, seq = found[1], found[2].decode(), found[3].decode(), int(found[4])
    seal = from_base64url(found[5])
    tag, enc = seal[:6], seal[6:]
    assert tag == epoch.tag(topic, enc, publisher)
    cipher = cipher_of(shared_secret(epoch.private, enc, enc, epoch.public), epoch, publisher, topic)
    data = cipher.decrypt(seq.to_bytes(12, "big"), from_base64url(found[6]), b"kcast-seal 1\n" + head)
    flags, sent_ms, attributes_bytes, content_bytes = unpack(">BQBH", data[:12])
    assert flags & 1, "every message is signed"
    at, count = 12, seq
    if flags & 4:
        (count,) = unpack(">Q", data[at : at + 8])
        at += 8
    content_at = at + attributes_bytes
    end = content_at + content_bytes
    verify(data[end : end + 96], signed_inside(epoch, head, data[:end]))
    assert not data[end + 96 :].strip(b"\0")
    attributes, content = data[at:content_at].decode(), data[content_at:end]
    return Read(flags, sent_ms, attributes, content, count, data[end : end + 32])


class OtherNumber(Writer):
    """Puts another number before what it seals."""

    def seal(self, seq: int, data: bytes) -> bytes:
        """A line that was sealed under the next number."""
        return self.head(seq) + super().seal(seq + 1, data)[len(self.head(seq + 1)) :]


def seal_of(writer: Writer) -> bytes:
    """The value of `S`."""
    return base64url(writer.epoch.tag(writer.topic, writer.enc) + writer.enc)


# --- groups ---------------------------------------------------------------------------------------------


def epoch_of_file(data: bytes, member: Key) -> tuple[Epoch, list[bytes]]:
    """The epoch that a group file has for a reader, and its senders; it is signed by the owner it names."""
    lines = data.split(b"\n")
    head, signature, rest = (
        b"\n".join(lines[:8]) + b"\n",
        lines[9].decode().split(" "),
        b"\n".join(lines[10:]),
    )
    words = [line.decode().split(" ") for line in (*lines[:8], *lines[10:-1])]
    said = {line[0]: line[1] for line in words}
    assert base64url(sha256(rest).digest()).decode() == said["rest"]
    name, _, owner = said["owner"].split("+", 2)
    assert signature[:2] == ["\N{EM DASH}", name]
    owner_key = standard_b64decode(owner)[1:]
    verify(owner_key + standard_b64decode(signature[2])[4:], head)
    by = base64url(owner_key).decode()
    info = f"kcast-group 2\n{by}\n{said['name']}\n{said['epoch']}\nreader\n{member.text}\n".encode()
    hpke = hkdf_expand(hkdf_extract(member.seed), b"kcast-hpke 1")
    secrets = b""
    for wrapped in [from_base64url(line[1].encode()) for line in words if line[0] == "reader"]:
        with suppress(InvalidTag):  # it is another member's
            secrets = hpke_opened(hpke, wrapped[:32], info, wrapped[32:])
    epoch = Epoch(said["name"], int(said["epoch"]), 0, 0, by)
    epoch.set_secrets(secrets[:32], secrets[32:])
    assert base64url(sha256(epoch.public + epoch.topic_secret).digest()).decode() == said["secrets"]
    key = hkdf_expand(hkdf_extract(epoch.topic_secret), b"kcast-senders 1")
    keys = ChaCha20Poly1305(key).decrypt(bytes(12), from_base64url(said["senders"].encode()), b"")
    return epoch, [keys[at : at + 32] for at in range(0, len(keys), 32)]


def hpke_opened(private: bytes, enc: bytes, info: bytes, sealed: bytes) -> bytes:
    """RFC 9180 5 and 6.1: what is sealed, with ChaCha20-Poly1305, in base mode."""
    suite = b"HPKE-v1HPKE\x00\x20\x00\x01\x00\x03"
    receiver = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    shared = shared_secret(private, enc, enc, receiver)
    context = b"\0" + hkdf_extract(suite + b"psk_id_hash") + hkdf_extract(suite + b"info_hash" + info)
    secret = hmac.digest(shared, suite + b"secret", "sha256")
    key = hkdf_expand(secret, b"\0\x20" + suite + b"key" + context)
    nonce = hkdf_expand(secret, b"\0\x0c" + suite + b"base_nonce" + context)[:12]
    return ChaCha20Poly1305(key).decrypt(nonce, sealed, b"")
