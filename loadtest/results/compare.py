"""Compares two runs scenario by scenario: delivered shares and latencies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

from kcast.client.cli.text import table
from kcast.hashring.intervals import wilson
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.results.verdicts import caveat
from kcast.loadtest.scenario import Scenario, option_name

PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
_SIGNIFICANT = "!"


@dataclass(frozen=True, slots=True)
class Difference:
    """How a scenario's second run differs from its first.

    `share` is the second delivered share (0 .. 1) minus the first, and `low` .. `high` its 95 % interval, by
    `newcombe` from Wilson's intervals of the two. If the scenarios are equal, seed included, their outages
    are the same, and the intervals are those given the outages. `latency_ratios` are second / first by
    percentile, None without a first. `changed` has both values of each field in which the scenarios differ.
    """

    name: str
    first: Summary
    second: Summary
    share: float
    low: float
    high: float
    latency_ratios: Mapping[str, float | None]
    changed: Mapping[str, tuple[Any, Any]]

    @property
    def is_significant(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        return not self.low <= 0 <= self.high

    @property
    def is_loss(self) -> bool:
        """Whether significantly less arrived in the second run."""
        return self.is_significant and self.share < 0

    @property
    def are_valid(self) -> bool:
        """Whether the verdict on delivery is good for both runs."""
        return self.first.delivery_verdict.valid and self.second.delivery_verdict.valid

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, with the shares in place of the summaries."""
        return {
            "name": self.name,
            "first": self.first.share,
            "second": self.second.share,
            "share": self.share,
            "low": self.low,
            "high": self.high,
            "significant": self.is_significant,
            "valid": self.are_valid,
            "latency_ratios": dict(self.latency_ratios),
            "changed": {name: list(values) for name, values in self.changed.items()},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs: the differences of scenarios that both have, by name, and the names that only one has."""

    differences: Sequence[Difference]
    only_first: Sequence[str]
    only_second: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Returns all fields."""
        return {
            "scenarios": [difference.as_json() for difference in self.differences],
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }

    def text(self) -> str:
        """Returns a table of the differences with notes below, as lines of text."""
        if not self.differences:
            return "\n".join(["the two runs have no scenario in common", *self._unmatched(), ""])
        heads = ("scenario", "first", "second", "difference", "95 % interval", "p50", "p99")
        lines = table(heads, map(_row, self.differences))
        notes = [note for difference in self.differences for note in _notes(difference)]
        if any(difference.is_significant for difference in self.differences):
            notes.insert(0, f"{_SIGNIFICANT} more than chance explains in 19 of 20 cases")
        return "\n".join([*lines, *notes, *self._unmatched(), ""])

    def _unmatched(self) -> Iterable[str]:
        for which, names in (("first", self.only_first), ("second", self.only_second)):
            if names:
                yield f"only in the {which} run: {', '.join(names)}"


def compare(first: Iterable[Summary], second: Iterable[Summary]) -> Comparison:
    """Returns the differences between scenarios of the same name, in the order of the first run."""
    firsts = {summary.name: summary for summary in first}
    seconds = {summary.name: summary for summary in second}
    return Comparison(
        [difference(firsts[name], seconds[name]) for name in firsts if name in seconds],
        [name for name in firsts if name not in seconds],
        [name for name in seconds if name not in firsts],
    )


def difference(first: Summary, second: Summary) -> Difference:
    """Returns how the second run of a scenario differs from the first."""
    share, changed = second.share - first.share, _changed(first.scenario, second.scenario)
    first_ends, second_ends = (
        (summary.low, summary.high) if changed else _given_outages(summary) for summary in (first, second)
    )
    low, high = newcombe(first.share, first_ends, second.share, second_ends)
    return Difference(
        name=first.name,
        first=first,
        second=second,
        share=share,
        low=low,
        high=high,
        latency_ratios={name: _ratio(first.latency, second.latency, name) for name in PERCENTILES},
        changed=changed,
    )


def newcombe(
    first: float, first_ends: tuple[float, float], second: float, second_ends: tuple[float, float]
) -> tuple[float, float]:
    """The interval of second - first, of two independent shares with Wilson's intervals.

    By method 10 of Newcombe, Interval estimation for the difference between independent proportions, 1998.
    """
    share = second - first
    return (
        share - hypot(second - second_ends[0], first_ends[1] - first),
        share + hypot(second_ends[1] - second, first - first_ends[0]),
    )


def _given_outages(summary: Summary) -> tuple[float, float]:
    trials = summary.trials_given_outages
    return wilson(summary.share * trials, trials)


def _ratio(first: Percentiles, second: Percentiles, name: str) -> float | None:
    before, after = getattr(first, name), getattr(second, name)
    return after / before if before > 0 and second.count else None


def _changed(first: Scenario, second: Scenario) -> dict[str, tuple[Any, Any]]:
    before, after = first.as_json(), second.as_json()
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _row(difference: Difference) -> tuple[str, ...]:
    ratios = difference.latency_ratios
    return (
        difference.name,
        f"{difference.first.share * 100:.3f} %",
        f"{difference.second.share * 100:.3f} %",
        f"{difference.share * 100:+.3f}" + (f" {_SIGNIFICANT}" if difference.is_significant else "  "),
        f"{difference.low * 100:+.3f} .. {difference.high * 100:+.3f}",
        *(_times(ratios[name]) for name in ("p50_ms", "p99_ms")),
    )


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"x {ratio:.3g}"


def _notes(difference: Difference) -> Iterable[str]:
    for which, summary in (("first", difference.first), ("second", difference.second)):
        for what, verdict in (("delivery", summary.delivery_verdict), ("latency", summary.latency_verdict)):
            for reason in verdict.reasons:
                yield caveat(what, f"{difference.name} in the {which} run", reason)
    if difference.changed:
        changes = (
            f"{option_name(name)} {before} -> {after}" for name, (before, after) in difference.changed.items()
        )
        yield f"{difference.name}: not the same test: {', '.join(changes)}"
