"""Where a series of runs changed: change points, with what lies before and after. Pure and seeded.

Method: binary segmentation (Scott and Knott, A cluster analysis method for grouping means, 1974; Killick,
Fearnhead and Eckley, Optimal detection of changepoints, 2012, compare it with others). The series is split
where the two parts differ most. Whether that is more than chance is decided by series that are made without
a change, and by how many of them differ as much somewhere. If it is, both parts are searched in turn.

- Shares are binomial with the *effective* sample sizes of their runs, so that pairs which are lost together
  do not count as independent. The statistic is the likelihood ratio; series without a change are drawn.
- Times have no intervals, so their logarithms are compared, by the difference of the means of both parts
  over its standard deviation (Page's CUSUM). Series without a change are permutations of the measured one,
  as in Matteson and James, A nonparametric approach for multiple change point analysis, 2014.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.intervals import wilson
from kcast.loadtest.results.compare import newcombe

LEVEL = 0.01
"""The share of series without any change in which one is found, for each series of figures."""

REPEATS = 2999
"""Series without a change that are made for each question."""

TIMES_SIDE_MIN = 3
"""The fewest runs on each side of a change of times."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """A change between the runs at `place - 1` and `place` of a series.

    `before` and `after` are the figure's level up to the change before this and from there to the next, and
    `low` .. `high` the 95 % interval of after - before for shares; None for times. `p_value` is the share of
    series without a change that differ as much somewhere.
    """

    place: int
    before: float
    after: float
    low: float | None
    high: float | None
    p_value: float


def changes_of_shares(shares: Sequence[float], trials: Sequence[float], seed: int = 1) -> list[Change]:
    """Returns the changes of a series of shares (0 .. 1) with effective sample sizes, in order."""
    sizes = np.maximum(1.0, np.minimum(np.asarray(trials, float), 1e12))
    hits = np.asarray(shares, float) * sizes
    random = np.random.default_rng(seed)

    def greatest(from_: int, to: int) -> tuple[int, float, float]:
        own, of = hits[from_:to], sizes[from_:to]
        ratios = _likelihood_ratios(own[None, :], of)[0]
        place = int(ratios.argmax())
        drawn = random.binomial(np.rint(of).astype(np.int64), own.sum() / of.sum(), (REPEATS, len(of)))
        by_chance = _likelihood_ratios(drawn * (of / np.rint(of)), of).max(axis=1)
        return from_ + place + 1, float(ratios[place]), _p_value(by_chance, ratios[place])

    found = _segmented(len(hits), 1, greatest)
    return [
        _with_interval(place, p_value, *_levels(place, [each for each, _ in found], hits, sizes))
        for place, p_value in found
    ]


def changes_of_times(times_ms: Sequence[float], seed: int = 1) -> list[Change]:
    """Returns the changes of a series of times above 0, in order; none with fewer than six."""
    logs = np.log(np.maximum(np.asarray(times_ms, float), 1e-9))
    random = np.random.default_rng(seed)

    def greatest(from_: int, to: int) -> tuple[int, float, float]:
        own = logs[from_:to]
        sums = _cumulated_sums(own[None, :])[0]
        place = int(sums.argmax())
        shuffled = random.permuted(np.broadcast_to(own, (REPEATS, len(own))), axis=1)
        by_chance = _cumulated_sums(shuffled).max(axis=1)
        return from_ + place + TIMES_SIDE_MIN, float(sums[place]), _p_value(by_chance, sums[place])

    found = _segmented(len(logs), TIMES_SIDE_MIN, greatest)
    places = [place for place, _ in found]
    made = []
    for place, p_value in found:
        begin, end = _around(place, places, len(logs))
        before, after = (float(np.exp(part.mean())) for part in (logs[begin:place], logs[place:end]))
        made.append(Change(place, before, after, None, None, p_value))
    return made


_Greatest = Callable[[int, int], tuple[int, float, float]]


def _segmented(count: int, side_min: int, greatest: _Greatest) -> list[tuple[int, float]]:
    """Splits a series until no part has a change; returns the places with their p-values, in order."""
    found: list[tuple[int, float]] = []
    parts = [(0, count)]
    while parts:
        begin, end = parts.pop()
        if end - begin < 2 * side_min:
            continue
        place, statistic, p_value = greatest(begin, end)
        if statistic > 0 and p_value <= LEVEL:
            found.append((place, p_value))
            parts += [(begin, place), (place, end)]
    return sorted(found)


def _p_value(by_chance: Floats, statistic: float) -> float:
    # The series itself is one of those that could have come.
    return float((1 + np.count_nonzero(by_chance >= statistic - 1e-12)) / (1 + len(by_chance)))


def _likelihood_ratios(hits: Floats, sizes: Floats) -> Floats:
    """The log likelihood ratio of a split behind each place but the last, of series in rows."""
    first, of_first = hits.cumsum(axis=1)[:, :-1], sizes.cumsum()[:-1]
    every, of_every = hits.sum(axis=1, keepdims=True), sizes.sum()
    last, of_last = every - first, of_every - of_first
    ratios: Floats = (
        _log_likelihood(first, of_first) + _log_likelihood(last, of_last) - _log_likelihood(every, of_every)
    )
    return ratios


def _log_likelihood(hits: Floats, of: Floats) -> Floats:
    hits = np.clip(hits, 0, of)
    misses = of - hits
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(each > 0, each * np.log(each / of), 0.0) for each in (hits, misses)]
    total: Floats = parts[0] + parts[1]
    return total


def _cumulated_sums(rows: Floats) -> Floats:
    """How far apart the means of both sides are, in standard deviations, by place, of series in rows."""
    count = rows.shape[1]
    sizes = np.arange(1, count)[TIMES_SIDE_MIN - 1 : count - TIMES_SIDE_MIN]
    first = rows.cumsum(axis=1)[:, TIMES_SIDE_MIN - 1 : count - TIMES_SIDE_MIN]
    every = rows.sum(axis=1, keepdims=True)
    difference = np.abs(first / sizes - (every - first) / (count - sizes))
    spread = rows.std(axis=1, ddof=1, keepdims=True)
    scaled: Floats = np.where(spread > 0, difference / np.where(spread > 0, spread, 1), 0.0)
    statistics: Floats = scaled * np.sqrt(sizes * (count - sizes) / count)
    return statistics


def _around(place: int, places: Sequence[int], count: int) -> tuple[int, int]:
    """Where the part before a change begins, and the part after it ends."""
    return (
        max((other for other in places if other < place), default=0),
        min((other for other in places if other > place), default=count),
    )


def _levels(
    place: int, places: Sequence[int], hits: Floats, sizes: Floats
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Hits and sizes of the parts before and after a change."""
    begin, end = _around(place, places, len(hits))
    return (
        (float(hits[begin:place].sum()), float(sizes[begin:place].sum())),
        (float(hits[place:end].sum()), float(sizes[place:end].sum())),
    )


def _with_interval(
    place: int, p_value: float, first: tuple[float, float], second: tuple[float, float]
) -> Change:
    before, after = first[0] / first[1], second[0] / second[1]
    low, high = difference_interval(before, first[1], after, second[1])
    return Change(place, before, after, low, high, p_value)


def difference_interval(
    first: float, first_trials: float, second: float, second_trials: float, confidence: float = 0.95
) -> tuple[float, float]:
    """The interval of second - first, two independent shares with effective sample sizes.

    From Wilson's intervals of both.
    """
    return newcombe(
        *(first, wilson(first * first_trials, first_trials, confidence)),
        *(second, wilson(second * second_trials, second_trials, confidence)),
    )
