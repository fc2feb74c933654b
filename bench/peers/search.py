"""Looks for the highest rate that a server sustains."""

from collections.abc import Callable

STEP = 1.25
STEPS_MAX = 12
HALVINGS = 3  # after which the answer is known to within 3 %


def highest_rate(sustains: Callable[[float], bool], first: float) -> float:
    """Returns the highest rate found that is sustained, beginning with a guess; 0 if none is.

    From the guess it goes up or down by a quarter until the answer changes, then halves what is between.
    """
    if sustains(first):
        good, bad = _climb(sustains, first, STEP)
    else:
        bad, good = _climb(lambda rate: not sustains(rate), first, 1 / STEP)
    if not good or not bad:
        return good or 0.0
    for _ in range(HALVINGS):
        middle = (good * bad) ** 0.5
        if sustains(middle):
            good = middle
        else:
            bad = middle
    return good


def _climb(holds: Callable[[float], bool], rate: float, step: float) -> tuple[float, float]:
    """Returns the last rate for which it holds, and the first for which it does not, or else 0."""
    for _ in range(STEPS_MAX):
        if not holds(rate * step):
            return rate, rate * step
        rate *= step
    return rate, 0.0
