"""Sealed messages: only a group reads them, and only who has its keys writes them. Sans-IO. PROTOCOL §9.7.

    WIRETOPIC %@PUB.SEQ;S=BASE64URL(TAG || ENC) BASE64URL(SEALED FRAME)

A group has a pair of X25519 keys for each epoch. Whoever has the public one, and the topic secret, writes;
who has the private one reads. A process makes one shared secret with the public key, and readers get it from
ENC (`kcast.client.sealed.dhkem`); from it, each topic has a key of its own. AES-256-GCM-SIV (RFC 8452) seals
the frame (`kcast.client.sealed.frame`) with SEQ as nonce, and authenticates all that stands before it.

TAG is a hash with the topic secret: it tells at little cost which epoch a line is of, and that its writer
knew the secret. To others it says nothing.
"""

import hmac
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2s
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

from kcast.client.errors import MessageTooLarge
from kcast.client.events import Drop
from kcast.client.messages import base64url
from kcast.client.sealed import frame
from kcast.client.sealed.dhkem import KEY_BYTES, decapsulate, encapsulate, expand, extract, public_key
from kcast.client.sealed.frame import BLOCK_BYTES, Frame
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.client.trust.extras import MissingExtra
from kcast.pubsub.errors import KcastError

try:
    from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
except ImportError:
    raise MissingExtra("a sealed message") from None

from kcast.client.trust.forms import ed25519

__all__ = ["Epoch", "Frame", "Opener", "SealError", "Sealer", "Signs", "Unsealed", "parse_seal"]

CONTEXTS_MAX = 4096
TAG_BYTES = 6

_SEAL_CHARS = 51  # of tag and enc
_EMPTY_BYTES = len(" %@.;S= \n") + _SEAL_CHARS  # of a line without topic, publisher, number and payload
_NONCE_BYTES = 12
_MAC_BYTES = 16  # that AES-GCM-SIV adds
_SEAL = b"kcast-seal 1\n"
_KEY = b"kcast-seal 1\0"
_TAG = b"kcast-tag 1\n"
_SIGN = b"kcast-seal-sign 1\n"


class SealError(KcastError, ValueError):
    """Nothing can be sealed or opened with what one has. The message says what to do."""


class Signs(Protocol):
    """What signs the inside of sealed messages: `kcast.client.sealed.signing.Signer`."""

    key: bytes

    def sign_bytes(self, data: bytes) -> bytes:
        """Returns the signature of some bytes."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The secrets of a group for a time, as one member has them: without `private`, to write only.

    It begins at `from_unix_s`, and the next one at `next_from_unix_s`, infinite where none is known. Messages
    that none of the keys `senders` has signed do not count.
    """

    group: str
    number: int
    from_unix_s: int
    public: bytes = field(repr=False)  # who has it may write
    topic_secret: bytes = field(repr=False)
    private: bytes | None = field(default=None, repr=False)
    next_from_unix_s: float = inf
    owner: bytes = field(kw_only=True)  # its group's owner's key
    senders: frozenset[bytes] = field(kw_only=True)

    def __post_init__(self) -> None:
        for name, key in (("public key", self.public), ("topic secret", self.topic_secret)):
            if len(key) != KEY_BYTES:
                raise SealError(f"group {self.group}: a {name} has {KEY_BYTES} bytes, not {len(key)}")


class Unsealed(NamedTuple):
    """A sealed message that was opened, and whose signature nobody has verified yet: the frame's `sender` is
    who it claims to be of. The other fields are for `Opener.verify`."""

    frame: Frame
    signed: bytes
    signature: bytes
    place: tuple[bytes, bytes, bytes]
    new: "_Shared | None"


class _Shared(NamedTuple):
    """What a writer's `enc` gives, and the cipher of one of its topics."""

    secret: bytes
    cipher: AESGCMSIV

    def __repr__(self) -> str:
        """Returns a text without the secret."""
        return "_Shared()"


class _Context(NamedTuple):
    """What lines of one topic have in common: the cipher, and what stands before and after the number."""

    cipher: AESGCMSIV
    start: bytes
    end: bytes


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Recent(Generic[_Key, _Value]):
    """The values that were used last."""

    def __init__(self) -> None:
        self._values: OrderedDict[_Key, _Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> _Value | None:
        """Returns a value, and knows that it was used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: _Key, value: _Value) -> None:
        """Keeps a value; of too many, the one is forgotten that was not used for longest."""
        self._values[key] = value
        if len(self._values) > CONTEXTS_MAX:
            self._values.popitem(last=False)


class Sealer:
    """Seals the messages of one process for a group's epoch.

    `secret` are 32 random bytes, which no other Sealer may have: after a fork, each process makes its own.
    A number is used once on a topic. Raises SealError for an epoch to which nothing can be sealed.
    """

    def __init__(self, epoch: Epoch, publisher: str, secret: bytes) -> None:
        _cipher(bytes(KEY_BYTES))
        self.epoch = epoch
        self.publisher = publisher.encode("ascii")
        try:
            shared, self.enc = encapsulate(secret, epoch.public)
        except ValueError:
            raise SealError(
                f"group {epoch.group}: with the public key of epoch {epoch.number} everybody could read what "
                "is sealed: its owner must make a new epoch"
            ) from None
        self._secret = extract(shared)
        self._tags = _Tags(epoch.topic_secret)
        self._contexts: _Recent[bytes, _Context] = _Recent()

    def line(self, wire_topic: bytes, seq: int, message: Frame, signer: Signs, pad_to: int = 0) -> bytes:
        """Returns the line of a message, sealed, and signed inside.

        With `pad_to`, a multiple of 32, the frame has this size; then it has a count too: where it is None,
        all have been real. Raises MessageTooLarge.
        """
        if pad_to:
            if pad_to % BLOCK_BYTES:
                raise ValueError(f"pad_to is {pad_to}: give a multiple of {BLOCK_BYTES}")
            if message.count is None:
                message = message._replace(count=seq)
        if not frame.is_countable(message, seq):
            raise ValueError(
                f"message {seq} has the count {message.count}: give at most its number, and less for a dummy"
            )
        self.require_room(wire_topic, seq, message, pad_to)
        return self.seal(wire_topic, seq, message, signer, pad_to)

    def seal(
        self,
        wire_topic: bytes,
        seq: int,
        message: Frame,
        signer: Signs,
        pad_to: int = 0,
        told: bytes = b"",
    ) -> bytes:
        """Does the rest of `line`, after `require_room`. `told` are attributes in clear, each after a `;`."""
        context = self._contexts.get(wire_topic) or self._begin(wire_topic)
        sealed_head = b"%b%d%b%b" % (context.start, seq, told, context.end)
        head = sealed_head[len(_SEAL) :]
        data = frame.body_of(message)
        data = b"%b%b%b" % (data, signer.key, signer.sign_bytes(_signed(self.epoch, head, data)))
        size = pad_to or frame.padded_bytes(len(data))
        sealed = context.cipher.encrypt(_nonce(seq), data.ljust(size, b"\0"), sealed_head)
        return b"%b%b\n" % (head, base64url.encode_ascii(sealed))

    def require_room(
        self, wire_topic: bytes, seq: int, message: Frame, pad_to: int = 0, taken_bytes: int = 0
    ) -> None:
        """Raises MessageTooLarge where `line` would, so that of several messages none uses up its number.
        `taken_bytes` of it are not to be had."""
        has_count = message.count is not None
        room = self.room(wire_topic, seq, has_count=has_count, pad_to=pad_to, taken_bytes=taken_bytes)
        if len(message.content) > room:
            raise MessageTooLarge(_too_large(len(message.content), room))

    def room(
        self, wire_topic: bytes, seq: int, *, has_count: bool = False, pad_to: int = 0, taken_bytes: int = 0
    ) -> int:
        """Returns how many bytes of content fit into a message of this number, below 0 where not even an
        empty one does."""
        other_bytes = _EMPTY_BYTES + len(wire_topic) + len(self.publisher) + len(str(seq)) + taken_bytes
        sealed_bytes = (LINE_BYTES_MAX - other_bytes) * 3 // 4
        size = (sealed_bytes - _MAC_BYTES) // BLOCK_BYTES * BLOCK_BYTES
        if pad_to:
            size = pad_to if pad_to <= size else 0
        return size - frame.empty_bytes(has_count=has_count)

    def _begin(self, wire_topic: bytes) -> _Context:
        key = expand(self._secret, _key_info(self.epoch, self.publisher, wire_topic))
        tag = self._tags.tag(wire_topic, self.publisher, self.enc)
        start = b"%b%b %%@%b." % (_SEAL, wire_topic, self.publisher)
        context = _Context(_cipher(key), start, b";S=%b " % base64url.encode_ascii(tag + self.enc))
        self._contexts.put(wire_topic, context)
        return context


class Opener:
    """Opens what is sealed for a group's epoch. Nothing that arrives raises an error.

    Raises SealError for an epoch whose private key one has not.
    """

    def __init__(self, epoch: Epoch) -> None:
        _cipher(bytes(KEY_BYTES))
        if epoch.private is None:
            raise SealError(
                f"group {epoch.group}: you may write in epoch {epoch.number}, but not read: ask its owner to "
                "add you as a reader"
            )
        if len(epoch.private) != KEY_BYTES or public_key(epoch.private) != epoch.public:
            raise SealError(
                f"group {epoch.group}: the keys of epoch {epoch.number} do not belong together: its owner "
                "must make a new epoch"
            )
        self.epoch = epoch
        self._private = X25519PrivateKey.from_private_bytes(epoch.private)
        self._tags = _Tags(epoch.topic_secret)
        # Both are filled only by what has been opened and verified, so that whoever forges lines, with ever
        # new `enc`, pushes nobody out.
        self._ciphers: _Recent[tuple[bytes, bytes, bytes], AESGCMSIV] = _Recent()
        self._secrets: _Recent[bytes, bytes] = _Recent()

    def is_tag(self, wire_topic: bytes, publisher: bytes, enc: bytes, tag: bytes) -> bool:
        """Returns whether a line's tag is of this epoch. It costs no operation on the curve."""
        return hmac.compare_digest(self._tags.tag(wire_topic, publisher, enc), tag)

    def unseal(
        self, head: bytes, wire_topic: bytes, publisher: bytes, seq: int, enc: bytes, payload: bytes
    ) -> Unsealed | Drop:
        """Returns what is in a sealed line, which is not verified yet, or why it is dropped.

        So time and sender can be looked at before the signature, which takes much longer. `head` is all of
        the line before its payload, the space included; the rest of the arguments are its parts. The payload
        is base64url.
        """
        sealed = base64url.decode_ascii(payload)
        if sealed is None:
            return Drop.MALFORMED_MESSAGE
        size = len(sealed) - _MAC_BYTES
        if size < BLOCK_BYTES or size % BLOCK_BYTES:
            return Drop.NOT_OPENED
        place = (publisher, enc, wire_topic)
        new = None
        cipher = self._ciphers.get(place)
        if cipher is None:
            new = self._meet(place)
            if new is None:
                return Drop.NOT_OPENED
            cipher = new.cipher
        try:
            data = cipher.decrypt(_nonce(seq), sealed, _SEAL + head)
        except InvalidTag:
            return Drop.NOT_OPENED
        if not frame.is_signed(data):
            return Drop.UNSIGNED
        opened = frame.parse(data, seq)
        if opened is None:
            return Drop.NOT_OPENED
        return Unsealed(opened.frame, _signed(self.epoch, head, opened.body), opened.signature, place, new)

    def verify(self, unsealed: Unsealed) -> bool:
        """Returns whether the signature is the sender's, and keeps what opens more lines of this writer."""
        message, signed, signature, place, new = unsealed
        if not ed25519.is_signed(message.sender, signed, signature):
            return False
        if new is not None:
            self._ciphers.put(place, new.cipher)
            self._secrets.put(place[1], new.secret)
        return True

    def _meet(self, place: tuple[bytes, bytes, bytes]) -> _Shared | None:
        """Returns what opens the lines of a writer on a topic; None where `enc` is of small order."""
        publisher, enc, wire_topic = place
        secret = self._secrets.get(enc)
        if secret is None:
            shared = decapsulate(self._private, self.epoch.public, enc)
            if shared is None:
                return None
            secret = extract(shared)
        key = expand(secret, _key_info(self.epoch, publisher, wire_topic))
        return _Shared(secret, _cipher(key))


class _Tags:
    """The keyed hash that names the epoch of a line."""

    def __init__(self, topic_secret: bytes) -> None:
        self._state = blake2s(_TAG, digest_size=TAG_BYTES, key=topic_secret)

    def tag(self, wire_topic: bytes, publisher: bytes, enc: bytes) -> bytes:
        """Returns the tag of a writer on a topic."""
        state = self._state.copy()
        state.update(b"%b\0%b%b" % (publisher, enc, wire_topic))
        return state.digest()


def parse_seal(text: str) -> tuple[bytes, bytes] | None:
    """Reads the value of `S`: tag and `enc`; None where it is malformed, so that the whole message is."""
    data = base64url.decode(text) if len(text) == _SEAL_CHARS else None
    return None if data is None else (data[:TAG_BYTES], data[TAG_BYTES:])


def _cipher(key: bytes) -> AESGCMSIV:
    try:
        return AESGCMSIV(key)
    except UnsupportedAlgorithm:
        raise SealError(
            "sealed messages need AES-GCM-SIV, and the OpenSSL here has none (3.2 and later have it): "
            "install cryptography from its wheels, which bring an OpenSSL of their own"
        ) from None


def _nonce(seq: int) -> bytes:
    return seq.to_bytes(_NONCE_BYTES, "big")


def _key_info(epoch: Epoch, publisher: bytes, wire_topic: bytes) -> bytes:
    return b"%b%b%b\0%b" % (_KEY, epoch.public, publisher, wire_topic)


def _signed(epoch: Epoch, head: bytes, body: bytes) -> bytes:
    """What the signature inside is of: so it is worth nothing in another group, epoch or line."""
    group = b"%b\n%b\n%d\n" % (base64url.encode_ascii(epoch.owner), epoch.group.encode(), epoch.number)
    return b"%b%b%b%b%b" % (_SIGN, group, epoch.public, head, body)


def _too_large(content_bytes: int, fits: int) -> str:
    if fits < 0:
        return "message too large: not even an empty one fits: choose a shorter topic, or a larger size"
    return (
        f"message too large: {content_bytes} bytes, {content_bytes - fits} too many. Sealed on this topic, "
        f"at most {fits} fit: send less, or split it"
    )
