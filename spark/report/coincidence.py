"""Whether fewer messages arrived in epochs in which more servers were down. Pure.

The measure is Spearman's rank correlation, over epochs of outages, between the share that arrived and the
number of servers that were down. Times within an epoch have the same servers down, so an epoch is one
observation, however many slots it has. The correlation is compared with those of random orders of the epochs:
of `ORDERS` orders, which are the same ones each time, the p-value is the share that has one as low or lower.
All scenarios have the same order, since those of one seed have their outages in common.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from operator import getitem
from random import Random

from kcast.spark.report.time_panels import Slot

ORDERS = 1999
EPOCHS_MIN = 5
"""Least number of epochs: four have only 24 orders, of which each is 4 %."""

_SEED = 1


@dataclass(frozen=True, slots=True)
class Coincidence:
    """The mean rank correlation over scenarios, and its p-value, one-sided."""

    correlation: float
    p_value: float


def coincidence(scenarios: Sequence[tuple[float, Sequence[Slot]]]) -> Coincidence | None:
    """Compares both courses of each scenario, given its length of an epoch in seconds.

    None where no scenario has EPOCHS_MIN epochs in which both change.
    """
    courses = []
    for epoch_s, slots in scenarios:
        both = _epochs(epoch_s, slots)
        shares, down = _standard([one for one, _ in both]), _standard([other for _, other in both])
        if len(both) >= EPOCHS_MIN and shares and down:
            courses.append((shares, down))
    if not courses:
        return None
    products = _products(courses)
    epochs = max(map(len, products))
    found = _correlation(products, range(epochs))
    as_low = 1 + sum(_correlation(products, order) <= found + 1e-12 for order in _orders(epochs))
    return Coincidence(found, as_low / (ORDERS + 1))


@lru_cache(maxsize=2)
def _orders(epochs: int) -> list[tuple[int, ...]]:
    """The random orders of this number of epochs."""
    chance, order, found = Random(_SEED), list(range(epochs)), []
    for _ in range(ORDERS):
        chance.shuffle(order)
        found.append(tuple(order))
    return found


def _epochs(epoch_s: float, slots: Sequence[Slot]) -> list[tuple[float, float]]:
    """The share that arrived and the number of servers down, of each epoch in which anything was due."""
    of_epoch: dict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.pairs and slot.share is not None and slot.servers_down is not None:
            middle_s = (slot.from_s + slot.to_s) / 2
            of_epoch[int(middle_s / epoch_s)].append(slot)
    found = []
    for _, own in sorted(of_epoch.items()):
        pairs = sum(slot.pairs for slot in own)
        delivered = sum((slot.share or 0.0) * slot.pairs for slot in own)
        down = sum((slot.servers_down or 0.0) for slot in own)
        found.append((delivered / pairs, down / len(own)))
    return found


def _products(courses: Sequence[tuple[list[float], list[float]]]) -> list[list[list[float]]]:
    """What an order of the epochs adds to the mean correlation where it puts one in the place of another.

    It is summed up once over all scenarios with as many epochs, since an order is the same for all of them:
    a table for each number of epochs.
    """
    of_length: dict[int, list[tuple[list[float], list[float]]]] = defaultdict(list)
    for shares, down in courses:
        of_length[len(shares)].append((shares, down))
    return [
        [
            [
                sum(shares[place] * down[other] for shares, down in own) / length / len(courses)
                for other in range(length)
            ]
            for place in range(length)
        ]
        for length, own in of_length.items()
    ]


def _correlation(products: Sequence[Sequence[Sequence[float]]], order: Sequence[int]) -> float:
    """The mean correlation over scenarios. Scenarios with fewer epochs have only these of the order."""
    total = 0.0
    for table in products:
        own = order if len(table) == len(order) else [place for place in order if place < len(table)]
        total += sum(map(getitem, table, own))
    return total


def _standard(values: Sequence[float]) -> list[float]:
    """The ranks of values, with mean 0 and standard deviation 1; equal values have the mean of their ranks.
    Empty if all are equal."""
    values = [round(value, 9) for value in values]
    order = sorted(range(len(values)), key=lambda place: values[place])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + end - 1) / 2
        start = end
    mean = sum(ranks) / max(1, len(ranks))
    deviation = sqrt(sum((rank - mean) ** 2 for rank in ranks) / max(1, len(ranks)))
    return [(rank - mean) / deviation for rank in ranks] if deviation else []
