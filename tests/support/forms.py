"""The short form of a test, which `make test` runs, and the long one, which a sixth of the rest runs.

A test takes the fixture `seeds`, which `tests/conftest.py` has, and says how many it runs in each form:

    def test_the_table_is_as_a_naive_one(seeds: Seeds) -> None:
        for seed in seeds(4, 40): ...

Each seed is printed as it begins: so the last one that a failure shows is the one that failed. KCAST_SEED=17
runs that one alone; KCAST_SEEDS=500 runs 500 of them, and KCAST_SEEDS=all as many as the long form has.

Where cases differ in kind, `few_of` leaves all but the first ones to the long form.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

Seeds = Callable[[int, int], Iterator[int]]


def chosen(few: int, every: int, environ: Mapping[str, str]) -> range:
    """Returns the seeds to run."""
    if only := environ.get("KCAST_SEED"):
        return range(int(only), int(only) + 1)
    count = environ.get("KCAST_SEEDS")
    return range(few if not count else every if count == "all" else int(count))


def announced(seeds: range) -> Iterator[int]:
    """Yields each seed after it has said which it is."""
    for seed in seeds:
        print(f"KCAST_SEED={seed}")
        yield seed


def few_of(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Returns cases for `pytest.mark.parametrize`, of which `make test` runs the first `count`.

    A case of several arguments is a tuple.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.rest] * (number >= count)
        )
        for number, case in enumerate(cases)
    ]
