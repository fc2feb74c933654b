"""client/trust/forms/heads.py: what servers say of a log, and what of it is a hint."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.heads import head_of, newer_heads, told

ROOT = bytes(range(32))
HELD = Checkpoint("example.org/lab/log", 42, ROOT)


def test_a_head_is_size_and_half_of_the_root() -> None:
    assert head_of(HELD) == "42.AAECAwQFBgcICQoLDA0ODw"
    assert len(head_of(Checkpoint("x", 999_999_999, ROOT))) == 32, "as long as head= may be (PROTOCOL 5.1)"


def test_larger_trees_and_other_roots_are_hints() -> None:
    other = bytes(32)
    heads = {
        "same": head_of(HELD),
        "larger": head_of(Checkpoint("x", 43, other)),
        "smaller": head_of(Checkpoint("x", 41, other)),
        "another": head_of(Checkpoint("x", 42, other)),
        "none": "",
        "zeros": "0043." + 22 * "A",
        "huge": "1" * 10 + "." + 22 * "A",
        "long": head_of(HELD) + "A",
    }
    assert newer_heads(heads, HELD) == {"larger": 43, "another": 42}


def test_what_is_told_names_what_most_of_them_say() -> None:
    heads = dict.fromkeys("abcde", "")
    assert told({"a": 43, "b": 43, "c": 99}, heads, HELD) == "held 42, 2 of 5 servers say 43"
    assert told({"a": 42}, heads, HELD) == "held 42, 1 of 5 servers say another 42"
    assert told({"a": 43}, {"a": ""}, HELD) == "held 42, 1 of 1 servers says 43"
