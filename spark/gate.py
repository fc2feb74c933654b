"""Conditions of `--fail-if`, such as `delivered < 99.9 %`: does a scenario fulfil one for certain? Pure.

A condition is fulfilled where the whole 95 % interval of a figure is beyond the bound, and not fulfilled
where none of it is. Where the interval contains the bound, nothing is certain, and nothing fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from kcast.loadtest.charts.words import milliseconds, number, percent
from kcast.spark.findings.findings import Findings, Row

FULFILLED, NOT_CERTAIN, NOT_FULFILLED = "fulfilled", "not certain", "not fulfilled"
NO_SCENARIO = "no such scenario"

EXIT_CONDITION = 5
"""The exit code where a condition is fulfilled."""

ABOUT = "conditions"
"""The key of `Findings.about` that has what became of the conditions."""

_SHARES = {"delivered": "reliability", "audience": "audience"}
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_COSTS = {"copies": "copies_per_pair", "lines": "lines_per_delivery"}
_LEGS = {"loss": "both", "loss.in": "in", "loss.out": "out"}
_UNITS = {
    **dict.fromkeys(_SHARES, "%"),
    **dict.fromkeys(_PERCENTILES, "ms"),
    **dict.fromkeys(_COSTS, ""),
    **dict.fromkeys(_LEGS, "%"),
}
"""The unit of each figure."""

_FORMS: Mapping[str, Callable[[float], str]] = {"%": percent, "ms": milliseconds, "": number}
_SCALES: Mapping[str, Mapping[str, float]] = {
    "%": {"%": 0.01},
    "ms": {"us": 0.001, "ms": 1, "s": 1000},
    "": {"": 1},
}
"""What one of each unit that may be written is in the findings, by the unit of the figure."""

_SIGMAS = 1.959964  # to either side of the mean of a normal distribution are 95 % of it
_CONDITION = re.compile(
    r"\s*((?P<scenario>\S.*?)\s*:\s+)?(?P<figure>[a-z][a-z0-9.]*)\s*(?P<sign>[<>])\s*"
    r"(?P<bound>\d+(\.\d+)?)\s*(?P<unit>%|[a-z]+)?\s*",
    re.IGNORECASE,
)


class ConditionError(ValueError):
    """A condition that is not understood; the message says what to write."""


class Estimate(NamedTuple):
    """A figure with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class Condition(NamedTuple):
    """A bound on a figure, in its own unit, for the scenarios whose names match. With `is_upper`, values
    above the bound fulfil it, else those below."""

    text: str
    scenario: str
    figure: str
    is_upper: bool
    bound: float

    def answer(self, estimate: Estimate) -> str:
        """Returns whether an estimate fulfils the condition for certain."""
        sign = -1 if self.is_upper else 1
        least, most = sorted((sign * estimate.low, sign * estimate.high))
        return (
            FULFILLED
            if most < sign * self.bound
            else (NOT_FULFILLED if least >= sign * self.bound else NOT_CERTAIN)
        )


class Outcome(NamedTuple):
    """What became of a condition in a scenario, and a sentence on it."""

    condition: str
    scenario: str
    answer: str
    words: str

    @property
    def fails(self) -> bool:
        """Whether the gate fails: also where a condition is about no scenario, and so guards nothing."""
        return self.answer in (FULFILLED, NO_SCENARIO)

    def __str__(self) -> str:
        """The line that people read."""
        return f"--fail-if {self.condition!r}: {self.answer.upper()} in {self.scenario}: {self.words}"


def parse(text: str) -> Condition:
    """Reads a condition: `[SCENARIO: ]FIGURE < NUMBER [UNIT]`, or with >. Raises ConditionError."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        examples = "'delivered < 99.9 %', 'p99 > 50 ms' or '5-3-*: copies > 3.2'"
        raise ConditionError(f"{text!r} is no condition: write one such as {examples}")
    figure, bound, unit = found["figure"].lower(), float(found["bound"]), (found["unit"] or "").lower()
    if figure not in _UNITS:
        raise ConditionError(f"{text!r}: there is no figure {figure}: use one of {', '.join(_UNITS)}")
    if (scale := _SCALES[_UNITS[figure]].get(unit)) is None:
        example = f"{figure} {found['sign']} {found['bound']} {_UNITS[figure]}".rstrip()
        raise ConditionError(f"{text!r}: the unit is not that of {figure}: write {example!r}")
    if unit == "%" and bound > 100:
        raise ConditionError(f"{text!r}: {figure} is a share: give 0 to 100 %")
    return Condition(text.strip(), found["scenario"] or "*", figure, found["sign"] == ">", bound * scale)


def judged(findings: Findings, conditions: Sequence[str]) -> tuple[Findings, list[Outcome]]:
    """Returns the findings with what became of these conditions in `about`, and that itself.

    Raises ConditionError.
    """
    outcomes = [outcome for text in conditions for outcome in _judged(findings, parse(text))]
    about = {name: value for name, value in findings.about.items() if name != ABOUT}
    if outcomes:
        about[ABOUT] = [outcome._asdict() for outcome in outcomes]
    return replace(findings, about=about), outcomes


def _judged(findings: Findings, condition: Condition) -> Iterator[Outcome]:
    text, pattern, figure, *_ = condition
    names = findings.names()
    meant = [row for row in findings.table("scenarios") if fnmatchcase(names[row["cell"]], pattern)]
    if not meant:
        there = ", ".join(names.values()) or "none"
        yield Outcome(text, pattern, NO_SCENARIO, f"no scenario is named {pattern}: there are {there}")
    what = "latency" if figure in _PERCENTILES else "delivery"
    for row in meant:
        name, answer, words = names[row["cell"]], NOT_CERTAIN, f"{figure} was not measured"
        if (estimate := estimated(findings, row, figure)) is not None:
            value, low, high = (_FORMS[_UNITS[figure]](each) for each in estimate)
            words = f"{figure} is {value}" + (f", 95 % interval {low} to {high}" if low != high else "")
            if row[f"{what}_valid"]:
                answer = condition.answer(estimate)
            else:
                words += f"; its {what} is not valid"
        yield Outcome(text, name, answer, words)


def estimated(findings: Findings, scenario: Row, figure: str) -> Estimate | None:
    """Returns a figure of a row of `scenarios`; None where it was not measured."""

    def rows(table: str, **having: str) -> list[Row]:
        wanted = {"cell": scenario["cell"], **having}
        return [row for row in findings.table(table) if wanted.items() <= row.items()]

    if figure in _PERCENTILES:
        counted = [(row["value_ns"], row["count"]) for row in rows("latency_buckets", since="intended")]
        return percentile(sorted(counted), _PERCENTILES[figure], scenario["messages"]) if counted else None
    if figure in _COSTS:
        ends = [(row[_COSTS[figure]],) * 3 for row in rows("cost")]
    else:
        found = rows("losses", leg=_LEGS[figure]) if figure in _LEGS else rows(_SHARES[figure])
        ends = [(row["share"], row["low"], row["high"]) for row in found]
    return Estimate(*ends[0]) if ends and None not in ends[0] else None


def percentile(buckets: Sequence[tuple[int, int]], share: float, messages: int | None) -> Estimate:
    """Returns a percentile of latencies in ms, and the ends of its 95 % interval.

    `buckets` are ascending (ns, count). The interval is between order statistics, whose ranks are rounded
    outwards (Conover, Practical nonparametric statistics, 1999, 3.2). Subscribers of one message share its
    delays, so `messages` bounds the sample size.
    """
    count = sum(number for _, number in buckets)
    size = max(1, min(count, messages or count))
    reach = _SIGMAS * sqrt(size * share * (1 - share))
    low, high = floor(size * share - reach), ceil(size * share + reach)

    def at(rank: float) -> float:
        """The latency that has this rank, by nearest rank."""
        seen = 0
        for value_ns, number_of in buckets:
            seen += number_of
            if seen >= rank - 1e-9 * rank:
                return value_ns / 1_000_000
        return inf

    return Estimate(
        at(share * count), at(low / size * count), inf if high > size else at(high / size * count)
    )
