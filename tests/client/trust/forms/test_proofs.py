"""Right proofs, which are taken, and mutants of them, which are not: a sample of all that there are."""

import pytest

from tests.support import proofs
from tests.support.forms import Seeds

SIZES = (*range(1, 34), 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025)


def test_right_proofs_are_taken() -> None:
    assert proofs.check_right_proofs(range(1, 41)) > 1600
    assert proofs.check_right_proofs(SIZES, step=7) > 2000


def test_pymerkle_has_the_same_paths_of_inclusion() -> None:
    pytest.importorskip("pymerkle")
    assert proofs.check_against_pymerkle(SIZES, step=11) > 500


def test_no_mutant_is_taken(seeds: Seeds) -> None:
    for seed in seeds(1, 4):
        assert proofs.false_proofs(5000, seed, proofs.tree_of()) == 0
