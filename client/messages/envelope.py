"""Messages of smart clients: `%@PUB.SEQ[;name=value]* SP payload`. PROTOCOL §9.

Servers never look into it. It tells receivers who published, and the message's number in that publisher's
sequence, so that gaps show. A message without it is raw.

The payload has two forms on the wire: %-encoded, as in raw messages, and base64url, marked `B=1`. The shorter
line is sent. Whoever receives it sees the payload, and no mark. What is sealed (`S`) is always base64url.

Two attributes have a form of their own, which is checked here, without any cryptography: `g`, a signature,
and `S`, a seal. What they prove, `kcast.client.sealed` knows.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from kcast.client.events import Drop
from kcast.client.messages import base64url
from kcast.pubsub import wire

# Possessive quantifiers take a run of characters in one step, and not one by one.
_START = rb"%@([0-9A-Za-z_-]{1,43}+)\.([1-9][0-9]{0,17}+)"
_HEAD = re.compile(_START + rb"((?:;[A-Za-z][0-9A-Za-z-]*+=[!-$&-:<-~]*+)*+) ")
_PLAIN = re.compile(_START + rb" ([ -$&-~\x80-\xff]*+)")  # without attributes, and without anything escaped
BEGINNING = b"%@"
_PUBLISHER = re.compile(r"[0-9A-Za-z_-]{1,43}")
_MARK = ";B=1"
_SIGNED_CHARS = 128  # of a key and a signature
_SEAL_CHARS = 51  # of 6 bytes of tag, and 32 of key

PUBLISHER_CHARS = 11
SIGNATURE = "g"
SEAL = "S"


class Envelope(NamedTuple):
    """The publisher, the number of the message among theirs on this topic (from 1), payload and attributes.

    The payload is as it was published, so `B=1` is not among the attributes.
    """

    publisher: str
    seq: int
    payload: bytes
    attributes: Mapping[str, str] = {}


def new_publisher(rng: Random) -> str:
    """Returns a publisher's name for the life of one process: 11 base64url characters, 66 random bits."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(rng.choices(alphabet, k=PUBLISHER_CHARS))


def is_publisher(name: str) -> bool:
    """Whether this can name a publisher (§9.1)."""
    return _PUBLISHER.fullmatch(name) is not None


def format_envelope(envelope: Envelope) -> bytes:
    """Returns the wire message for an envelope: of its two forms the shorter, and %-encoded if they are equal
    (§9.2)."""
    payload = envelope.payload
    is_binary = wire.message_bytes(payload) > len(_MARK) + binary_bytes(len(payload))
    attributes = "".join(f";{name}={value}" for name, value in envelope.attributes.items())
    head = f"%@{envelope.publisher}.{envelope.seq}{_MARK if is_binary else ''}{attributes} "
    return head.encode("ascii") + (
        base64url.encode_ascii(payload) if is_binary else wire.encode_message(payload)
    )


def is_enveloped(message: bytes) -> bool:
    """Whether a wire message claims to be an envelope; no user's message can begin so (§3.2)."""
    return message.startswith(BEGINNING)


def parse_envelope(message: bytes) -> Envelope | None:
    """Returns the envelope in a wire message, or None where it is malformed.

    The payload of a sealed message is what was sealed, as bytes; nobody has opened it.
    """
    head = _HEAD.match(message)
    if head is None:
        return None
    fields = head[3].decode("ascii").split(";")[1:]
    attributes = dict(field.split("=", 1) for field in fields)
    form = message[head.end() :]
    if (SIGNATURE in attributes or SEAL in attributes) and not _has_its_form(attributes, fields):
        return None
    if attributes.get("B") == "1" or SEAL in attributes:
        attributes.pop("B", None)
        payload = base64url.decode_ascii(form)
    else:
        payload = wire.decode_message(form)
    if payload is None:
        return None
    return Envelope(head[1].decode("ascii"), int(head[2]), payload, attributes)


def _has_its_form(attributes: Mapping[str, str], fields: Sequence[str]) -> bool:
    """Whether what is signed or sealed has the one form of that (§9.2)."""
    if len(attributes) < len(fields) and any(
        sum(field.startswith(f"{name}=") for field in fields) > 1 for name in (SIGNATURE, SEAL)
    ):
        return False
    if SEAL in attributes:
        is_bare = "B" not in attributes and SIGNATURE not in attributes
        return (
            is_bare
            and len(attributes[SEAL]) == _SEAL_CHARS
            and base64url.decode(attributes[SEAL]) is not None
        )
    is_last = fields[-1].startswith(f"{SIGNATURE}=")
    signature = attributes[SIGNATURE]
    return is_last and len(signature) == _SIGNED_CHARS and base64url.decode(signature) is not None


def needs_understanding(envelope: Envelope) -> str | None:
    """Returns the first attribute that begins in upper case, or None. Of such, only `B=1` is known (§9.2)."""
    return next((name for name in envelope.attributes if name[0].isupper()), None)


def read(message: bytes) -> tuple[str | None, int | None, bytes, Mapping[str, str]] | Drop:
    """Returns publisher, number, payload and attributes of a wire message, or why it is dropped.

    A raw message has neither publisher nor number.
    """
    plain = _PLAIN.fullmatch(message)
    if plain is not None:
        publisher, seq, payload = plain.groups()
        return _name_of(publisher), int(seq), payload, {}
    if not is_enveloped(message):
        payload = wire.decode_message(message)
        return Drop.MALFORMED_MESSAGE if payload is None else (None, None, payload, {})
    envelope = parse_envelope(message)
    if envelope is None:
        return Drop.MALFORMED_MESSAGE
    return Drop.NOT_UNDERSTOOD if needs_understanding(envelope) else envelope


@lru_cache(maxsize=4096)
def _name_of(publisher: bytes) -> str:
    """Returns a publisher's name, the same object for all messages of one who is heard often."""
    return publisher.decode("ascii")


# --- base64url (§9.2) ---------------------------------------------------------------------------------


def binary_bytes(payload_bytes: int) -> int:
    """Returns the number of bytes that a payload of this size takes in base64url without `=`."""
    return (4 * payload_bytes + 2) // 3
