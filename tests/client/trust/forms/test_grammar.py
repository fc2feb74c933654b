"""The forms of signed lists as PROTOCOL §10 writes them, against what the code takes."""

from collections.abc import Callable
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof
from kcast.client.trust.forms.note import Note, NoteError, VerifierKey
from kcast.client.trust.forms.record import read_record
from tests.client.trust.checks.test_judge_mutants import mutant
from tests.client.trust.test_vectors import ENTRIES, VECTORS
from tests.support.grammar import PROTOCOL, Grammar

GRAMMAR = Grammar(PROTOCOL)
CHECKPOINT_TEXT = Note.parse(VECTORS["checkpoint"]["data"].encode()).text


def read_proof(data: bytes) -> object:
    proof = LogProof.parse(data)
    return Checkpoint.parse(proof.checkpoint.text)


def read_added(data: bytes) -> object:
    added = AddCheckpoint.parse(data)
    return Checkpoint.parse(added.checkpoint.text)


# Rule, what fits it, what reads it.
RULES: tuple[tuple[str, str, Callable[[bytes], object]], ...] = (
    ("trust-text", VECTORS["trust_document"]["text"], lambda data: documents.parse_text(data.decode())),
    ("vkey", VECTORS["keys"][0]["vkey"], lambda data: VerifierKey.parse(data.decode())),
    ("list-record", ENTRIES[1].decode(), read_record),
    ("trust-record", ENTRIES[0].decode(), read_record),
    ("checkpoint-text", CHECKPOINT_TEXT, lambda data: Checkpoint.parse(data.decode())),
    ("log-proof", VECTORS["proof"]["data"], read_proof),
    ("add-checkpoint", VECTORS["add_checkpoint"][-1]["data"], read_added),
)


@pytest.mark.parametrize(("rule", "sound", "read"), RULES, ids=[rule for rule, _, _ in RULES])
def test_what_is_read_fits_its_rule(rule: str, sound: str, read: Callable[[bytes], object]) -> None:
    pattern = GRAMMAR.pattern(rule)
    assert pattern.fullmatch(sound.encode())
    read(sound.encode())
    rng, misfits = Random(rule), 0
    for _ in range(1_000):
        data = mutant(sound.encode(), rng)
        if len(data) > 20_000:  # the regular expression is slower than the code
            continue
        try:
            read(data)
        except (NoteError, UnicodeDecodeError):
            misfits += not pattern.fullmatch(data)
        else:
            assert pattern.fullmatch(data) or b"\t" in data, data
    assert misfits > 300, "the rule takes almost anything"
