"""Names of topics that hide what they are, and names that say whose messages count. Sans-IO.

PROTOCOL §9.6, §9.7.

*Hidden*: in a group, servers see a keyed hash of a topic's name. Its `{tag}` (§8.2) gets a hash of its own,
so that related topics still share their servers. No topic of a user begins with NUL (§3.4): so what else is
hashed with the same key does, and is never the hash of such a topic.

*Certified*: `~HASH` or `~HASH/...`, where HASH is that of the keys of all who may publish there. A shell
computes it: `printf 'KEY\\n' | openssl dgst -sha256 -binary | head -c 16 | basenc --base64url`.
"""

import hmac
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from hashlib import sha256

from kcast.client.messages import base64url
from kcast.hashring.hashing import hashed_bytes

_NAME_BYTES = 16
_TAG_BYTES = 8
_HASH_BYTES = 16
_TAG_PREFIX = b"\0kcast-tag-of 1\n"
_BEACON = b"\0epoch"
_CERTIFIED = re.compile(rb"~([0-9A-Za-z_-]{22})(?:/|\Z)")


def hidden(topic_secret: bytes, name: bytes) -> bytes:
    """Returns the wire topic that stands for a topic's name where this secret is known.

    It has 22 characters, or 35 where the name has a `{tag}`, and needs no %-encoding.
    """
    hidden_name = base64url.encode_ascii(hmac.digest(topic_secret, name, "sha256")[:_NAME_BYTES])
    tag = hashed_bytes(name)
    if tag == name:
        return hidden_name
    hidden_tag = hmac.digest(topic_secret, _TAG_PREFIX + b"{%b}" % tag, "sha256")[:_TAG_BYTES]
    return b"{%b}%b" % (base64url.encode_ascii(hidden_tag), hidden_name)


def beacon_of(topic_secret: bytes) -> bytes:
    """Returns the topic, one of kcast's own, on which members tell each other of newer epochs (§9.8)."""
    return b"\0group/" + hidden(topic_secret, _BEACON)


def parse_certified(name: bytes) -> bytes | None:
    """Returns the hash, 16 bytes, of the keys that a topic's name names; None where it names none.

    Four bits of the last character say nothing. Where they are set, it is another topic with the same
    senders: no spelling of a hash may leave a topic open to all.
    """
    found = _CERTIFIED.match(name)
    return urlsafe_b64decode(found[1] + b"==") if found else None


def hash_of(keys: Iterable[bytes]) -> bytes:
    """Returns the hash of public keys, 16 bytes, in whatever order they come."""
    texts = sorted(base64url.encode_ascii(key) + b"\n" for key in set(keys))
    return sha256(b"".join(texts)).digest()[:_HASH_BYTES]


def topic_start(keys: Iterable[bytes]) -> str:
    """Returns the beginning of the topics on which only the holders of these keys may publish: `~` and 22
    characters. Nothing follows it, or `/` and anything."""
    return f"~{base64url.encode(hash_of(keys))}"
