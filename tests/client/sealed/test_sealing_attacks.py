"""What others may try with sealed lines, and the drop that each meets.

An outsider has lines alone. A writer has the epoch's public key and topic secret too, and a reader has all.
"""

from collections.abc import Callable
from hashlib import blake2s

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.messages import base64url
from kcast.client.sealed import frame
from kcast.client.sealed.sealing import Fault, Frame, Opener
from kcast.client.sealed.signing import Signer
from tests.support.sealed_lines import (
    PUBLISHER,
    SMALL_ORDER,
    TOPIC_SECRET,
    epoch,
    parts_of,
    read,
    sealer,
    sound_parts,
    text,
    topic,
)

SIGNER = Signer(bytes(32))
OPENER = Opener(epoch())
LINE = sealer().line(topic(), 1000, text(), None)
SIGNED_LINE = sealer().line(topic(), 1000, text(), SIGNER)
ORDER = 2**252 + 27742317777372353535851937790883648493


class MadeUp:
    """Signs as a function does that is given what is to be signed."""

    def __init__(self, sign: Callable[[bytes], bytes], key: bytes = SIGNER.key) -> None:
        self.key = key
        self.sign_bytes = sign


def made_up(signature: bytes) -> Callable[[bytes], bytes]:
    """Signs anything with this signature."""
    return lambda _data: signature


def with_tag(line: bytes) -> bytes:
    """The line with the tag that a writer would give it."""
    topic_, publisher, enc = line.split(b" ")[0], line.split(b"%@")[1].split(b".")[0], sound_parts(line).enc
    data = b"kcast-tag 1\n" + publisher + b"\0" + enc + topic_
    tag = blake2s(data, digest_size=6, key=TOPIC_SECRET).digest()
    start, _, rest = line.partition(b";S=")
    return start + b";S=" + base64url.encode_ascii(tag + enc) + rest[51:]


def test_the_lines_are_sound() -> None:
    assert read(LINE, [OPENER]) == text()
    assert read(SIGNED_LINE, [OPENER]) == text(sender=SIGNER.key)
    assert with_tag(LINE) == LINE


@pytest.mark.parametrize("line", [LINE, SIGNED_LINE], ids=["sealed", "signed"])
def test_every_byte_changed(line: bytes) -> None:
    """With three other bytes each: another bit, another of the alphabet, none of it."""
    met = set()
    for place in range(len(line)):
        for other in (line[place] ^ 1, ord("A") if line[place] != ord("A") else ord("B"), ord(" ")):
            if other == line[place]:
                continue
            drop = read(line[:place] + bytes([other]) + line[place + 1 :], [OPENER])
            assert isinstance(drop, str), place
            met.add(drop)
    assert met == {"malformed-message", "unknown-key", "not-opened"}


@pytest.mark.parametrize("line", [LINE, SIGNED_LINE], ids=["sealed", "signed"])
def test_lines_cut_and_joined(line: bytes) -> None:
    for size in range(len(line)):
        assert isinstance(read(line[:size], [OPENER]), str)
    for size in range(1, 60):
        assert read(line[:-1] + b"A" * size + b"\n", [OPENER]) in ("not-opened", "malformed-message")
    assert read(line[:-1] + sound_parts(line).payload + b"\n", [OPENER]) == "not-opened"


def moved(where: str, line: bytes) -> bytes:
    """The line with one part of it that was another line's."""
    tag = sound_parts(line).tag
    old, new = {
        "topic": (topic(), topic(b"weather/bergen")),
        "process": (PUBLISHER.encode(), b"AbCdEfGhIjL"),
        "number": (b".1000;", b".1001;"),
        "enc": (
            base64url.encode_ascii(tag + sealer().enc),
            base64url.encode_ascii(tag + sealer(secret=bytes(32)).enc),
        ),
    }[where]
    return line.replace(old, new, 1)


@pytest.mark.parametrize("where", ["topic", "process", "number", "enc"])
def test_moved_by_outsiders(where: str) -> None:
    for line in (LINE, SIGNED_LINE):
        other = moved(where, line)
        assert other != line and parts_of(other) is not None
        assert read(other, [OPENER]) == ("not-opened" if where == "number" else "unknown-key")


@pytest.mark.parametrize("where", ["topic", "process", "number", "enc"])
def test_moved_by_writers_who_know_the_topic_secret(where: str) -> None:
    for line in (LINE, SIGNED_LINE):
        assert read(with_tag(moved(where, line)), [OPENER]) == "not-opened"


def test_another_epoch_and_another_group() -> None:
    """An epoch with other keys and the same topic secret, which no owner makes: only the tag fits."""
    other = Opener(epoch(number=2, private=bytes(32)))
    for line in (LINE, SIGNED_LINE):
        assert read(line, [other]) == "not-opened"
    for opener in (Opener(epoch(group="dev")), Opener(epoch(number=2))):
        assert read(SIGNED_LINE, [opener]) == "bad-signature"


@pytest.mark.parametrize("keys", ["same", "other"])
@pytest.mark.parametrize("where", [{"group": "dev"}, {"number": 2}, {"group": "dev", "number": 2}])
def test_a_reader_passes_a_signed_message_on(where: dict[str, str | int], keys: str) -> None:
    """Into a group or an epoch of its own making, with the same topic secret: even under the same head."""
    unsealed = OPENER.unseal(*sound_parts(SIGNED_LINE)[:-1])
    assert not isinstance(unsealed, Fault)
    replays = MadeUp(made_up(unsealed.signature))
    to = epoch(**where) if keys == "same" else epoch(**where, private=bytes(32))  # type: ignore[arg-type]
    again = sealer(to).line(topic(), 1000, unsealed.frame, replays)
    assert sound_parts(again).head == sound_parts(SIGNED_LINE).head
    assert read(again, [Opener(to)]) == "bad-signature"
    assert read(sealer().line(topic(), 1000, unsealed.frame, replays), [OPENER]) == text(sender=SIGNER.key)


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message._replace(content=b"y" * 100),
        lambda message: message._replace(sent_ms=1),
        lambda message: message._replace(attributes={"r": "elsewhere"}),
        lambda message: message._replace(count=1),
        lambda message: message._replace(count=1, is_cover=True),
    ],
)
def test_a_reader_changes_a_signed_message(change: Callable[[Frame], Frame]) -> None:
    unsealed = OPENER.unseal(*sound_parts(SIGNED_LINE)[:-1])
    assert not isinstance(unsealed, Fault)
    replays = MadeUp(made_up(unsealed.signature))
    line = sealer().line(topic(), 1000, change(unsealed.frame), replays)
    assert read(line, [OPENER]) == "bad-signature"


def test_signatures_have_one_form() -> None:
    for times in range(16):

        def sign(data: bytes, times: int = times) -> bytes:
            signature = SIGNER.sign_bytes(data)
            scalar = int.from_bytes(signature[32:], "little") + times * ORDER
            return signature[:32] + scalar.to_bytes(32, "little")

        found = read(sealer().line(topic(), 1000, text(), MadeUp(sign)), [OPENER])
        assert found == ("bad-signature" if times else text(sender=SIGNER.key))


@pytest.mark.parametrize("number", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_keys_of_small_order_sign_nothing(number: int) -> None:
    key = number.to_bytes(32, "little")
    for point in (0, 1, 2**255 - 20):
        signature = point.to_bytes(32, "little") + bytes(32)
        signer = MadeUp(made_up(signature), key)
        assert read(sealer().line(topic(), 1000, text(), signer), [OPENER]) == "bad-signature"


def test_a_signature_taken_off() -> None:
    """By a reader: then it is unsigned, which counts where nobody's signature is asked for."""
    unsealed = OPENER.unseal(*sound_parts(SIGNED_LINE)[:-1])
    assert not isinstance(unsealed, Fault)
    found = read(sealer().line(topic(), 1000, unsealed.frame, None), [OPENER])
    assert isinstance(found, Frame) and found.sender is None


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_small_points_as_enc(point: bytes) -> None:
    """Without the tag it is not looked at; with it, by a writer, nothing is opened, and nothing raised."""
    parts = sound_parts(LINE)
    seal = base64url.encode_ascii(parts.tag + point)
    line = LINE.replace(base64url.encode_ascii(parts.tag + parts.enc), seal)
    assert read(line, [OPENER]) == "unknown-key"
    assert read(with_tag(line), [OPENER]) == "not-opened"


@pytest.mark.parametrize(
    "data", [b"", bytes(31), b"\x08" + bytes(31), bytes(64), b"\1" + bytes(31), b"\2" + bytes(31)]
)
def test_writers_seal_what_is_no_frame(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "body_of", lambda *_given, **_fields: data)
    monkeypatch.setattr(frame, "padded_bytes", lambda size: size)
    assert read(sealer().line(topic(), 1, text(), None), [Opener(epoch())]) == "not-opened"


def test_forged_lines_with_ever_new_enc_leave_no_state() -> None:
    opener = Opener(epoch())
    assert read(LINE, [opener]) == text()
    before = (list(opener._ciphers._values), list(opener._secrets._values))
    parts = sound_parts(LINE)
    for number in range(50):
        enc = number.to_bytes(32, "big")
        seal = base64url.encode_ascii(parts.tag + enc)
        line = LINE.replace(base64url.encode_ascii(parts.tag + parts.enc), seal)
        assert read(line, [opener]) == "unknown-key"
        assert read(with_tag(line), [opener]) == "not-opened"
    assert (list(opener._ciphers._values), list(opener._secrets._values)) == before


@given(st.binary(min_size=32, max_size=256).map(lambda data: data[: len(data) // 32 * 32]))
def test_no_frame_of_a_writer_raises_an_error(data: bytes) -> None:
    """Whatever a writer seals, readers open it in its one form, or not at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "body_of", lambda *_given, **_fields: data)
        patch.setattr(frame, "padded_bytes", lambda size: size)
        line = sealer().line(topic(), 1, text(), None)
    found = read(line, [OPENER])
    assert found in ("not-opened", "bad-signature") or isinstance(found, Frame)
