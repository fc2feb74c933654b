"""Runs for as long as it takes until an interval is no wider than wanted, within a limit. Pure.

A scenario is first run for as long as its plan says that it takes. If its interval is still too wide, it is
run again, from the start and for longer. So the length of each run was decided before it began, and its
interval is as good as any; to stop a run once its interval happens to be narrow would favour lucky runs.
"""

from dataclasses import dataclass
from math import ceil

from kcast.loadtest.charts.words import duration
from kcast.loadtest.load.sample_size import duration_for_width
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.scenario import Scenario

_MARGIN = 1.15
"""How much longer a run is than its predecessor's interval says: widths vary."""

_GROWTH_MIN = 1.3
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class WantedWidth:
    """The width (0 .. 1) that intervals of shares are to have at most, and the longest load in seconds."""

    width: float
    duration_s_max: float

    def first_try(self, scenario: Scenario) -> Scenario:
        """Returns the scenario with the length that its plan asks for; unchanged if the plan cannot tell."""
        planned_s = duration_for_width(scenario, self.width)
        return scenario if planned_s is None else self._with_duration(scenario, planned_s)

    def next_try(self, summary: Summary) -> Scenario | None:
        """Returns the scenario with a greater length; None if it is narrow enough, or nothing helps."""
        scenario = summary.scenario
        if self.is_reached(summary) or scenario.duration_s >= self.duration_s_max or not summary.pairs:
            return None
        # Widths fall as one over the root of the length; where nothing was missed, as one over the length.
        power = 2 if 0 < summary.share < 1 else 1
        growth = ((summary.high - summary.low) / self.width) ** power * _MARGIN
        return self._with_duration(scenario, scenario.duration_s * max(_GROWTH_MIN, growth))

    def is_reached(self, summary: Summary) -> bool:
        """Whether the interval is narrow enough."""
        return summary.high - summary.low <= self.width + _ROUNDING

    def why(self, summary: Summary, longer: Scenario) -> str:
        """A line on why a scenario is run again."""
        return f"{self._told(summary)}: once more, for {duration(longer.duration_s)}"

    def shortfall(self, summary: Summary) -> str:
        """A line on an interval that is too wide at the end; empty if it is narrow enough."""
        if self.is_reached(summary):
            return ""
        after = duration(summary.scenario.duration_s)
        advice = "give a greater --max-duration, or a policy that loses less"
        return f"{self._told(summary)}, after {after}: {advice}"

    def _told(self, summary: Summary) -> str:
        points = (summary.high - summary.low) * 100
        return f"{summary.name}: the interval is {points:.3g} points wide, more than {self.width * 100:g}"

    def _with_duration(self, scenario: Scenario, duration_s: float) -> Scenario:
        """The scenario with whole epochs, or seconds, of load within the limit."""
        step = scenario.epoch_s if scenario.outages != "none" else 1.0
        whole = ceil(duration_s / step - 1e-9) * step
        return scenario.with_(duration_s=min(whole, self.duration_s_max))
