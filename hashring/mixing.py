"""`hashing.mix64` over arrays, in place. A look-up in a large ring spends most of its time here."""

import numpy as np
import numpy.typing as npt

from kcast.hashring.hashing import MULTIPLIER_A, MULTIPLIER_B

LAST_STEP_BITS = 64 - 31
"""The last step of `mix64` changes only this many low bits."""

Words = npt.NDArray[np.uint64]

_A, _B = np.uint64(MULTIPLIER_A), np.uint64(MULTIPLIER_B)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)


def mix_in_place(words: Words, scratch: Words) -> None:
    """Replaces every element by its `mix64`. `scratch` has the shape of `words` and is overwritten."""
    premix_in_place(words, scratch)
    finish_mix_in_place(words, scratch)


def premix_in_place(words: Words, scratch: Words) -> None:
    """Does all of `mix_in_place` but its last step, which changes only the low `LAST_STEP_BITS` bits."""
    np.right_shift(words, _30, out=scratch)
    words ^= scratch
    words *= _A
    np.right_shift(words, _27, out=scratch)
    words ^= scratch
    words *= _B


def finish_mix_in_place(words: Words, scratch: Words) -> None:
    """Does the last step of `mix_in_place`, after `premix_in_place`."""
    np.right_shift(words, _31, out=scratch)
    words ^= scratch
