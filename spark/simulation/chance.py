"""Random numbers that depend on the seed, the scene and the block, and on nothing else.

Philox counts: its key is the seed and the scene's name, and a block starts at a counter of its own, 2**128
numbers from the next. So blocks can be simulated in any order, anywhere, with the same results.
"""

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

Chance = np.random.Generator
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_PAIRWISE_MAX = 8  # up to so many columns are compared two by two, which is faster than to sort them
_SORTED_MAX = 64  # of so many it is faster to order all at random
_U64 = np.uint64


def chance_of(seed: int, scene: str, block: int) -> Chance:
    """The random numbers of a block. `seed` is 0 .. 2**64 - 1."""
    key = np.array([seed, xxh3_64_intdigest(scene.encode())], _U64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, block, 0], _U64)))


def flags(chance: Chance, shape: tuple[int, ...], probability: float) -> Flags:
    """Each true with `probability`, to within 2**-24."""
    return chance.random(shape, np.float32) < np.float32(probability)


def distinct(chance: Chance, population: int, count: int, rows: int) -> Indices:
    """In each of `rows` rows `count` different of 0 .. population - 1, ordered at random: (rows, count).

    Raises ValueError if there are not so many.
    """
    if not 0 <= count <= population:
        raise ValueError(f"cannot draw {count} different of {population}")
    if count * (count - 1) > population:  # a row of free draws would seldom do
        if population <= _SORTED_MAX:
            keys = chance.random((rows, population), np.float32)
            return np.argsort(keys, axis=1)[:, :count]
        drawn = np.empty((rows, count), np.int64)
        for row in drawn:
            row[:] = chance.choice(population, count, replace=False)
        return drawn
    # Rows in which something occurs twice are drawn again as a whole: all others are equally likely.
    drawn = chance.integers(population, size=(rows, count))
    again = np.arange(rows)
    while len(again := again[_repeats(drawn[again])]):
        drawn[again] = chance.integers(population, size=(len(again), count))
    return drawn


def _repeats(rows: Indices) -> Flags:
    """Whether something occurs twice in a row."""
    count = rows.shape[1]
    if count > _PAIRWISE_MAX:
        ordered = np.sort(rows, axis=1)
        twice: Flags = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        return twice
    twice = np.zeros(len(rows), np.bool_)
    for second in range(1, count):
        for first in range(second):
            twice |= rows[:, first] == rows[:, second]
    return twice
