"""The examples in the docstrings of the documented API are run."""

import pytest

from tests.support.docstring_examples import failing_examples, with_examples

EXAMPLES = {
    "kcast.hashring.compare": ("balance", "diff"),
    "kcast.hashring.effective_size": ("EffectiveSize.interval", "effective_size"),
    "kcast.hashring.hashing": ("hashed_bytes", "rendezvous"),
    "kcast.hashring.intervals": ("delivered_pairs", "student_quantile", "wilson"),
    "kcast.hashring.model": ("delivery", "hypergeometric"),
    "kcast.hashring.policy": ("Policy", "Policy.margin"),
    "kcast.hashring.ring": ("HashRing", "HashRing.explain", "HashRing.nodes_many"),
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_are_true(module: str) -> None:
    assert with_examples(module) == list(EXAMPLES[module])
    assert failing_examples(module) == 0
