"""What PROTOCOL §9.5 to §9.8 says in figures and ABNF is what the code does."""

import re
from random import Random

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.errors import MessageTooLarge
from kcast.client.messages.envelope import Envelope, format_envelope
from kcast.client.messages.lines import SEQ_MAX
from kcast.client.sealed import frame, group_file
from kcast.client.sealed.group_file import GroupFileError, Role
from kcast.client.sealed.keys import MemberError, parse_member
from kcast.client.sealed.signing import SIGNATURE_CHARS, Signer
from kcast.client.sealed.topics import hidden
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub import wire
from tests.support.grammar import PROTOCOL, Grammar
from tests.support.groups import ALICE, BOB, OWNER, made, recipient
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
    [("text, signed alone", b"x"), ("anything, signed alone", b"\0")],
    ids=("text", "anything"),
)
def test_what_fits_signed(name: str, byte: bytes) -> None:
    for fits, seq in zip(row(name), (SEQ_MAX, 9), strict=True):
        assert len(SIGNER.sign(unsigned(byte * fits, seq))) <= LINE_BYTES_MAX
        assert len(SIGNER.sign(unsigned(byte * (fits + 1), seq))) > LINE_BYTES_MAX


def test_what_a_signature_takes() -> None:
    alone = unsigned(b"", 1)
    signed = SIGNER.sign_many([alone] * 16, LINE_BYTES_MAX)
    assert SIGNATURE_CHARS + len(f";t={SENT_MS}") == 147
    of_two = SIGNER.sign_many([alone] * 2, LINE_BYTES_MAX)[0]
    assert len(of_two) - len(alone) == SIGNATURE_CHARS + 26
    assert max(map(len, signed)) - len(alone) == SIGNATURE_CHARS + 92


@pytest.mark.parametrize("is_signed", [False, True], ids=("sealed", "sealed and signed inside"))
def test_what_fits_sealed(is_signed: bool) -> None:
    any_seq, to_9 = row("sealed and signed inside" if is_signed else "sealed")
    writer = sealer()

    def room(topic: bytes, seq: int, *, has_count: bool = False) -> int:
        return writer.room(topic, seq, is_signed=is_signed, has_count=has_count)

    assert (room(TOPIC, SEQ_MAX), room(TOPIC, 9)) == (any_seq, to_9)
    plain, tagged = hidden(TOPIC_SECRET, TOPIC), hidden(TOPIC_SECRET, b"{oslo}weather")
    assert (len(plain), len(tagged)) == (22, 35)
    assert room(plain, SEQ_MAX) == room(plain, 1) == any_seq
    assert room(tagged, 10**9 - 1) == any_seq and room(tagged, 10**9) == room(tagged, SEQ_MAX) == any_seq - 32
    assert room(plain, 1, has_count=True) == any_seq - 8
    for topic in (TOPIC, plain, tagged):  # the formula
        for digits in range(1, 19):
            frames = (3 * (1047 - len(topic) - digits) // 4 - 16) // 32
            assert room(topic, 10 ** (digits - 1)) == 32 * frames - (108 if is_signed else 12)


def test_attributes_inside_are_those_of_the_grammar() -> None:
    rule, rng = GRAMMAR.pattern("frame-text"), Random(1)
    pieces = ("a", "B", "9", "-", "=", ";", "a=b", ";c=d", "%", " ", "\x7f", "~", "=b;", "é")
    accepted = 0
    for _ in range(5000):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 5))).encode()
        body = frame._START.pack(0, 0, len(text), 0) + text
        opened = frame.parse(body.ljust(frame.padded_bytes(len(body)), b"\0"), 1)
        names = [field.split(b"=")[0] for field in text.split(b";")]
        assert (opened is not None) is (bool(rule.fullmatch(text)) and len(set(names)) == len(names)), text
        accepted += opened is not None
    assert accepted > 500


def test_group_files_and_members_words_are_those_of_the_grammar() -> None:
    rule, word = GRAMMAR.pattern("group-text"), GRAMMAR.pattern("member-word")
    members = (
        recipient(OWNER),
        recipient(ALICE, is_sender=True),
        recipient(BOB, Role.WRITER, is_sender=True),
    )
    text = made(3, 2, members=members)[0].text
    assert rule.fullmatch(text.encode()) and group_file.parse_text(text).text == text
    rng, refused = Random(1), 0
    for _ in range(3000):
        at, other = rng.randrange(len(text)), rng.choice("A-_ \n0=+é")
        changed = text[:at] + rng.choice((other, "", text[at] + other)) + text[at + 1 :]
        try:
            group_file.parse_text(changed)
        except GroupFileError:
            refused += 1
        else:
            assert rule.fullmatch(changed.encode()), changed
    assert 500 < refused < 2900
    for who in (OWNER, ALICE):
        assert word.fullmatch(who.member_word.encode())
        for changed in (who.member_word[:-1], who.member_word + "=", who.member_word.replace(".", ":")):
            assert not word.fullmatch(changed.encode())
            with pytest.raises(MemberError):
                parse_member(changed)


def test_too_large_is_what_does_not_fit() -> None:
    (fits, _) = row("sealed")
    writer = sealer()
    whole = frame.Frame(b"x" * fits, SENT_MS)
    assert len(writer.line(TOPIC, SEQ_MAX, whole, None)) <= LINE_BYTES_MAX
    with pytest.raises(MessageTooLarge, match="1 too many"):
        writer.line(TOPIC, SEQ_MAX, whole._replace(content=b"x" * (fits + 1)), None)


def test_the_times_are_those_of_the_text() -> None:
    from kcast.client.messages.guarding import AHEAD_S, BACK_S, TIMES_S_MAX
    from kcast.client.sealed.doubts import FORGED_PER_S, SENDERS_MIN, SILENCE_S
    from kcast.client.sealed.groups import LOOK_INTERVAL_S
    from kcast.client.sealed.guard import CLOCKS_S
    from kcast.client.sealed.membership import ENDS_SOON_SHARE, LINGER_S
    from kcast.client.sealed.replay import BEFORE_START_S, PROCESSES_MAX, WINDOW

    assert (BACK_S, AHEAD_S, CLOCKS_S, BEFORE_START_S, LINGER_S) == (120, 30, 30, 30, 150)
    assert LINGER_S == CLOCKS_S + BACK_S
    assert (TIMES_S_MAX, WINDOW, PROCESSES_MAX, LOOK_INTERVAL_S) == (24 * 3600, 1024, 4096, 60)
    assert (SILENCE_S, SENDERS_MIN, FORGED_PER_S, ENDS_SOON_SHARE) == (60, 3, 100, 0.1)
    signed = TEXT[TEXT.index("## 9.6") : TEXT.index("## 9.7")]
    for said in ("120 s", "30 s ahead", "24 h", "1,024 numbers", "4,096", "60 s", "100 messages a second"):
        assert said in re.sub(r"\s+", " ", signed)
