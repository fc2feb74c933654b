"""The code against `client/vectors/sealed.json`, and the file against what wrote it."""

import re
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.messages.envelope import Envelope, format_envelope, parse_envelope
from kcast.client.sealed.dhkem import public_key
from kcast.client.sealed.sealing import Frame, Sealer
from kcast.client.sealed.signing import Signer
from kcast.client.sealed.topics import hash_of, hidden, parse_certified, topic_start
from tests.support import sealed_vectors
from tests.support.sealed_guards import EPOCHS, VECTORS

LINES = VECTORS["lines"]
SIGNERS = {vector["key"]: Signer(bytes.fromhex(vector["seed_hex"])) for vector in VECTORS["keys"]}


def test_the_file_is_what_is_written() -> None:
    assert sealed_vectors.FILE.read_text(encoding="ascii") == sealed_vectors.text()


@pytest.mark.parametrize(
    "vector",
    [each for each in LINES if each["epochs"] and not each["message"]["attributes"]],
    ids=lambda vector: vector["what"],
)
def test_sealers_make_these_lines(vector: dict[str, Any]) -> None:
    message = vector["message"]
    line = vector["line"].encode()
    writer = Sealer(EPOCHS[0], message["publisher"], bytes.fromhex(VECTORS["ephemeral_hex"]))
    assert writer.enc.hex() == VECTORS["enc_hex"]
    frame = Frame(
        *(message["content"].encode(), message["sent_ms"]),
        count=message["count"],
        is_cover=vector["drop"] == "cover",
    )
    signer, pad_to = SIGNERS[message["sender"]], 256 if message["count"] is not None else 0
    told = re.fullmatch(rb"[^;]+((?:;[cp]=[^;]+)*);S=.*\n", line)
    assert told is not None
    made = writer.seal(vector["topic"].encode(), message["seq"], frame, signer, pad_to, told[1])
    assert made == line


@pytest.mark.parametrize(
    "vector", [vector for vector in LINES if not vector["epochs"]], ids=lambda vector: vector["what"]
)
def test_signers_make_these_lines(vector: dict[str, Any]) -> None:
    line = vector["line"].encode()
    assert SIGNERS[vector["message"]["sender"]].sign(re.sub(rb";g=[^ ]+", b"", line)) == line


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
