"""Conditions of `--fail-if`, such as `delivered < 99.9 %`: does a scenario fulfil one for certain? Pure.

A condition is fulfilled where the whole 95 % interval of a figure is beyond the bound, and not fulfilled
where none of it is. Where the interval contains the bound, nothing is certain, and nothing fails.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import accumulate
from math import ceil, floor, inf, sqrt
from typing import Any, NamedTuple

from kcast.loadtest.charts.words import milliseconds, number, percent
from kcast.spark.findings.findings import Findings, Row

FULFILLED, NOT_CERTAIN, NOT_FULFILLED = "fulfilled", "not certain", "not fulfilled"
NO_SCENARIO = "no such scenario"

EXIT_CONDITION = 5
"""The exit code where a condition is fulfilled."""

ABOUT = "conditions"
"""The key of `Findings.about` that has what became of the conditions."""

_FIGURES: Mapping[str, tuple[str, str, Any]] = {
    **{"delivered": ("%", "reliability", None), "audience": ("%", "audience", None)},
    **{f"p{share:g}": ("ms", "latency_buckets", share / 100) for share in (50, 90, 99, 99.9)},
    **{"copies": ("", "cost", "copies_per_pair"), "lines": ("", "cost", "lines_per_delivery")},
    **{"loss": ("%", "losses", "both"), "loss.in": ("%", "losses", "in"), "loss.out": ("%", "losses", "out")},
}
"""The unit of each figure, and where it stands: a table, and its leg, its percentile or its column."""

_FORMS: Mapping[str, Callable[[float], str]] = {"%": percent, "ms": milliseconds, "": number}
_SCALES = {("%", "%"): 0.01, ("ms", "us"): 0.001, ("ms", "ms"): 1, ("ms", "s"): 1000, ("", ""): 1}
"""What one of each unit that may be written is in the unit of the figure, which comes first; % are shares."""

_SIGMAS = 1.959964  # to either side of the mean of a normal distribution are 95 % of it
_CONDITION = re.compile(
    r"\s*((?P<scenario>\S.*?)\s*:\s+)?(?P<figure>[a-z][a-z0-9.]*)\s*(?P<sign>[<>])\s*"
    r"(?P<bound>\d+(\.\d+)?)\s*(?P<unit>%|[a-z]+)?\s*",
    re.IGNORECASE,
)

Estimate = tuple[float, float, float]
"""A figure with the ends of its 95 % interval."""


class ConditionError(ValueError):
    """A condition that is not understood; the message says what to write."""


class Condition(NamedTuple):
    """A bound on a figure, for the scenarios whose names match; `bound` is in the figure's own unit."""

    text: str
    scenario: str
    figure: str
    sign: str
    bound: float

    def answer(self, estimate: Estimate) -> str:
        """Returns whether an estimate fulfils the condition for certain."""
        sign = 1 if self.sign == "<" else -1
        bound, least, most = sign * self.bound, *sorted(sign * each for each in estimate[1:])
        return FULFILLED if most < bound else NOT_FULFILLED if least >= bound else NOT_CERTAIN


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
    if found := _CONDITION.fullmatch(text):
        figure, bound = found["figure"].lower(), float(found["bound"])
        scale = _SCALES.get((_FIGURES.get(figure, ("none",))[0], (found["unit"] or "").lower()))
        if scale and (found["unit"] != "%" or bound <= 100):
            return Condition(text.strip(), found["scenario"] or "*", figure, found["sign"], bound * scale)
    examples = "'delivered < 99.9 %', 'p99 > 50 ms' or '5-3-*: copies > 3.2'"
    figures = ", ".join(f"{name} in {unit}" if unit else name for name, (unit, *_) in _FIGURES.items())
    raise ConditionError(f"{text!r} is no condition: write one such as {examples}; figures are {figures}")


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
    names, (unit, *_) = findings.names(), _FIGURES[figure]
    what = "latency" if unit == "ms" else "delivery"
    meant = [row for row in findings.table("scenarios") if fnmatchcase(names[row["cell"]], pattern)]
    if not meant:
        there = ", ".join(names.values()) or "none"
        yield Outcome(text, pattern, NO_SCENARIO, f"no scenario is named {pattern}: there are {there}")
    for row in meant:
        answer, words = NOT_CERTAIN, f"{figure} was not measured"
        if (estimate := estimated(findings, row, figure)) is not None:
            value, low, high = map(_FORMS[unit], estimate)
            words = f"{figure} is {value}" + (f", 95 % interval {low} to {high}" if low != high else "")
            if row[f"{what}_valid"]:
                answer = condition.answer(estimate)
            else:
                words += f"; its {what} is not valid"
        yield Outcome(text, names[row["cell"]], answer, words)


def estimated(findings: Findings, scenario: Row, figure: str) -> Estimate | None:
    """Returns a figure of a row of `scenarios`; None where it was not measured."""
    unit, table, of = _FIGURES[figure]
    rows = [row for row in findings.table(table) if row["cell"] == scenario["cell"]]
    if unit == "ms":
        counted = sorted((row["value_ns"], row["count"]) for row in rows if row["since"] == "intended")
        return percentile(counted, of, scenario["messages"]) if counted else None
    if unit == "%":
        ends = [(row["share"], row["low"], row["high"]) for row in rows if row.get("leg") == of]
    else:
        ends = [(row[of],) * 3 for row in rows]
    return ends[0] if ends and None not in ends[0] else None


def percentile(buckets: Sequence[tuple[int, int]], share: float, messages: int | None) -> Estimate:
    """Returns a percentile of latencies in ms, and the ends of its 95 % interval.

    `buckets` are ascending (ns, count). The interval is between order statistics, whose ranks are rounded
    outwards (Conover, Practical nonparametric statistics, 1999, 3.2). Subscribers of one message share its
    delays, so `messages` bounds the sample size.
    """
    seen = list(accumulate(count for _, count in buckets))
    size = max(1, min(seen[-1], messages or seen[-1]))
    middle, reach = size * share, _SIGMAS * sqrt(size * share * (1 - share))

    def at(rank: float) -> float:
        """The value that has this rank of `size`, by nearest rank; infinite beyond the last."""
        place = bisect_left(seen, rank / size * seen[-1] * (1 - 1e-9))
        return buckets[place][0] / 1_000_000 if rank <= size else inf

    return at(middle), at(floor(middle - reach)), at(ceil(middle + reach))
