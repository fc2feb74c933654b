"""How many independent trials the pairs of a cell are worth, from sums over its clusters.

The same choice among the same clusters as `loadtest.results.precision`, and one more: pairs share the luck of
a message, or of a topic, subscriber and epoch, of a topic and epoch, of an epoch; where views differ of a
topic, subscriber or publisher too. The clusters by which the fewest trials are left count. Sums are whole
numbers of any size, so that the order in which they were added changes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from loadtest.scenario import Scenario

MESSAGE = "message"
HOLDER = "topic, subscriber and epoch"
TOPIC_EPOCH = "topic and epoch"
EPOCH = "epoch"
TOPIC = "topic"
SUBSCRIBER = "subscriber"
PUBLISHER = "publisher"


class Clusters(NamedTuple):
    """Sums over clusters of n trials with x successes each: of 1, n, x, n^2, n x, x^2."""

    clusters: int
    trials: int
    successes: int
    squares: int
    products: int
    hits: int


class Effective(NamedTuple):
    """So many independent trials, by which clusters, and how many clusters these are."""

    trials: float
    name: str
    clusters: int


def clusterings(scenario: Scenario) -> tuple[str, ...]:
    """By what pairs of a scenario share their luck; the smallest clusters of `precision` first."""
    names = [MESSAGE] if scenario.outages == "none" else [TOPIC_EPOCH, EPOCH, HOLDER]
    return (*names, TOPIC, SUBSCRIBER, PUBLISHER) if scenario.known < 1 else tuple(names)


def effective(sums: Mapping[str, Clusters], names: Iterable[str]) -> Effective:
    """Of these clusterings the one by which the fewest trials are left.

    If nothing, or everything, succeeded nothing is known of the spread, and the first one's clusters count.
    Those that are not in `sums` are passed over; without any there are no trials.
    """
    found = [(name, sums[name]) for name in names if name in sums and sums[name].trials]
    if not found:
        return Effective(0.0, "", 0)
    first, whole = found[0]
    if whole.successes in (0, whole.trials):
        return Effective(float(whole.clusters), first, whole.clusters)
    least = min(found, key=lambda item: independent(item[1]))
    return Effective(independent(least[1]), least[0], least[1].clusters)


def independent(of: Clusters) -> float:
    """Trials worth as much as these clusters: n / DEFF, as `hashring.intervals.effective_count`.

    DEFF = sum (x - n p)^2 / (N p (1 - p)) (Kish, Survey Sampling, 1965), here N^2 times both sides, so that
    all are whole numbers. Neither nothing nor everything may have succeeded.
    """
    n, x = of.trials, of.successes
    spread = of.hits * n * n - 2 * x * n * of.products + x * x * of.squares
    return float(n) if spread == 0 else x * (n - x) * n * n / spread
