"""What client/history says on the wire: the golden vectors both ways, and the grammar of PROTOCOL §9.12."""

import json
from random import Random
from typing import Any

import pytest

from kcast.client.history import ids, index, words
from kcast.client.history.ids import Stamp
from kcast.client.history.index import Block, Index
from kcast.client.history.runs import parse_runs
from kcast.client.messages import base64url
from tests.support import history_vectors
from tests.support.grammar import PROTOCOL, Grammar

DOCUMENT: dict[str, Any] = json.loads(history_vectors.FILE.read_text(encoding="ascii"))
GRAMMAR = Grammar(PROTOCOL)
RULES = {
    "said": [GRAMMAR.pattern(rule) for rule in ("have", "keep")],
    "words": list(
        map(GRAMMAR.pattern, ("ask-by-runs", "ask-by-shorts", "what", "parts-of-it", "sent", "kept"))
    ),
}
KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind
    for kind in (words.Have, words.Keep, words.Ask, words.What, words.Parts, words.Sent, words.Kept)
}


def bound(text: str) -> bytes:
    found = index.parse_bound(text)
    assert found is not None
    return found


def block(entries: int, fingerprint: str) -> Block:
    return Block(entries, base64url.decode(fingerprint) or b"")


def meant(vector: dict[str, Any]) -> Any:
    fields = dict(vector["fields"])
    for name, given in fields.items():
        match name:
            case "lo" | "hi" | "next" | "floor" if isinstance(given, str):
                fields[name] = bound(given)
            case "ids":
                fields[name] = [ids.parse_id(each) for each in given]
            case "blocks":
                fields[name] = [block(*each) for each in given]
            case "pinned":
                fields[name] = None if given is None else block(*given)
            case "parts":
                fields[name] = [(bound(upper), block(*each)) for upper, *each in given]
            case "shorts":
                fields[name] = None if given is None else frozenset(base64url.decode(each) for each in given)
            case "start" | "stop":
                fields[name] = tuple(given)
            case "runs" if given != "":
                fields[name] = {name: [tuple(run) for run in of_one] for name, of_one in given}
    return KINDS[vector["kind"]](**fields)


def formatted(word: Any) -> bytes:
    """A question is written with its runs as text."""
    runs = getattr(word, "runs", "")
    if not isinstance(runs, str):
        each = [
            f"{name}:" + ",".join(str(low) if low == high else f"{low}-{high}" for low, high in of_one)
            for name, of_one in runs.items()
        ]
        word = word._replace(runs=" ".join(each))
        assert parse_runs(word.runs) == runs
    return bytes(word)


def parse(section: str, payload: bytes) -> Any:
    return words.parse_said(payload) if section.endswith("said") else words.parse_word(payload)


def is_in_the_grammar(section: str, payload: bytes) -> bool:
    """Whether the ABNF has it; what the text beside it says is not looked at."""
    return any(rule.fullmatch(payload) for rule in RULES[section.removeprefix("refused_")])


def test_the_file_is_what_the_generator_writes() -> None:
    assert history_vectors.FILE.read_text(encoding="ascii") == history_vectors.text()


def test_clocks_and_ids() -> None:
    for vector in DOCUMENT["varints"]:
        assert ids.varint(vector["number"]).hex() == vector["hex"]
    for vector in DOCUMENT["ids"]:
        topic, message = bytes.fromhex(vector["topic_hex"]), bytes.fromhex(vector["message_hex"])
        assert ids.clock_text(vector["clock"]) == vector["c"]
        assert ids.to_text(ids.id_of(vector["clock"], topic, message)) == vector["id"]
    for vector in DOCUMENT["stamps"]:
        parents = [ids.parse_id(each) for each in vector["parents"]]
        stamp = Stamp(vector["clock"], [each for each in parents if each is not None])
        assert ids.read_stamp(vector["attributes"]) == stamp, vector["description"]
        assert ids.attributes_of(stamp) == vector["attributes"]
        for name, value in vector["attributes"].items():
            assert GRAMMAR.pattern(f"value-of-{name}").fullmatch(value.encode())
    for vector in DOCUMENT["refused_stamps"]:
        assert ids.read_stamp(vector["attributes"]) is None, vector["description"]


def test_fingerprints_and_short_ids() -> None:
    for vector in DOCUMENT["fingerprints"]:
        inside = Index(bound(each) for each in vector["ids"])
        found = inside.block(index.LOWEST, index.HIGHEST)
        assert found == block(len(vector["ids"]), vector["fingerprint"])
    for vector in DOCUMENT["shorts"]:
        assert base64url.encode(words.short_of(bound(vector["id"]), vector["q"])) == vector["short"]


@pytest.mark.parametrize("section", ["said", "words"])
def test_both_ways(section: str) -> None:
    for vector in DOCUMENT[section]:
        payload = bytes.fromhex(vector["payload_hex"])
        word = parse(section, payload)
        assert word == meant(vector), vector["description"]
        assert formatted(meant(vector)) == bytes.fromhex(vector.get("formatted_hex", vector["payload_hex"]))
        assert is_in_the_grammar(section, payload), vector["description"]


@pytest.mark.parametrize("section", ["refused_said", "refused_words"])
def test_what_is_refused(section: str) -> None:
    for vector in DOCUMENT[section]:
        payload = bytes.fromhex(vector["payload_hex"])
        assert parse(section, payload) is None, vector["description"]
        assert is_in_the_grammar(section, payload) == ("(beside)" in vector["description"]), vector


def test_what_is_cut_or_changed_is_refused_or_another_word() -> None:
    rng = Random(1)
    for section in ("said", "words"):
        for vector in DOCUMENT[section]:
            payload = bytes.fromhex(vector["payload_hex"])
            changed = [payload[:end] for end in range(min(len(payload), 80))]
            for _ in range(50):
                at = rng.randrange(len(payload))
                changed.append(payload[:at] + rng.choice((b"", b" ", b"\n", b"0", b"~")) + payload[at + 1 :])
            for each in changed:
                word = parse(section, each)
                assert word is None or is_in_the_grammar(section, each), each
                assert word is None or parse(section, formatted(word)) == word, each
