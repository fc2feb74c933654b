"""Checks all proofs of all trees to 1025 leaves against RFC 9162 written down literally and against pymerkle,
and that no mutant of a proof is taken.

    python -m tests.benchmarks.proofs [--mutants 1000000] [--seed 9162]

It takes about a minute. `tests/client/trust/forms/test_proofs.py` has a sample of it.
"""

import argparse
from collections.abc import Callable
from time import perf_counter

from tests.support import proofs


def timed(what: str, work: Callable[[], int]) -> int:
    """Prints what was done, how often, and how long it took; returns how often."""
    start = perf_counter()
    count = work()
    print(f"{count:>10,} {what} ({perf_counter() - start:.1f} s)", flush=True)
    return count


def main() -> None:
    """Prints a line for each kind of proof."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mutants", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=9162)
    given = parser.parse_args()
    sizes = range(1, proofs.SIZE_MAX + 1)
    timed("right proofs taken", lambda: proofs.check_right_proofs(sizes))
    timed("paths as pymerkle has them, taken by both", lambda: proofs.check_against_pymerkle(sizes))
    what = f"of {given.mutants:,} mutants taken, with seed {given.seed}"
    taken = timed(what, lambda: proofs.false_proofs(given.mutants, given.seed, proofs.tree_of()))
    if taken:
        raise SystemExit("a false proof was taken")


if __name__ == "__main__":
    main()
