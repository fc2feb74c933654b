"""The code against `client/vectors/sealed.json`, and the file against what wrote it."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.messages.envelope import Envelope, format_envelope, parse_envelope
from kcast.client.sealed.dhkem import public_key
from kcast.client.sealed.sealing import Epoch, Fault, Frame, Opener, Sealer, parse_seal
from kcast.client.sealed.signing import Signer, Verifier, key_text, parse_key, parse_signature
from kcast.client.sealed.topics import hash_of, hidden, parse_certified, topic_start
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub import wire
from tests.support import sealed_vectors

VECTORS: dict[str, Any] = json.loads(sealed_vectors.FILE.read_text(encoding="ascii"))
LINES = VECTORS["lines"]
SIGNERS = {vector["key"]: Signer(bytes.fromhex(vector["seed_hex"])) for vector in VECTORS["keys"]}
EPOCHS = [
    Epoch(
        *(vector["group"], vector["number"], 0),
        public=bytes.fromhex(vector["public_hex"]),
        topic_secret=bytes.fromhex(vector["topic_secret_hex"]),
        private=bytes.fromhex(vector["private_hex"]),
    )
    for vector in VECTORS["epochs"]
]
BACK_MS, AHEAD_MS = 120_000, 30_000

_LINE = re.compile(rb"(([^ ]+) (%@[^ ]+ ))(.*)\n")
_SEALED = re.compile(rb"%@([0-9A-Za-z_-]{1,43})\.([1-9][0-9]{0,17});S=([^;]*) ")
_SIGNED = re.compile(r"([^;]*);g=([^;]*)")


def test_the_file_is_what_is_written() -> None:
    assert sealed_vectors.FILE.read_text(encoding="ascii") == sealed_vectors.text()


def keys_of(vector: dict[str, Any]) -> set[bytes] | None:
    """The keys that a line's subscriber takes messages of; None: of anyone."""
    if vector["senders"] is None:
        return None
    return {key for text in vector["senders"] if (key := parse_key(text)) is not None}


def judge(line: bytes, vector: dict[str, Any]) -> dict[str, Any] | str:
    """What the line's subscriber makes of it: the message, or the name of the drop.

    A subscriber of one topic gets lines of others too here, as if it had subscribed to them.
    """
    found = _LINE.fullmatch(line)
    if found is None or not wire.is_topic(found[2]):
        return "malformed-message"
    return judge_sealed(found, vector) if vector["epochs"] else judge_signed(found, vector)


def judge_signed(found: re.Match[bytes], vector: dict[str, Any]) -> dict[str, Any] | str:
    envelope = parse_envelope(found[3] + found[4])
    head = found[3].decode()
    if envelope is None:
        return "malformed-message"
    if ";g=" not in head:
        return "unsigned"
    parts = _SIGNED.fullmatch(head.rstrip(" ").partition(";t=")[2])
    claimed = parse_signature(parts[2]) if parts else None
    if parts is None or claimed is None:
        return "malformed-message"
    allowed, named = keys_of(vector), parse_certified(found[2])
    if allowed is None or claimed.key not in allowed or (named is not None and hash_of(allowed) != named):
        return "unauthorised"
    drop = time_drop(int(parts[1]))
    if drop:
        return drop
    unsigned = found[2] + b" " + head.partition(";g=")[0].encode() + b" " + found[4] + b"\n"
    if not Verifier().is_signed(claimed, unsigned):
        return "bad-signature"
    attributes = {name: value for name, value in envelope.attributes.items() if name not in ("t", "g")}
    return {
        "publisher": envelope.publisher,
        "seq": envelope.seq,
        "sent_ms": int(parts[1]),
        "sender": key_text(claimed.key),
        "attributes": attributes,
        "content": envelope.payload.decode("ascii"),
        "count": None,
    }


def judge_sealed(found: re.Match[bytes], vector: dict[str, Any]) -> dict[str, Any] | str:
    head = found[3]
    if b";S=" not in head:
        return "not-sealed" if parse_envelope(head + found[4]) else "malformed-message"
    parts = _SEALED.fullmatch(head)
    seal = parse_seal(parts[3].decode()) if parts else None
    if parts is None or seal is None or re.search(rb"[^0-9A-Za-z_-]", found[4]):
        return "malformed-message"
    openers = [Opener(EPOCHS[at]) for at in vector["epochs"]]
    tag, enc = seal
    opener = next((each for each in openers if each.is_tag(found[2], parts[1], enc, tag)), None)
    if opener is None:
        return "unknown-key"
    unsealed = opener.unseal(found[1], found[2], parts[1], int(parts[2]), enc, found[4])
    if isinstance(unsealed, Fault):
        return unsealed.value
    allowed = keys_of(vector)
    if allowed is not None and unsealed.frame.sender not in allowed:
        return "unauthorised" if unsealed.frame.sender else "unsigned"
    drop = time_drop(unsealed.frame.sent_ms)
    if drop:
        return drop
    frame = opener.verify(unsealed)
    if isinstance(frame, Fault):
        return frame.value
    return "cover" if frame.is_cover else message_of(frame, parts[1].decode(), int(parts[2]))


def time_drop(sent_ms: int) -> str | None:
    age_ms = VECTORS["read_at_ms"] - sent_ms
    if age_ms > BACK_MS:
        return "too-old"
    return "from-future" if age_ms < -AHEAD_MS else None


def message_of(frame: Frame, publisher: str, seq: int) -> dict[str, Any]:
    return {
        "publisher": publisher,
        "seq": seq,
        "sent_ms": frame.sent_ms,
        "sender": key_text(frame.sender) if frame.sender else None,
        "attributes": dict(frame.attributes),
        "content": frame.content.decode("ascii"),
        "count": frame.count,
    }


@pytest.mark.parametrize("vector", LINES, ids=lambda vector: vector["what"])
def test_lines(vector: dict[str, Any]) -> None:
    assert judge(vector["line"].encode(), vector) == (vector["drop"] or vector["message"])


@pytest.mark.parametrize("vector", LINES, ids=lambda vector: vector["what"])
def test_mutants(vector: dict[str, Any]) -> None:
    assert len(vector["mutants"]) >= 20
    for mutant in vector["mutants"]:
        found = judge(mutant["line"].encode(), vector)
        assert found == mutant["drop"], mutant["description"]


@pytest.mark.parametrize(
    "vector", [vector for vector in LINES if vector["epochs"]], ids=lambda vector: vector["what"]
)
def test_sealers_make_these_lines(vector: dict[str, Any]) -> None:
    message = vector["message"]
    line = vector["line"].encode()
    writer = Sealer(EPOCHS[0], message["publisher"], bytes.fromhex(VECTORS["ephemeral_hex"]))
    assert writer.enc.hex() == VECTORS["enc_hex"]
    frame = Frame(
        *(message["content"].encode(), message["sent_ms"], message["attributes"], message["count"]),
        is_cover=vector["drop"] == "cover",
    )
    signer = SIGNERS[message["sender"]] if message["sender"] else None
    pad_to = 256 if message["count"] is not None else 0
    assert writer.line(vector["topic"].encode(), message["seq"], frame, signer, pad_to) == line


@pytest.mark.parametrize(
    "vector", [vector for vector in LINES if not vector["epochs"]], ids=lambda vector: vector["what"]
)
def test_signers_make_these_lines(vector: dict[str, Any]) -> None:
    signer = SIGNERS[vector["message"]["sender"]]
    lines = [line.encode() for line in vector.get("batch", [vector["line"]])]
    assert vector["line"].encode() in lines
    plain = [re.sub(rb";g=[^ ]+", b"", line) for line in lines]
    assert signer.sign_many(plain, LINE_BYTES_MAX) == lines


def test_keys_and_topics() -> None:
    for text, signer in SIGNERS.items():
        assert signer.key_text == text
    for vector in VECTORS["topics"]["hidden"]:
        topic = hidden(EPOCHS[0].topic_secret, vector["name"].encode())
        assert topic == vector["hidden"].encode()
    for vector in VECTORS["topics"]["certified"]:
        keys = [SIGNERS[text].key for text in vector["keys"]]
        assert topic_start(keys) == vector["start"]
        assert parse_certified(vector["start"].encode()) == hash_of(keys)
    for epoch in EPOCHS:
        assert epoch.private is not None and public_key(epoch.private) == epoch.public


def test_plain_clients_read_what_is_signed() -> None:
    for vector in LINES:
        envelope = parse_envelope(vector["line"].split(" ", 1)[1].rstrip("\n").encode())
        if not vector["epochs"]:
            assert envelope is not None and envelope.payload == b"rain, 4 degrees"
            assert format_envelope(Envelope(*envelope)) == vector["line"].split(" ", 1)[1][:-1].encode()
