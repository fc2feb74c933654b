"""What the demo shows: its progress, then a table, an explanation and a chart of its result."""

import time
from collections.abc import Sequence
from itertools import groupby
from math import floor
from typing import TextIO

from kcast.client.cli.text import paragraph
from kcast.client.cli.text import table as aligned
from kcast.hashring.policy import Policy
from kcast.loadtest.charts.curves import Axes, MeasuredPoint, Series, TheoryLine, picture
from kcast.loadtest.charts.scales import Linear, whole_numbers
from kcast.loadtest.charts.svg import EXPECTED, swatch
from kcast.loadtest.charts.terminal import Bars
from kcast.loadtest.charts.words import percent_digits
from kcast.loadtest.demo.plan import K_PRIMES, DemoPlan, DemoResult, K
from kcast.loadtest.demo.tally import Phase, PhaseResult, Tally, for_servers


def phase_name(phase: Phase, down: int) -> str:
    """Returns the name of a phase as readers see it."""
    return {Phase.UP: "all up", Phase.DOWN: f"{down} down"}.get(phase, str(phase))


# --- Progress ------------------------------------------------------------------------------------------


class Progress(Bars):
    """Shows how a run goes, in a `with` statement: a bar for each phase on a terminal, lines elsewhere."""

    def __init__(self, plan: DemoPlan, stream: TextIO) -> None:
        super().__init__(stream)
        self._plan = plan
        self._total: int | None = None
        self._phase_began = 0.0

    def begin(self, phase: Phase, messages: int | None) -> None:
        """A phase begins. `messages` is their number, None where the phase lasts for a time instead."""
        self._phase_began, self._total = time.monotonic(), messages
        name = phase_name(phase, self._plan.kill)
        amount = f"for {self._plan.ttl_s} s" if messages is None else f"{messages:,} messages"
        if self.are_drawn:
            self.add(name, messages or self._plan.ttl_s, f"publishing {amount}")
        else:
            self.say(f"{name}: publishing {amount}")

    def show(self, phase: Phase, published: int, tally: Tally) -> None:
        """Called several times a second with the messages published so far, which moves the bar."""
        if self.are_drawn:
            done = time.monotonic() - self._phase_began if self._total is None else published
            self.update(live_figures(phase, tally), done)

    def end(self, phase: Phase, tally: Tally) -> None:
        """A phase has ended: its messages have arrived, or will not."""
        figures = live_figures(phase, tally)
        if self.are_drawn:
            self.update(figures, self._total or self._plan.ttl_s)
        else:
            self.say(f"{phase_name(phase, self._plan.kill)}: delivered {figures}")


def live_figures(phase: Phase, tally: Tally) -> str:
    """Returns the share of pairs delivered so far, under each policy."""
    counts = (
        (k_prime, tally.delivered[phase, k_prime], tally.expected[phase, k_prime]) for k_prime in K_PRIMES
    )
    shares = (
        (k, percent_digits(delivered / expected) if expected else "-") for k, delivered, expected in counts
    )
    return "  ".join(f"K'={k_prime} {share:>6} %" for k_prime, share in shares)


# --- The result ---------------------------------------------------------------------------------------

_HEADS = ("policy", "phase", "pairs", "measured", "interval", "given the kills", "range", "")


def table(phase_results: Sequence[PhaseResult]) -> str:
    """Returns the figures of all phases and policies as a table, with an empty line between policies."""
    rows: list[tuple[str, ...]] = []
    for _, results in groupby(phase_results, lambda each: each.k_prime):
        rows += [("",) * len(_HEADS)] * bool(rows) + [_row(each) for each in results]
    return "\n".join(aligned(_HEADS, rows, left=2)) + "\n"


def _row(result: PhaseResult) -> tuple[str, ...]:
    theory = ("-", "-")
    if result.predicted is not None:
        theory = (f"{percent_digits(result.predicted)} %", _span(*result.range))
    return (
        *(policy_name(result.k_prime), phase_name(result.phase, result.down), f"{result.pairs:,}"),
        *(f"{percent_digits(result.share(result.delivered))} %", _span(*result.interval), *theory),
        "-" if result.verdict == "not judged" else result.verdict,
    )


def _span(low: float, high: float) -> str:
    return f"{percent_digits(low)}-{percent_digits(high)}"


def explanation(plan: DemoPlan, result: DemoResult) -> str:
    """Returns what the figures mean, and how theory differs that does not know which servers died."""
    unknowing = ", ".join(f"{percent_digits(for_servers(plan.servers, plan.kill, k))} %" for k in K_PRIMES)
    k_primes = ", ".join(map(str, K_PRIMES))
    if result.leases_after_s is None:
        leases = f"not all leases stood again within the ttl, {plan.ttl_s} s."
    else:
        leases = (
            f"all {result.subscriptions * K:,} leases stood again in {result.leases_after_s:.1f} s "
            f"(ttl {plan.ttl_s} s)."
        )
    paragraphs = (
        "A policy is k/publish/subscribe. A pair is a message and a subscriber that should get it. Given "
        "what happened: the share that theory expects, knowing which servers died. Range: where 99.99 % of "
        "runs fall if theory is right; it decides about ok. Interval: how exactly the share was measured. "
        "Both count that a message may be lost for all its subscribers at once.",
        f"Theory that does not know which {plan.kill} of {plan.servers} servers die expects {unknowing} for "
        f"K' = {k_primes}. Given what happened it differs, since each topic has {K} servers of its own.",
        f"After the restart {leases} {_last_loss(result)}",
    )
    return "\n\n".join("\n".join(paragraph(text)) for text in paragraphs) + "\n"


def _last_loss(result: DemoResult) -> str:
    if result.last_loss_s is None:
        return "Every message that was published from then on reached all its subscribers."
    return f"The last message that missed a subscriber was published {result.last_loss_s:.1f} s after it."


def named_series(plan: DemoPlan, phase_results: Sequence[PhaseResult]) -> list[tuple[str, Series]]:
    """Returns delivery by K' in each judged phase with its name; with servers down also what theory says."""
    down = f"{plan.kill} of {plan.servers} down"
    looks = ((Phase.UP, "all up", 0), (Phase.DOWN, down, 2), (Phase.RECOVERED, "recovered", 1))
    named = []
    for phase, name, style in looks:
        points = [_point(each) for each in phase_results if each.phase is phase]
        named.append((name, Series(style, points, _theory(phase, phase_results))))
    return named


def _point(result: PhaseResult) -> MeasuredPoint:
    share = result.share(result.delivered)
    if result.phase is not Phase.DOWN:
        return MeasuredPoint(result.k_prime, share)
    note = f"{percent_digits(share)} % arrived"
    return MeasuredPoint(result.k_prime, share, None, None, result.predicted, *result.range, note=note)


def _theory(phase: Phase, phase_results: Sequence[PhaseResult]) -> list[TheoryLine]:
    places = [(c.k_prime, c.predicted) for c in phase_results if c.phase is phase and c.predicted is not None]
    return [TheoryLine(places, "given_events")] if phase is Phase.DOWN else []


def drawing(plan: DemoPlan, phase_results: Sequence[PhaseResult], what: str) -> str:
    """Returns delivery by K' as an SVG document; `what` says what was published."""
    named = named_series(plan, phase_results)
    points = [point for _, series in named for point in series.points]
    least = min(
        point.y if point.expected_low is None else min(point.y, point.expected_low) for point in points
    )
    low = max(0, floor(least * 10 - 0.5))  # in tenths: the axis begins at least 5 % below all that is drawn
    axes = Axes(
        whole_numbers(K_PRIMES),
        Linear(low / 10, 1, [(tenth / 10, f"{tenth * 10} %") for tenth in range(low, 11)]),
        f"K′: how many of its topic’s K = {K} servers a message is published to",
        "pairs delivered",
    )
    legend = [(swatch(series.style, f"dot s{series.style}"), f"{name}: measured") for name, series in named]
    legend.append((EXPECTED, "theory given the kills, range of 99.99 % of runs"))
    return picture(
        [series for _, series in named],
        axes,
        f"What arrives while {plan.kill} of {plan.servers} servers are down",
        f"{what}; nobody avoids the servers that are down; seed {plan.seed}",
        legend,
    )


def policy_name(k_prime: int) -> str:
    """Returns the policy with this K', as a cluster file writes it."""
    return str(Policy(K, k_prime, K))
