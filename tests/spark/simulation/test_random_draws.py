"""Random numbers of blocks, and draws without repetition."""

from itertools import permutations, product

import numpy as np
import pytest

from kcast.spark.simulation.random_draws import block_rng, distinct, flags


def first_words(seed: int, scene: str, block: int) -> list[int]:
    words: list[int] = block_rng(seed, scene, block).integers(1 << 62, size=64).tolist()
    return words


def test_numbers_depend_on_seed_scene_and_block_alone() -> None:
    assert first_words(1, "a", 0) == first_words(1, "a", 0)
    others = [first_words(2, "a", 0), first_words(1, "b", 0), first_words(1, "a", 1)]
    seen = {word for words in (first_words(1, "a", 0), *others) for word in words}
    assert len(seen) == 4 * 64  # streams that overlap would share numbers


def test_seeds_may_be_as_large_as_a_word() -> None:
    assert first_words((1 << 64) - 1, "a", (1 << 63) - 1) != first_words(0, "a", 0)


def test_blocks_do_not_run_into_one_another() -> None:
    long = set(block_rng(1, "a", 0).integers(1 << 62, size=200_000).tolist())
    assert long.isdisjoint(first_words(1, "a", 1))


def test_drawn_are_different_and_all_there_are() -> None:
    # Small populations that are ordered at random, free draws, of which some repeat, and one row at a time.
    for population, count in ((5, 5), (10, 4), (1000, 3), (10_000, 12), (100, 60), (7, 0), (1, 1)):
        rows = distinct(block_rng(3, "distinct", count), population, count, 500)
        assert rows.shape == (500, count)
        assert rows.size == 0 or (rows.min() >= 0 and rows.max() < population)
        assert all(len(set(row)) == count for row in rows.tolist())


@pytest.mark.parametrize(("population", "count"), [(4, 2), (6, 2), (70, 9)])
def test_every_order_of_draws_is_equally_likely(population: int, count: int) -> None:
    trials, seed = 24_000, 11
    rows = distinct(block_rng(seed, "uniform", population), population, count, trials)
    pairs, counts = np.unique(rows[:, [0, count - 1]], axis=0, return_counts=True)
    expected = trials / (population * (population - 1))
    if population < 10:
        assert len(pairs) == len(list(permutations(range(population), 2)))
    # The sum of squares has this mean and nearly this variance if all pairs are equally likely.
    degrees = population * (population - 1) - 1
    missing = population * (population - 1) - len(pairs)
    statistic = float(((counts - expected) ** 2 / expected).sum()) + missing * expected
    assert abs(statistic - degrees) < 4.5 * (2 * degrees) ** 0.5, f"seed {seed}"


def test_flags_are_as_likely_as_asked() -> None:
    for probability in (0.0, 0.01, 0.9, 1.0):
        found = int(flags(block_rng(5, "flags", 0), (1000, 100), probability).sum())
        assert abs(found - 100_000 * probability) <= 4.5 * (100_000 * probability * (1 - probability)) ** 0.5


def test_flags_of_words_are_those_of_floats() -> None:
    likely = (0.0, 1e-7, 1 / 3, 0.9, 1 - 2**-24, 1.0)
    for probability, drawn_before, count in product(likely, (0, 1, 2), (4095, 4096)):
        one, other = block_rng(7, "words", 1), block_rng(7, "words", 1)
        for rng in (one, other):
            rng.random(drawn_before, np.float32)
        found = flags(one, (count,), probability)
        assert (found == (other.random(count, np.float32) < np.float32(probability))).all()
        assert one.random(3, np.float32).tolist() == other.random(3, np.float32).tolist()
