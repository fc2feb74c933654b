"""The examples in the docstrings of the documented API are run."""

import doctest
from importlib import import_module

import pytest

EXAMPLES = {
    "compare": ("balance", "diff"),
    "effective_size": ("EffectiveSize.interval", "effective_size"),
    "hashing": ("hashed_bytes", "rendezvous"),
    "intervals": ("delivered_pairs", "student_quantile", "wilson"),
    "model": ("delivery", "hypergeometric"),
    "policy": ("Policy",),
    "ring": ("HashRing", "HashRing.explain", "HashRing.nodes_many"),
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_are_true(module: str) -> None:
    module = f"kcast.hashring.{module}"
    tests = doctest.DocTestFinder().find(import_module(module))
    found = [test.name.removeprefix(f"{module}.") for test in tests if test.examples]
    assert sorted(found) == sorted(EXAMPLES[module.rpartition(".")[2]])
    assert doctest.testmod(import_module(module)).failed == 0
