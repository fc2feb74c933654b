"""Lines of the golden vectors, without LF: messages of smart clients, plain, signed and sealed."""

import json
from typing import Any

from tests.support.checkout import ROOT

_WIRE = ROOT / "pubsub" / "vectors" / "wire.json"
_SEALED = ROOT / "client" / "vectors" / "sealed.json"
_MESSAGES = ("messages", "refused_messages", "envelopes", "sealed_envelopes", "refused_envelopes")


def message_lines(topic: bytes = b"t") -> list[bytes]:
    """Each message of the wire's vectors, sound or refused, that can stand in a line, on a topic."""
    document: dict[str, Any] = json.loads(_WIRE.read_text(encoding="ascii"))
    messages = [bytes.fromhex(each["wire_hex"]) for section in _MESSAGES for each in document[section]]
    return [b"%b %b" % (topic, message) for message in messages if b"\n" not in message]


def sealed_lines() -> list[bytes]:
    """Each signed and each sealed line of the vectors, and all that others made of them."""
    document: dict[str, Any] = json.loads(_SEALED.read_text(encoding="ascii"))
    found = [each for vector in document["lines"] for each in (vector, *vector["mutants"])]
    return [each["line"].encode().removesuffix(b"\n") for each in found]
