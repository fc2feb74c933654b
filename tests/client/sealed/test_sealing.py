"""client/sealed/sealing.py: what is sealed is opened, how large it becomes, and what is kept."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2s
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kcast.client.errors import MessageTooLarge
from kcast.client.events import Drop
from kcast.client.messages import base64url
from kcast.client.sealed import sealing
from kcast.client.sealed.dhkem import decapsulate
from kcast.client.sealed.sealing import Frame, Opener, SealError, parse_seal
from kcast.client.sealed.signing import Signer
from kcast.client.session.requests import LINE_BYTES_MAX
from tests.support.sealed_lines import (
    PRIVATE,
    PUBLISHER,
    SMALL_ORDER,
    TOPIC_SECRET,
    epoch,
    read,
    sealer,
    sound_parts,
    text,
    topic,
)

SIGNER = Signer(bytes(32))
SEQ_13 = 10**12
SEQ_MAX = 10**18 - 1


@pytest.mark.parametrize(
    "message",
    [
        text(),
        text(0),
        text(count=7),
        text(0, count=6, is_cover=True),
    ],
)
def test_what_is_sealed_is_opened(message: Frame) -> None:
    opener = Opener(epoch())
    expected = message._replace(sender=SIGNER.key)
    for pad_to in (0, 256, 640):
        line = sealer().line(topic(), 7, message, SIGNER, pad_to)
        found = read(line, [opener])
        assert found == (expected if expected.count or not pad_to else expected._replace(count=7))


def test_an_epoch_is_known_by_the_tag() -> None:
    openers = [Opener(epoch(number=number, private=bytes([number]) * 32)) for number in (1, 2, 3)]
    line = sealer(openers[1].epoch).line(topic(), 1, text(), SIGNER)
    parts = sound_parts(line)
    assert read(line, openers[1:]) == read(line, openers[1:2]) == text(sender=SIGNER.key)
    assert openers[0].is_tag(
        parts.topic, parts.publisher, parts.enc, parts.tag
    )  # it has the same topic secret
    other = Opener(replace(openers[1].epoch, topic_secret=bytes(32)))
    assert read(line, [other]) == "unknown-key"


@pytest.mark.parametrize(
    ("name", "seq", "size", "line_bytes"),
    [
        (b"weather/oslo", 1000, 100, 417),
        (b"weather/oslo", 1000, 628, 1100),
        (b"weather/oslo", SEQ_MAX, 628, 1114),
        (b"{oslo}weather", 10**9 - 1, 628, 1118),
        (b"{oslo}weather", 10**9, 596, 1076),
        (b"{oslo}weather", SEQ_13, 596, 1079),
    ],
)
def test_sizes(name: bytes, seq: int, size: int, line_bytes: int) -> None:
    line = sealer().line(topic(name), seq, text(size), SIGNER)
    assert len(line) == line_bytes
    found = read(line, [Opener(epoch())])
    assert isinstance(found, Frame) and len(found.content) == size


@pytest.mark.parametrize("fields", [{}, {"count": 1}])
@pytest.mark.parametrize("wire_topic", [topic(), topic(b"{oslo}weather"), b"t", b"t" * 255])
def test_what_fits_is_what_is_said_to_fit(wire_topic: bytes, fields: dict[str, Any]) -> None:
    for seq in (1, 1000, 10**9 - 1, 10**9, SEQ_MAX):
        room = sealer().room(wire_topic, seq, has_count="count" in fields)
        line = sealer().line(wire_topic, seq, text(room, **fields), SIGNER)
        assert len(line) <= LINE_BYTES_MAX < len(line) + 43  # the next larger frame has 32 bytes more
        with pytest.raises(MessageTooLarge, match=f"{room + 5} bytes, 5 too many. .* at most {room} fit"):
            sealer().line(wire_topic, seq, text(room + 5, **fields), SIGNER)


def test_lines_of_one_size() -> None:
    messages = [text(0, count=1, is_cover=True), text(1), text(100), text(512 - 116)]
    lines = [sealer().line(topic(), 1000, message, SIGNER, pad_to=512) for message in messages]
    assert {len(line) for line in lines} == {97 + 704}
    with pytest.raises(MessageTooLarge, match=r"397 bytes, 1 too many. Sealed .* at most 396 fit"):
        sealer().line(topic(), 1000, text(397), SIGNER, pad_to=512)
    for pad_to in (32, 768, 1024):
        with pytest.raises(MessageTooLarge, match="not even an empty one fits"):
            sealer().line(topic(), 1000, text(0), SIGNER, pad_to=pad_to)
    with pytest.raises(ValueError, match="multiple of 32"):
        sealer().line(topic(), 1000, text(1), SIGNER, pad_to=100)


@pytest.mark.parametrize(
    "fields", [{"count": 0}, {"count": 8}, {"is_cover": True}, {"count": 7, "is_cover": True}]
)
def test_counts_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="message 7 has the count"):
        sealer().line(topic(), 7, text(**fields), SIGNER)


def test_a_line_says_nothing_of_what_is_in_it() -> None:
    one = sealer().line(topic(), 1000, text(17), SIGNER)
    other = sealer().line(topic(), 1000, text(0), SIGNER)
    assert len(one) == len(other)
    assert [sound_parts(line)[:-2] for line in (one, other)] == [sound_parts(one)[:-2]] * 2


def test_each_topic_process_and_epoch_has_a_key_of_its_own() -> None:
    """One number, one content, one `enc`: nothing that is sealed is equal, but for a clone's."""
    wheres = [
        (epoch(), topic(), PUBLISHER),
        (epoch(), topic(b"other"), PUBLISHER),
        (epoch(), topic(), "AbCdEfGhIjL"),
        (epoch(private=bytes(32)), topic(), PUBLISHER),
    ]
    payloads = [
        sound_parts(sealer(where, name).line(wire_topic, 1, text(), SIGNER)).payload
        for where, wire_topic, name in wheres
    ]
    assert len(set(payloads)) == len(payloads)
    again = sound_parts(sealer().line(topic(), 1, text(), SIGNER)).payload
    assert again == payloads[0]
    blocks = {payload[i : i + 20] for payload in payloads for i in range(0, len(payload), 20)}
    assert len(blocks) == sum(-(-len(payload) // 20) for payload in payloads)


def test_contexts_are_kept_after_an_open_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    met = []

    def counted(private: X25519PrivateKey, public: bytes, enc: bytes) -> bytes | None:
        met.append(enc)
        return decapsulate(private, public, enc)

    monkeypatch.setattr("kcast.client.sealed.sealing.decapsulate", counted)
    opener = Opener(epoch())
    line = sealer().line(topic(), 1, text(), SIGNER)
    parts = sound_parts(line)
    wrong = parts.payload[:-1] + (b"A" if parts.payload[-1:] != b"A" else b"E")
    for _ in range(3):
        assert opener.unseal(*parts[:-2], wrong) is Drop.NOT_OPENED
        assert not isinstance(opener.unseal(*parts[:-1]), Drop)  # whoever signed it, is not known yet
    assert len(met) == 6 and not len(opener._ciphers) and not len(opener._secrets)
    for seq in range(1, 4):
        assert isinstance(read(sealer().line(topic(), seq, text(), SIGNER), [opener]), Frame)
        assert isinstance(read(sealer().line(topic(b"other"), seq, text(), SIGNER), [opener]), Frame)
    assert len(met) == 7, "one operation on the curve for all topics of a process"


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_a_group_whose_secrets_all_know_is_refused(point: bytes) -> None:
    with pytest.raises(SealError, match="group ops: with the public key of epoch 1 everybody could read"):
        sealer(replace(epoch(), public=point))
    with pytest.raises(SealError, match="do not belong together"):
        Opener(replace(epoch(), public=point))


def test_epochs_of_which_one_has_not_the_keys() -> None:
    with pytest.raises(SealError, match="you may write in epoch 1, but not read: ask its owner"):
        Opener(replace(epoch(), private=None))
    with pytest.raises(SealError, match="do not belong together"):
        Opener(replace(epoch(), private=bytes(32)))
    with pytest.raises(SealError, match="a topic secret has 32 bytes, not 31"):
        replace(epoch(), topic_secret=bytes(31))
    with pytest.raises(SealError, match="a public key has 32 bytes, not 0"):
        replace(epoch(), public=b"")


def test_an_openssl_without_the_cipher_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_key: bytes) -> None:
        raise UnsupportedAlgorithm("AES-GCM-SIV is not supported by this version of OpenSSL")

    monkeypatch.setattr(sealing, "AESGCMSIV", refuse)
    for make in (sealer, lambda: Opener(epoch())):
        with pytest.raises(
            SealError, match=r"need AES-GCM-SIV, and the OpenSSL here has none .* install"
        ) as caught:
            make()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "A" * 50, "A" * 52, "A" * 50 + "B", "A" * 50 + "=", "A" * 50 + "\xe9"])
def test_what_is_no_seal(value: str) -> None:
    assert parse_seal(value) is None


def test_secrets_are_in_no_text() -> None:
    for shown in (repr(epoch()), str(epoch()), repr(sealer()), repr(Opener(epoch()))):
        for secret in (PRIVATE, TOPIC_SECRET):
            assert repr(secret)[2:-1] not in shown and secret.hex() not in shown


# --- What is made up ----------------------------------------------------------------------------------


def with_enc(line: bytes, enc: bytes) -> bytes:
    """The line with another `enc`, and the tag that a writer would give it."""
    parts = sound_parts(line)
    data = b"kcast-tag 1\n" + parts.publisher + b"\0" + enc + parts.topic
    seal = base64url.encode_ascii(blake2s(data, digest_size=6, key=TOPIC_SECRET).digest() + enc)
    return line.replace(base64url.encode_ascii(parts.tag + parts.enc), seal)


def test_any_enc_under_a_right_tag_opens_nothing_and_leaves_nothing() -> None:
    """Also those of small order, with which the secret would be no secret."""
    opener = Opener(epoch())
    line = sealer().line(topic(), 1, text(), SIGNER)
    assert with_enc(line, sealer().enc) == line and isinstance(read(line, [opener]), Frame)
    before = (list(opener._ciphers._values), list(opener._secrets._values))
    for enc in (*SMALL_ORDER, *(number.to_bytes(32, "big") for number in range(2, 50))):
        assert read(with_enc(line, enc), [opener]) == "not-opened"
    assert (list(opener._ciphers._values), list(opener._secrets._values)) == before


class _Said:
    """Signs as a function does that is given what is to be signed."""

    key = SIGNER.key

    def __init__(self, sign: Callable[[bytes], bytes]) -> None:
        self.sign_bytes = sign


def test_no_reader_passes_a_message_on_or_changes_it() -> None:
    """Into a group or an epoch of its own making, with the same topic secret, even under one head."""
    line = sealer().line(topic(), 1000, text(), SIGNER)
    unsealed = Opener(epoch()).unseal(*sound_parts(line)[:-1])
    assert not isinstance(unsealed, Drop)
    again = _Said(lambda _data: unsealed.signature)
    for of in (epoch(group="dev"), epoch(number=2), epoch(private=bytes(32))):
        passed_on = sealer(of).line(topic(), 1000, unsealed.frame, again)
        assert read(passed_on, [Opener(of)]) == "bad-signature"
    changes: list[dict[str, Any]] = [
        *({"content": b"y" * 100}, {"sent_ms": 1}, {"count": 1}),
        {"count": 1, "is_cover": True},
    ]
    for fields in changes:
        changed = sealer().line(topic(), 1000, text(**fields), again)
        assert read(changed, [Opener(epoch())]) == "bad-signature"
    assert sealer().line(topic(), 1000, text(), again) == line
