"""Conditions of `--fail-if`, such as `delivered < 99.9 %`: does a scenario fulfil one for certain? Pure.

A figure has an interval. A condition is fulfilled where the whole interval is on its side of the bound, and
not fulfilled where none of it is. Where the interval contains the bound, nothing is certain, and nothing
fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf, sqrt
from statistics import NormalDist
from typing import Final, Literal, NamedTuple

from kcast.hashring.intervals import binomial
from kcast.loadtest.charts.words import milliseconds, number, percent
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.scenario_names import names

FULFILLED: Final = "fulfilled"
NOT_CERTAIN: Final = "not certain"
NOT_FULFILLED: Final = "not fulfilled"
NO_SCENARIO: Final = "no such scenario"
Answer = Literal["fulfilled", "not certain", "not fulfilled", "no such scenario"]

EXIT_CONDITION = 5
"""The exit code where a condition is fulfilled."""

ABOUT = "conditions"
"""The key of `Findings.about` that has what became of the conditions."""

_CONFIDENCE = 0.95
_NORMAL_FROM = 1000
"""Number of values above and below a percentile from which the binomial distribution counts as normal."""
_NS_PER_MS = 1_000_000
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_CONDITION = re.compile(
    r"\s*((?P<scenario>\S.*?)\s*:\s+)?(?P<figure>[a-z][a-z0-9.]*)\s*(?P<sign>[<>])\s*"
    r"(?P<bound>\d+(\.\d+)?)\s*(?P<unit>%|[a-z]+)?\s*",
    re.IGNORECASE,
)


class ConditionError(ValueError):
    """A condition that is not understood; the message says what to write."""


class Estimate(NamedTuple):
    """A figure with its 95 % interval; `doubt` says why it cannot be trusted, empty if it can."""

    value: float
    low: float
    high: float
    doubt: str = ""


class _Figure(NamedTuple):
    """What a figure means, its unit, and how people read it."""

    meaning: str
    unit: str
    form: Callable[[float], str]


FIGURES: Mapping[str, _Figure] = {
    "delivered": _Figure("pairs delivered in time", "%", percent),
    "audience": _Figure("messages that reached all their subscribers", "%", percent),
    **{
        name: _Figure(f"latency at percentile {name[1:]}, from when a message was due", "ms", milliseconds)
        for name in _PERCENTILES
    },
    "copies": _Figure("copies that come for a pair", "", number),
    "lines": _Figure("lines in and out of all servers for a delivery", "", number),
    "loss": _Figure(
        "lines lost by the network on the two legs together, beyond what was asked for", "%", percent
    ),
    "loss.in": _Figure("lines lost by the network between publishers and servers", "%", percent),
    "loss.out": _Figure("lines lost by the network between servers and subscribers", "%", percent),
}
_LEGS = {"both": "loss", "in": "loss.in", "out": "loss.out"}


_SCALES: Mapping[str, Mapping[str, float]] = {
    "%": {"%": 0.01},
    "ms": {"us": 0.001, "ms": 1, "s": 1000},
    "": {"": 1},
}
"""What one of each unit that may be written is in the findings, by the unit of the figure."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound on a figure, for the scenarios whose names match; `bound` is in the figure's own unit."""

    text: str
    scenario: str
    figure: str
    is_upper: bool
    """Whether values above the bound fulfil it, and not those below."""
    bound: float

    def answer(self, estimate: Estimate) -> Answer:
        """Returns whether an estimate fulfils the condition for certain."""
        if estimate.doubt:
            return NOT_CERTAIN
        low, high = estimate.low, estimate.high
        fulfils = low > self.bound if self.is_upper else high < self.bound
        fails_to = high <= self.bound if self.is_upper else low >= self.bound
        return FULFILLED if fulfils else NOT_FULFILLED if fails_to else NOT_CERTAIN


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a condition in a scenario, and a sentence on it."""

    condition: str
    scenario: str
    answer: Answer
    words: str

    @property
    def fails(self) -> bool:
        """Whether the gate fails: also where a condition is about no scenario, and so guards nothing."""
        return self.answer in (FULFILLED, NO_SCENARIO)

    def __str__(self) -> str:
        """The line that people read."""
        return f"--fail-if {self.condition!r}: {self.answer.upper()} in {self.scenario}: {self.words}"

    def as_json(self) -> dict[str, str]:
        """Returns all fields."""
        return {
            "condition": self.condition,
            "scenario": self.scenario,
            "answer": self.answer,
            "words": self.words,
        }


def parse(text: str) -> Condition:
    """Reads a condition: `[SCENARIO: ]FIGURE < NUMBER [UNIT]`, or with >. Raises ConditionError."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ConditionError(
            f"{text!r} is no condition: write one such as 'delivered < 99.9 %', 'p99 > 50 ms' or "
            "'5-3-*: copies > 3.2'"
        )
    name = found["figure"].lower()
    if name not in FIGURES:
        raise ConditionError(f"{text!r}: there is no figure {name}: use one of {', '.join(FIGURES)}")
    figure = FIGURES[name]
    unit = (found["unit"] or "").lower()
    scale = _SCALES[figure.unit].get(unit)
    if scale is None:
        given = f"is in {unit}" if unit else "has no unit"
        wanted = f"give {found['bound']} {figure.unit}" if figure.unit else "give a number alone"
        raise ConditionError(f"{text!r}: the bound {given}, and {name} means {figure.meaning}: {wanted}")
    bound = float(found["bound"])
    if figure.unit == "%" and bound > 100:
        raise ConditionError(f"{text!r}: {name} is a share: give 0 to 100 %")
    return Condition(text.strip(), found["scenario"] or "*", name, found["sign"] == ">", bound * scale)


def judged(findings: Findings, conditions: Sequence[str]) -> tuple[Findings, list[Outcome]]:
    """Returns the findings with what became of these conditions in `about`, and that itself.

    Raises ConditionError.
    """
    outcomes = judge([parse(text) for text in conditions], estimates(findings, names(findings)))
    about = {name: value for name, value in findings.about.items() if name != ABOUT}
    if outcomes:
        about[ABOUT] = [outcome.as_json() for outcome in outcomes]
    return replace(findings, about=about), outcomes


def judge(conditions: Sequence[Condition], scenarios: Mapping[str, Mapping[str, Estimate]]) -> list[Outcome]:
    """Judges each condition in each scenario that it is about.

    `scenarios` has the estimates of each scenario by the names of figures.
    """
    return [outcome for condition in conditions for outcome in _judged(condition, scenarios)]


def _judged(condition: Condition, scenarios: Mapping[str, Mapping[str, Estimate]]) -> Iterator[Outcome]:
    names = [name for name in scenarios if fnmatchcase(name, condition.scenario)]
    if not names:
        there = ", ".join(scenarios) or "none"
        words = f"no scenario is named {condition.scenario}: there are {there}"
        yield Outcome(condition.text, condition.scenario, NO_SCENARIO, words)
    for name in names:
        estimate = scenarios[name].get(condition.figure)
        if estimate is None:
            words = f"{condition.figure} was not measured"
            yield Outcome(condition.text, name, NOT_CERTAIN, words)
        else:
            yield Outcome(condition.text, name, condition.answer(estimate), _told(condition, estimate))


def _told(condition: Condition, estimate: Estimate) -> str:
    form = FIGURES[condition.figure].form
    words = f"{condition.figure} is {form(estimate.value)}"
    if estimate.low < estimate.high:
        words += f", 95 % interval {form(estimate.low)} to {form(estimate.high)}"
    return f"{words}; {estimate.doubt}" if estimate.doubt else words


# --- Figures of findings --------------------------------------------------------------------------------


def estimates(findings: Findings, names: Mapping[int, str]) -> dict[str, dict[str, Estimate]]:
    """Returns the figures of each scenario of an analysis, by `names`, which are by the scenario's number."""
    scenarios = {row["cell"]: row for row in findings.table("scenarios")}
    found: dict[str, dict[str, Estimate]] = {names[cell]: {} for cell in scenarios}
    shares = [("delivered", row) for row in findings.table("reliability")]
    shares += [("audience", row) for row in findings.table("audience")]
    shares += [(_LEGS[row["leg"]], row) for row in findings.table("losses")]
    for figure, row in shares:
        if row["share"] is not None and row["low"] is not None and row["high"] is not None:
            doubt = _doubt(scenarios[row["cell"]], "delivery")
            found[names[row["cell"]]][figure] = Estimate(row["share"], row["low"], row["high"], doubt)
    for row in findings.table("cost"):
        own = found[names[row["cell"]]]
        doubt = _doubt(scenarios[row["cell"]], "delivery")
        for column, figure in (("copies_per_pair", "copies"), ("lines_per_delivery", "lines")):
            if row[column] is not None:
                own[figure] = Estimate(row[column], row[column], row[column], doubt)
    buckets: dict[int, list[tuple[int, int]]] = {}
    for row in findings.table("latency_buckets"):
        if row["since"] == "intended":
            buckets.setdefault(row["cell"], []).append((row["value_ns"], row["count"]))
    for cell, counted in buckets.items():
        messages = scenarios[cell]["messages"]
        for figure, share in _PERCENTILES.items():
            value, low, high = percentile(sorted(counted), share, messages)
            found[names[cell]][figure] = Estimate(value, low, high, _doubt(scenarios[cell], "latency"))
    return found


def _doubt(scenario: Row, what: Literal["delivery", "latency"]) -> str:
    return "" if scenario[f"{what}_valid"] else f"its {what} is not valid"


def percentile(
    buckets: Sequence[tuple[int, int]], share: float, messages: int | None
) -> tuple[float, float, float]:
    """Returns a percentile of latencies in ms, and the ends of its 95 % interval.

    `buckets` are ascending (ns, count). The interval is between order statistics (Conover, Practical
    nonparametric statistics, 1999, 3.2): as many values are below the true percentile as the binomial
    distribution has it. Subscribers of one message share its delays, so `messages` bounds the sample size.
    """
    count = sum(number for _, number in buckets)
    size = max(1, min(count, messages or count))
    below, above = _ranks(size, share)
    return (
        _at(buckets, share * count),
        _at(buckets, below / size * count),
        inf if above > size else _at(buckets, above / size * count),
    )


def _ranks(size: int, share: float) -> tuple[float, float]:
    """The ranks, from 1, between which the percentile is with 95 %; 0 and size + 1 are beyond all values."""
    tail = (1 - _CONFIDENCE) / 2
    if size * min(share, 1 - share) > _NORMAL_FROM:
        reach = NormalDist().inv_cdf(1 - tail) * sqrt(size * share * (1 - share))
        return size * share - reach, size * share + reach + 1
    first, pmf = binomial(size, share)
    return _quantile(first, pmf, tail), _quantile(first, pmf, 1 - tail) + 1


def _quantile(first: int, pmf: Sequence[float], share: float) -> int:
    total = 0.0
    for place, chance in enumerate(pmf, first):
        total += chance
        if total >= share:
            return place
    return first + len(pmf) - 1


def _at(buckets: Sequence[tuple[int, int]], rank: float) -> float:
    """The latency in ms that has this rank, by nearest rank."""
    seen = 0
    for value_ns, number_of in buckets:
        seen += number_of
        if seen >= rank - 1e-9 * rank:
            return value_ns / _NS_PER_MS
    return buckets[-1][0] / _NS_PER_MS
