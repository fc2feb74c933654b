"""Messages of smart clients, and what terminals and programs are shown of them. PROTOCOL §9."""

import base64
import json
import re
import unicodedata
from functools import cache

from kcast.client.cli.text import escaped, text_fields, to_json
from kcast.client.events import Drop
from kcast.client.messages import envelope as enveloping
from kcast.client.messages.envelope import Envelope
from tests.support.grammar import PROTOCOL, Grammar


def check(data: bytes) -> None:
    """Takes bytes as a message in wire form, and as the payload of one."""
    _check_message(data)
    _check_payload(data)
    _check_shown(data)


def _check_message(data: bytes) -> None:
    read = enveloping.read(data)
    envelope = enveloping.parse_envelope(data)
    if isinstance(read, Drop):
        assert read in (Drop.MALFORMED_MESSAGE, Drop.NOT_UNDERSTOOD)
        assert (read is Drop.NOT_UNDERSTOOD) == (envelope is not None)
    elif enveloping.is_enveloped(data):
        assert read == envelope is not None and not any(name[0].isupper() for name in envelope.attributes)
        assert enveloping.is_publisher(envelope.publisher) and 1 <= envelope.seq < 10**18
    else:
        assert read[:2] == (None, None) and envelope is None
    if envelope is not None and enveloping.needs_understanding(envelope) is None:
        assert enveloping.parse_envelope(enveloping.format_envelope(envelope)) == envelope
    if envelope is not None:
        _check_proofs(data.partition(b" ")[0].split(b";")[1:], envelope)


@cache
def _pattern(rule: str) -> re.Pattern[bytes]:
    return Grammar(PROTOCOL).pattern(rule)


def _check_proofs(fields: list[bytes], envelope: Envelope) -> None:
    """What is signed or sealed has the one form that the text gives it, once (§9.2)."""
    signatures = [field[2:] for field in fields if field.startswith(b"g=")]
    seals = [field[2:] for field in fields if field.startswith(b"S=")]
    assert len(signatures) + len(seals) <= 1
    if signatures:
        assert _pattern("signature").fullmatch(signatures[0]) and fields[-1].startswith(b"g=")
        assert envelope.attributes["g"].encode() == signatures[0]
    if seals:
        assert _pattern("seal").fullmatch(seals[0]) and not any(field.startswith(b"B=") for field in fields)


def _check_payload(payload: bytes) -> None:
    envelope = Envelope("p", 1, payload, {"t": "1"})
    message = enveloping.format_envelope(envelope)
    assert enveloping.parse_envelope(message) == envelope
    assert enveloping.read(message) == envelope


def _check_shown(data: bytes) -> None:
    shown = escaped(data)
    assert shown == escaped(shown)
    shown.encode()
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    line = to_json(text_fields("payload", data))
    assert line.isascii() and line.isprintable()
    fields = json.loads(line)
    if "payload" in fields:
        assert fields["payload"].encode() == data
    else:
        assert base64.b64decode(fields["payload_base64"]) == data
