"""The results of a scenario: the delivered share with its interval, causes of misses, and latencies.

The interval is Wilson's, with the effective sample size in place of the number of pairs (`effective_trials`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kcast.loadtest.results import loss_words
from kcast.loadtest.results.attribution import Attribution, judge, messages_of
from kcast.loadtest.results.causes import SHORTCOMINGS, UNEXPLAINED
from kcast.loadtest.results.chances import bunching, chances_of
from kcast.loadtest.results.effective_trials import (
    interval_note,
    pair_trials,
    pair_trials_given_outages,
    wider,
)
from kcast.loadtest.results.given_events import ROUNDING, given_events, why_none
from kcast.loadtest.results.health import examine
from kcast.loadtest.results.losses import losses_of
from kcast.loadtest.results.pair_clusters import pair_clusters
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.prediction import predict
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import Capture, columns
from kcast.loadtest.results.verdicts import Health, Verdict, judge_delivery, judge_latency
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.errors import KcastError


class ResultsError(KcastError, ValueError):
    """A stored summary that this version cannot read; the message says so."""


_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "scenario": Scenario.from_capture,
    "latency": Percentiles.from_json,
    "publish_delay": Percentiles.from_json,
    "health": Health.from_json,
    "delivery_verdict": Verdict.from_json,
    "latency_verdict": Verdict.from_json,
}
"""The fields of a summary that are written by their own `as_json`, and how each is read."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of one scenario. Shares are 0 .. 1.

    `low` .. `high` is the 95 % interval of the delivered `share`. `trials` is the effective sample size: that
    many independent pairs would have an interval as wide. `trials_given_outages` is that among runs with the
    same outages. `interval_note` says which source of variation the interval leaves out; empty if none.

    `predicted` is theory beforehand; None where there is none, and `prediction_note` says why, or
    what it leaves out. `expected` is theory given what happened, and 95 % of such runs are in
    `expected_low` .. `expected_high`; None where there is none.

    `causes` counts missed pairs and sums to `misses`; `paths` counts all paths, those of delivered pairs too.
    Both are by `Cause.label`, in the order of the way. `loss` has what the network lost though nobody asked
    for it, by leg, and in words (`said`, empty if nothing was). `copies` is the number of copies that came
    for the pairs; `duplicates` of them came after the first copy of their pair.
    """

    scenario: Scenario
    status: str
    messages: int
    pairs: int
    delivered: int
    share: float
    low: float
    high: float
    trials: float
    trials_given_outages: float
    predicted: float | None
    prediction_note: str
    interval_note: str
    expected: float | None
    expected_low: float | None
    expected_high: float | None
    causes: Mapping[str, int]
    paths: Mapping[str, int]
    copies: int
    duplicates: int
    latency: Percentiles
    publish_delay: Percentiles
    health: Health
    delivery_verdict: Verdict
    latency_verdict: Verdict
    loss: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.scenario.name

    @property
    def misses(self) -> int:
        """Number of pairs not delivered within the deadline."""
        return self.pairs - self.delivered

    @property
    def unexplained(self) -> int:
        """Number of misses for no reason that is recorded."""
        return sum(self.causes.get(cause.label, 0) for cause in UNEXPLAINED)

    @property
    def copies_per_pair(self) -> float:
        """Mean number of copies per pair; 0 without pairs."""
        return self.copies / self.pairs if self.pairs else 0.0

    @property
    def agrees(self) -> bool | None:
        """Whether the measured share agrees with theory; None where theory is missing or only rough.

        Theory given what happened decides if there is one, else theory beforehand. About one sound run in
        twenty disagrees by chance. What this machine missed by its own fault may count as delivered.
        """
        if self.expected_low is not None and self.expected_high is not None:
            excused = sum(self.causes.get(cause.label, 0) for cause in SHORTCOMINGS) / max(1, self.pairs)
            return (
                self.share <= self.expected_high + ROUNDING
                and self.expected_low <= self.share + excused + ROUNDING
            )
        if self.predicted is None or self.prediction_note or self.interval_note:
            return None
        return self.low <= self.predicted <= self.high

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, and those that follow from them, ready for `json.dumps`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: value.as_json() if name in _PARTS else dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        } | {"misses": self.misses, "unexplained": self.unexplained}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns what `as_json` was called on. Raises ResultsError for anything else."""
        try:
            # Earlier versions did not write these.
            values = {"interval_note": "", "trials_given_outages": values["trials"], "loss": {}} | dict(
                values
            )
            kept = {name: values[name] for name in cls.__slots__}
            return cls(**kept | {name: read(kept[name]) for name, read in _PARTS.items()})
        except (KeyError, TypeError, ValueError) as error:
            raise ResultsError(f"these are no results of this version of kcast: {error!r}") from None


def summarise(capture: Capture, status: str | None = None) -> Summary:
    """Returns the results of a scenario, from its capture; `status` is the capture's own by default.

    Raises CaptureError.
    """
    scenario = capture.scenario
    status = capture.status if status is None else status
    surroundings, messages = Surroundings(capture), messages_of(capture)
    attribution = judge(surroundings, messages)
    health = examine(capture, messages, surroundings)
    publish = columns(capture, "publish", "t_intended_ns", "t_send_ns")
    pairs, delivered = len(attribution), int(attribution.delivered.sum())
    share = delivered / pairs if pairs else 0.0
    clusters = pair_clusters(scenario, attribution, _t0_ns(capture, attribution))
    effective, given = pair_trials(scenario, clusters), pair_trials_given_outages(scenario, clusters)
    of_one_seed = given
    note = interval_note(effective)
    losses = losses_of(attribution, _t0_ns(capture, attribution), scenario)
    misses = None
    if pairs and not why_none(scenario):
        misses = given_events(scenario, chances_of(attribution), losses, bunching(messages))
    expected_low, expected_high = (None, None) if misses is None else misses.band(pairs)
    if losses.matters or (misses is not None and misses.are_beyond(share, pairs)):
        effective, of_one_seed = (wider(scenario, clusters, each) for each in (effective, given))
        note = "; ".join(filter(None, (note, _WIDER)))
    low, high = effective.interval(share)
    latency = Percentiles.of(attribution.latencies_ns[attribution.delivered])
    publish_delay = Percentiles.of(publish["t_send_ns"] - publish["t_intended_ns"])
    prediction = predict(scenario)
    return Summary(
        scenario=scenario,
        status=status,
        messages=len(publish["t_send_ns"]),
        pairs=pairs,
        delivered=delivered,
        share=share,
        low=low,
        high=high,
        trials=effective.interval_trials(),
        trials_given_outages=of_one_seed.interval_trials(),
        predicted=prediction.share,
        prediction_note=prediction.note,
        interval_note=note,
        expected=None if misses is None else 1 - misses.mean / pairs,
        expected_low=expected_low,
        expected_high=expected_high,
        causes={cause.label: count for cause, count in attribution.misses.items()},
        paths={cause.label: count for cause, count in attribution.paths.items()},
        copies=attribution.copies,
        duplicates=attribution.duplicates,
        latency=latency,
        publish_delay=publish_delay,
        health=health,
        delivery_verdict=judge_delivery(
            scenario,
            status,
            health,
            pairs=pairs,
            misses=attribution.misses,
            paths=attribution.paths,
            half_width=given.half_width(share),
            is_loss_known=losses.is_known,
        ),
        latency_verdict=judge_latency(health, latency, publish_delay),
        loss=loss_words.as_json(losses),
    )


_WIDER = "it is not as was planned: the interval is the wider of that by plan and that by what varied"


def _t0_ns(capture: Capture, attribution: Attribution) -> int:
    """The time at which the load began."""
    froms = columns(capture, "window", "t_from_ns")["t_from_ns"]
    times = froms if len(froms) else attribution.t_intended_ns
    return int(times.min()) if len(times) else 0
