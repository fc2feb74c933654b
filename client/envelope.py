"""Messages of smart clients: `%@PUB.SEQ[;name=value]* SP payload`. PROTOCOL §9.

Servers never look into it. It tells receivers who published, and the message's number in that publisher's
sequence, so that gaps show. A message without it is raw.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from kcast.pubsub import wire

_HEAD = re.compile(rb"%@([0-9A-Za-z_-]{1,43})\.([1-9][0-9]{0,17})((?:;[A-Za-z][0-9A-Za-z-]*=[!-$&-:<-~]*)*) ")
_PUBLISHER = re.compile(r"[0-9A-Za-z_-]{1,43}")
_PUBLISHER_CHARS = 11


class Envelope(NamedTuple):
    """The publisher, the number of the message among theirs on this topic (from 1), payload and
    attributes."""

    publisher: str
    seq: int
    payload: bytes
    attributes: Mapping[str, str] = {}


def new_publisher(rng: Random) -> str:
    """Returns a publisher's name for the life of one process: 11 base64url characters, 66 random bits."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(rng.choices(alphabet, k=_PUBLISHER_CHARS))


def is_publisher(name: str) -> bool:
    """Whether this can name a publisher (§9.1)."""
    return _PUBLISHER.fullmatch(name) is not None


def format_envelope(envelope: Envelope) -> bytes:
    """Returns the wire message for an envelope."""
    attributes = "".join(f";{name}={value}" for name, value in envelope.attributes.items())
    head = f"%@{envelope.publisher}.{envelope.seq}{attributes} "
    return head.encode("ascii") + wire.encode_message(envelope.payload)


def is_enveloped(message: bytes) -> bool:
    """Whether a wire message claims to be an envelope; no user's message can begin so (§3.2)."""
    return message.startswith(b"%@")


def parse_envelope(message: bytes) -> Envelope | None:
    """Returns the envelope in a wire message, or None where it is malformed."""
    head = _HEAD.match(message)
    if head is None:
        return None
    payload = wire.decode_message(message[head.end() :])
    if payload is None:
        return None
    fields = head[3].decode("ascii").split(";")[1:]
    attributes = dict(field.split("=", 1) for field in fields)
    return Envelope(head[1].decode("ascii"), int(head[2]), payload, attributes)


def needs_understanding(envelope: Envelope) -> str | None:
    """Returns the first attribute that begins in upper case, or None. This version knows no such (§9.2)."""
    return next((name for name in envelope.attributes if name[0].isupper()), None)
