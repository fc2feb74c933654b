"""client/layers/words.py: the golden vectors both ways, and the grammar of PROTOCOL §9.10 and §9.11."""

import json
from random import Random
from typing import Any

import pytest

from kcast.client.layers import words
from kcast.client.layers.parts import PART_BYTES
from kcast.client.messages.lines import room
from kcast.hashring.hashing import hashed_bytes
from kcast.pubsub import wire
from kcast.pubsub.wire import TopicError
from tests.support import layer_vectors
from tests.support.grammar import PROTOCOL, Grammar

DOCUMENT: dict[str, Any] = json.loads(layer_vectors.FILE.read_text(encoding="ascii"))
GRAMMAR = Grammar(PROTOCOL)
PRESENCE = GRAMMAR.pattern("presence")
IN_MAILBOXES = [GRAMMAR.pattern(rule) for rule in ("request", "more", "answer", "working", "declined")]
KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind
    for kind in (
        *(words.Question, words.Present, words.Leaving),
        *(words.Asked, words.More, words.Answer, words.Working, words.Declined),
    )
}


def meant(vector: dict[str, Any]) -> Any:
    fields = dict(vector["fields"])
    if "payload_hex" in fields:
        fields["payload"] = bytes.fromhex(fields.pop("payload_hex"))
    if "methods" in fields:
        fields["methods"] = tuple(fields["methods"])
    return KINDS[vector["kind"]](**fields)


def parse(section: str, payload: bytes) -> Any:
    return words.parse_presence(payload) if section.endswith("presence") else words.parse_word(payload)


def is_in_the_grammar(section: str, payload: bytes) -> bool:
    """Whether the ABNF has it; what the text beside it says is not looked at."""
    rules = [PRESENCE] if section.endswith("presence") else IN_MAILBOXES
    return any(rule.fullmatch(payload) for rule in rules)


def test_the_file_is_what_the_generator_writes() -> None:
    assert layer_vectors.FILE.read_text(encoding="ascii") == layer_vectors.text()


@pytest.mark.parametrize("section", ["presence", "words"])
def test_both_ways(section: str) -> None:
    for vector in DOCUMENT[section]:
        payload = bytes.fromhex(vector["payload_hex"])
        assert parse(section, payload) == meant(vector), vector["description"]
        assert bytes(meant(vector)) == bytes.fromhex(vector.get("formatted_hex", vector["payload_hex"]))
        assert is_in_the_grammar(section, payload), vector["description"]


@pytest.mark.parametrize("section", ["refused_presence", "refused_words"])
def test_what_is_refused(section: str) -> None:
    beside = ("seconds", "an hour", "part 3 of 3", "513", "512 on", "not UTF-8", "501")
    for vector in DOCUMENT[section]:
        payload = bytes.fromhex(vector["payload_hex"])
        assert parse(section, payload) is None, vector["description"]
        told_beside = any(each in vector["description"] for each in beside)
        assert told_beside or not is_in_the_grammar(section, payload), vector["description"]


def test_what_is_cut_or_changed_is_refused_or_another_word() -> None:
    rng = Random(1)
    for section in ("presence", "words"):
        for vector in DOCUMENT[section]:
            payload = bytes.fromhex(vector["payload_hex"])
            cut = [payload[:end] for end in range(min(len(payload), 80))]
            for _ in range(50):
                at = rng.randrange(len(payload))
                cut.append(payload[:at] + rng.choice((b"", b" ", b"\n", b"0", b"~")) + payload[at + 1 :])
            for each in cut:
                word = parse(section, each)
                assert word is None or is_in_the_grammar(section, each)
                assert word is None or parse(section, bytes(word)) == word


def test_topics() -> None:
    for vector in DOCUMENT["topics"]:
        topic, word = bytes.fromhex(vector["topic_hex"]), vector["word"].encode()
        if vector["name_hex"] is None:
            with pytest.raises(TopicError):
                words.layer_topic(topic, word)
            continue
        name = words.layer_topic(topic, word)
        assert name == bytes.fromhex(vector["name_hex"]), vector["description"]
        assert hashed_bytes(name) == hashed_bytes(topic), "they share their servers"


def test_a_part_of_an_answer_fits_on_the_longest_topic_however_it_is_proven() -> None:
    """§9.5: a signature takes 147 more; sealed on a hidden topic with a tag there are 596 bytes, whatever the
    number."""
    topic = wire.encode_topic(words.layer_topic(b"t" * words.TOPIC_BYTES_MAX, b"Hn2sV0aLxqQ"))
    longest = len(bytes(words.Answer("5f0Kz81q", "Hn2sV0aLxqQ", 511, 512, bytes(PART_BYTES))))
    assert longest <= room(topic).without(147).any_bytes
    assert longest <= 596


def test_what_a_member_says_of_itself_fits() -> None:
    assert words.fits_presence(["m" * 61] * 8 + ["mmmm"], "")
    assert not words.fits_presence(["m" * 61] * 8 + ["mmmmm"], "")
    assert words.fits_presence([], "ø" * 100) and not words.fits_presence([], "ø" * 100 + "a")
    assert words.is_method("") and words.is_method("a.b") and not words.is_method(".")
