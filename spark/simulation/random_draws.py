"""Random numbers that depend on the seed, the scene and the block, and on nothing else.

Philox generates them from a counter. Its key is the seed and the scene's name, and each block starts at a
counter of its own, 2**128 numbers from the next. So blocks can be simulated in any order, on any machine,
with the same results.
"""

import sys
from math import ceil, prod

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

Rng = np.random.Generator
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_SORTED_MAX = 64  # up to this population it is faster to order all at random
_RAW_MIN = 2048  # from this number of flags on it is faster to compare the generator's own words
_IS_LITTLE = sys.byteorder == "little"
_U64 = np.uint64


def block_rng(seed: int, scene: str, block: int) -> Rng:
    """Returns the random generator of a block. `seed` is 0 .. 2**64 - 1."""
    key = np.array([seed, xxh3_64_intdigest(scene.encode())], _U64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, block, 0], _U64)))


def flags(rng: Rng, shape: tuple[int, ...], probability: float) -> Flags:
    """Returns booleans that are true with `probability`, to within 2**-24."""
    found = np.empty(prod(shape), np.bool_)
    bound = np.float32(probability)
    if len(found) < _RAW_MIN or not _IS_LITTLE:
        np.less(rng.random(len(found), np.float32), bound, out=found)
        return found.reshape(shape)
    # The same in half the time: `random` takes the upper 24 bits of each half of the generator's words, the
    # lower half first. A half may be left from an earlier draw, and one may be left by this.
    first = int(rng.bit_generator.state["has_uint32"])
    words = (len(found) - first) // 2
    middle, end = found[first : first + 2 * words], found[first + 2 * words :]
    found[:first] = rng.random(first, np.float32) < bound
    below = ceil(float(bound) * (1 << 24)) << 8
    np.less(rng.bit_generator.random_raw(words).view(np.uint32), below, out=middle)
    end[:] = rng.random(len(end), np.float32) < bound
    return found.reshape(shape)


def distinct(rng: Rng, population: int, count: int, rows: int) -> Indices:
    """Draws `count` different numbers of 0 .. population - 1 for each row, in random order: (rows, count).
    `count` is at most `population`."""
    if count * (count - 1) > population:  # rows drawn freely would mostly repeat a number
        if population <= _SORTED_MAX:
            keys = rng.random((rows, population), np.float32)
            return np.argsort(keys, axis=1)[:, :count]
        drawn = np.empty((rows, count), np.int64)
        for row in drawn:
            row[:] = rng.choice(population, count, replace=False)
        return drawn
    # A row that repeats a number is drawn again as a whole, so all others stay equally likely.
    drawn = rng.integers(population, size=(rows, count))
    again = np.arange(rows)
    while len(again := again[_repeats(drawn[again])]):
        drawn[again] = rng.integers(population, size=(len(again), count))
    return drawn


def _repeats(rows: Indices) -> Flags:
    """Whether a row repeats a number, for each row."""
    ordered = np.sort(rows, axis=1)
    twice: Flags = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return twice
