"""What PROTOCOL §9.5 to §9.8 says in figures and ABNF is what the code does."""

from random import Random

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.messages.envelope import Envelope, format_envelope
from kcast.client.messages.lines import SEQ_MAX
from kcast.client.sealed import frame
from kcast.client.sealed.signing import Signer
from kcast.client.sealed.topics import hidden
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub import wire
from tests.support.grammar import PROTOCOL, Grammar
from tests.support.sealed_lines import PUBLISHER, SENT_MS, TOPIC_SECRET, sealer

TEXT = PROTOCOL
GRAMMAR = Grammar(TEXT)
SIGNER = Signer(bytes(32))
TOPIC = b"weather/oslo"


def row(name: str) -> list[int]:
    """The figures of §9.5 for t = 12: with any SEQ, and with one digit."""
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {name} |")]
    return [int(cell) for cell in line.split("|")[-3:-1]]


def unsigned(payload: bytes, seq: int) -> bytes:
    message = format_envelope(Envelope(PUBLISHER, seq, payload, {"t": str(SENT_MS)}))
    return wire.publish_line(TOPIC, message)


@pytest.mark.parametrize(
    ("name", "byte"),
    [("text, signed", b"x"), ("anything, signed", b"\0")],
    ids=("text", "anything"),
)
def test_what_fits_signed(name: str, byte: bytes) -> None:
    for fits, seq in zip(row(name), (SEQ_MAX, 9), strict=True):
        assert len(SIGNER.sign(unsigned(byte * fits, seq))) <= LINE_BYTES_MAX
        assert len(SIGNER.sign(unsigned(byte * (fits + 1), seq))) > LINE_BYTES_MAX


def test_what_fits_sealed() -> None:
    any_seq, to_9 = row("anything, sealed")
    room = sealer().room
    assert (room(TOPIC, SEQ_MAX), room(TOPIC, 9)) == (any_seq, to_9)
    plain, tagged = hidden(TOPIC_SECRET, TOPIC), hidden(TOPIC_SECRET, b"{oslo}weather")
    assert (len(plain), len(tagged)) == (22, 35)
    assert room(plain, SEQ_MAX) == room(plain, 1) == any_seq
    assert room(tagged, 10**9 - 1) == any_seq and room(tagged, 10**9) == room(tagged, SEQ_MAX) == any_seq - 32
    assert room(plain, 1, has_count=True) == any_seq - 8
    for topic in (TOPIC, plain, tagged):  # the formula
        for digits in range(1, 19):
            frames = (3 * (1047 - len(topic) - digits) // 4 - 16) // 32
            assert room(topic, 10 ** (digits - 1)) == 32 * frames - 108


def test_attributes_inside_are_those_of_the_grammar() -> None:
    rule, rng = GRAMMAR.pattern("frame-text"), Random(1)
    pieces = ("a", "B", "9", "-", "=", ";", "a=b", ";c=d", "%", " ", "\x7f", "~", "=b;", "é")
    accepted = 0
    for _ in range(5000):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 5))).encode()
        body = frame._START.pack(1, 0, len(text), 0) + text + bytes(96)
        opened = frame.parse(body.ljust(frame.padded_bytes(len(body)), b"\0"), 1)
        names = [field.split(b"=")[0] for field in text.split(b";")]
        assert (opened is not None) is (bool(rule.fullmatch(text)) and len(set(names)) == len(names)), text
        accepted += opened is not None
    assert accepted > 500
