"""Whether a scenario's figures can be trusted: one verdict on delivery, one on latency.

A load test measures the machine that it runs on as well as what it is to test. A reason against a result
names a figure that shows how the machine, or the recording, may have changed it, and says what to do. These
figures come from `health.examine`, or from Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kcast.loadtest.results.causes import ON_NETWORK, SHORTCOMINGS, UNEXPLAINED, Cause
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.scenario import Scenario

SHORTCOMINGS_MAX = 0.001  # of all pairs; less where half the width of the interval is less
UNEXPLAINED_PATHS_MAX = 0.001  # of all paths, where no missed pair is unexplained
DELIVERIES_MIN = 1000
PUBLISH_DELAY_MAX = 0.1  # of the latency, at the 99th percentile of both
CLOCK_ERROR_MAX = 0.1  # of the median latency
MISCOUNTED_SHOWN = 3  # clients that are named

# Exit codes of `kcast load` and `kcast analyse`.
EXIT_REFUSED = 3  # a delivery figure is not valid, or a theory is refused
EXIT_LATENCY_NOT_VALID = 4  # only with --strict: it says more about this machine than about what was tested


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether figures are valid: they are if there is no reason why not. Each reason is a sentence."""

    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether there is no reason not to trust the figures."""
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """Returns `valid` and `reasons`."""
        return {"valid": self.valid, "reasons": list(self.reasons)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns what `as_json` was called on."""
        return cls(tuple(values["reasons"]))


@dataclass(frozen=True, slots=True)
class Health:
    """What a capture shows of how the run went: losses, lags, errors. Counts are sums over processes."""

    scheduled: int
    """Messages that were to be published."""
    published: int
    """The messages among these that were published."""
    rows_lost: int
    """Rows that recorders could not keep."""
    tap_lines_lost: int
    """Lines that servers' taps could not keep."""
    lag_max_ms: float
    """The longest time by which the event loop of a users' process was late."""
    clock_error_ms: float
    """The largest error of the clock offsets between users' processes."""
    client_overflows: int
    server_overflows: int
    send_errors: int
    slow_consumer: int
    """Deliveries dropped because the application did not take them."""
    servers_lost: tuple[int, ...] = ()
    """Numbers of servers that ended though the scenario did not end them."""
    orphans: int = 0
    """Rows of messages that the capture does not have; these and the next: `contradictions`."""
    too_early: int = 0
    """Rows of an effect before its cause."""
    through_outages: int = 0
    """Rows of what an outage should have stopped, or of what it could not have."""
    copies_missing: int = 0
    """Copies that clients counted, and `deliver` does not have; this and the next three: `copy_counts`."""
    copies_surplus: int = 0
    """Copies in `deliver` that clients did not count."""
    readings_altered: int = 0
    """Rows of `client_stat` that are less than the one before, or than what they are made up of."""
    miscounted: tuple[int, ...] = ()
    """The first clients of which that is so."""
    limited: int = 0  # publishers of the schedule that subscribers limited

    def as_json(self) -> dict[str, Any]:
        """Returns all fields."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns what `as_json` was called on."""
        lists = {name: tuple(values.get(name, ())) for name in ("servers_lost", "miscounted")}
        return cls(**{**values, **lists})


def judge_delivery(
    scenario: Scenario,
    status: str,
    health: Health,
    *,
    pairs: int,
    misses: Mapping[Cause, int],
    paths: Mapping[Cause, int],
    half_width: float,
    is_loss_known: bool = False,
) -> Verdict:
    """Returns whether the delivered share and the causes of misses can be trusted.

    `status` is the capture's. `misses` are missed pairs by cause; `paths` are all paths by what became of the
    message there; `half_width` is half the width of the share's interval. What the network lost is no reason
    against a result if that loss is measured itself (`is_loss_known`; `loss_estimates`).
    """
    unexplained_causes = [cause for cause in UNEXPLAINED if not is_loss_known or cause not in ON_NETWORK]
    reasons = []
    if status not in ("running", "complete"):
        reasons.append(f"the capture is {status}: it ends before the run was over; run the scenario again")
    if not pairs:
        reasons.append(
            "nothing was to be delivered: no subscriber listened to a topic while it was published on; use "
            "a higher --topics-per-subscriber, a higher --rate or a longer --duration"
        )
    if health.published < health.scheduled:
        missing = health.scheduled - health.published
        reasons.append(
            f"{_count(missing, 'message')} of {health.scheduled:,} that were scheduled {_were(missing)} not "
            "published: give a lower --rate, or more --workers"
        )
    if health.rows_lost:
        reasons.append(
            f"the recorder lost {_count(health.rows_lost, 'row')}: free disk space, or give a lower --rate"
        )
    if health.tap_lines_lost:
        reasons.append(
            f"servers' taps lost {_count(health.tap_lines_lost, 'line')}: free disk space, or give a lower "
            "--rate"
        )
    if health.servers_lost:
        names = ", ".join(f"server-{number + 1}" for number in health.servers_lost)
        reasons.append(
            f"{names} ended, and the scenario did not end it: see what it said, if anything, in "
            "_servers.log of the scenario's folder"
        )
    reasons += _contradictions(health)
    if status in ("running", "complete"):  # else the last seconds are missing, of each table others
        reasons += _miscounts(health)
    unexplained = sum(misses.get(cause, 0) for cause in unexplained_causes)
    if unexplained:
        causes = _list({cause: misses[cause] for cause in unexplained_causes if cause in misses})
        reasons.append(
            f"{_count(unexplained, 'missed pair')} of {pairs:,} {_were(unexplained)} lost for no reason that "
            f"is recorded ({causes}): look for other traffic, a firewall, or a bug"
        )
    lost_paths = sum(paths.get(cause, 0) for cause in unexplained_causes)
    all_paths = sum(paths.values())
    if not unexplained and lost_paths > UNEXPLAINED_PATHS_MAX * all_paths:
        reasons.append(
            f"{_count(lost_paths, 'path')} of {all_paths:,} {_were(lost_paths)} lost for no reason that is "
            "recorded, though others made up for them: look for other traffic, a firewall, or a bug"
        )
    if health.limited:
        reasons.append(f"subscribers limited {_count(health.limited, 'publisher')}: give a lower --burst")
    reasons += _shortcomings(health, misses, pairs, half_width)
    lag_s = health.lag_max_ms / 1000
    for limit_s, what in (
        (scenario.ttl_s / 10, "a tenth of the ttl"),
        (scenario.deadline_s / 2, "half the deadline"),
    ):
        if lag_s > limit_s:
            reasons.append(
                f"users' processes stood still for up to {lag_s:.3g} s, which is more than {what} "
                f"({limit_s:.3g} s): give a lower --rate, or more --workers"
            )
    return Verdict(tuple(reasons))


def _contradictions(health: Health) -> list[str]:
    """The reasons that name what the capture tells in two ways: no figure made of it can be trusted."""
    told = (
        (
            health.orphans,
            "messages that it has not published, or has twice: files of it were lost or mixed up",
        ),
        (
            health.too_early,
            "something before its cause, or without it: files were lost, or clocks differ by more",
        ),
        (health.through_outages, "outages or losses that its settings do not have, or not then"),
    )
    return [
        f"the capture contradicts itself: {_count(rows, 'row')} {'tells' if rows == 1 else 'tell'} of "
        f"{what}; run the scenario again"
        for rows, what in told
        if rows
    ]


def _miscounts(health: Health) -> list[str]:
    """The reason that says where clients counted other copies than `deliver` has."""
    told = [
        _count(number, *what)
        for number, what in (
            (health.copies_missing, ("copy that deliver lacks", "copies that deliver lacks")),
            (health.copies_surplus, ("row of deliver too many", "rows of deliver too many")),
            (health.readings_altered, ("impossible row of client_stat", "impossible rows of client_stat")),
        )
        if number
    ]
    if not told:
        return []
    named = ", ".join(map(str, health.miscounted[:MISCOUNTED_SHOWN]))
    clients = f"client{'s' if len(health.miscounted) > 1 else ''} {named}"
    if len(health.miscounted) > MISCOUNTED_SHOWN:
        clients += " and others"
    return [
        f"the capture contradicts itself: client_stat and deliver do not agree about {clients} "
        f"({', '.join(told)}), so rows were lost, added or altered, and the share delivered, causes, copies, "
        "latencies and loss may all be wrong; run the scenario again"
    ]


def _shortcomings(health: Health, misses: Mapping[Cause, int], pairs: int, half_width: float) -> list[str]:
    """The reason that names misses that were this machine's fault, if there are enough to matter."""
    own = {cause: misses[cause] for cause in SHORTCOMINGS if cause in misses}
    count = sum(own.values()) + health.slow_consumer
    allowed = min(SHORTCOMINGS_MAX, half_width) * pairs
    if count <= allowed:
        return []
    listed = _list(own | ({"slow-consumer": health.slow_consumer} if health.slow_consumer else {}))
    return [
        f"{_count(count, 'pair')} of {pairs:,} {_were(count)} missed because this machine was too slow "
        f"({listed}); up to {allowed:,.0f} would not matter: give a lower --rate or more --workers, or "
        "raise net.core.rmem_max"
    ]


def caveat(what: str, whose: str, reason: str) -> str:
    """Returns a line that says why "delivery" or "latency" of a scenario is not valid.

    Only delivery is worth an alarm: on an ordinary machine latencies often cannot be measured.
    """
    if what == "delivery":
        return f"NOT VALID: {what} of {whose}: {reason}"
    return f"{what} of {whose} cannot be trusted: {reason}"


def judge_latency(health: Health, latency: Percentiles, publish_delay: Percentiles) -> Verdict:
    """Returns whether the latencies can be trusted; `publish_delay` is how late messages left."""
    reasons = []
    if latency.count < DELIVERIES_MIN:
        reasons.append(
            f"{_count(latency.count, 'delivery', 'deliveries')} {_were(latency.count)} measured, fewer than "
            f"{DELIVERIES_MIN:,}: give a higher --rate or a longer --duration"
        )
    if latency.count and publish_delay.p99_ms >= PUBLISH_DELAY_MAX * latency.p99_ms:
        reasons.append(
            f"messages left {publish_delay.p99_ms:g} ms late at the 99th percentile, which is not less than "
            f"{PUBLISH_DELAY_MAX:.0%} of the latency's ({latency.p99_ms:g} ms): give a lower --rate, use a "
            "machine with more cores free, or give legs the --delay of a real network"
        )
    if latency.count and health.clock_error_ms > CLOCK_ERROR_MAX * latency.p50_ms:
        reasons.append(
            f"clocks may differ by {health.clock_error_ms:.3g} ms, which is more than {CLOCK_ERROR_MAX:.0%} "
            f"of the median latency ({latency.p50_ms:g} ms): run all workers on one machine"
        )
    return Verdict(tuple(reasons))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _list(causes: Mapping[Cause | str, int] | Mapping[Cause, int]) -> str:
    return ", ".join(
        f"{cause.label if isinstance(cause, Cause) else cause} {number:,}" for cause, number in causes.items()
    )
