"""What the demo shows: its progress, then a table, an explanation and a chart of its result."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from math import floor
from typing import TYPE_CHECKING, TextIO

from kcast.client.cli.text import paragraph
from kcast.client.cli.text import table as aligned
from kcast.hashring.policy import Policy
from kcast.loadtest.charts.curves import Axes, MeasuredPoint, Series, TheoryLine, picture
from kcast.loadtest.charts.scales import Linear, whole_numbers
from kcast.loadtest.charts.svg import EXPECTED, swatch
from kcast.loadtest.charts.words import percent_digits
from kcast.loadtest.demo.plan import K_PRIMES, DemoPlan, DemoResult, K
from kcast.loadtest.demo.tally import Phase, PhaseResult, Tally, for_servers

if TYPE_CHECKING:
    from rich.progress import TaskID


def phase_name(phase: Phase, down: int) -> str:
    """Returns the name of a phase as readers see it."""
    return {Phase.UP: "all up", Phase.DOWN: f"{down} down"}.get(phase, str(phase))


# --- Progress ------------------------------------------------------------------------------------------


class ProgressLines:
    """Shows progress in lines: for pipes and logs."""

    def __init__(self, plan: DemoPlan, stream: TextIO | None = None) -> None:
        self._plan = plan
        self._stream = stream or sys.stdout
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line with the seconds since the start."""
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", file=self._stream, flush=True)

    def begin(self, phase: Phase, messages: int | None) -> None:
        """Prints a line for the phase."""
        self.say(f"{phase_name(phase, self._plan.kill)}: {self._amount(messages)}")

    def update(self, phase: Phase, published: int, tally: Tally) -> None:
        """Prints nothing: figures of an unfinished phase would be noise in a log."""

    def end(self, phase: Phase, tally: Tally) -> None:
        """Prints a line with the phase's figures."""
        self.say(f"{phase_name(phase, self._plan.kill)}: delivered {live_figures(phase, tally)}")

    def _amount(self, messages: int | None) -> str:
        return (
            f"publishing for {self._plan.ttl_s} s"
            if messages is None
            else f"publishing {messages:,} messages"
        )


class ProgressBars(ProgressLines):
    """Shows a bar with live figures for each phase: for terminals, in a `with` statement."""

    def __init__(self, plan: DemoPlan, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__(plan, stream)
        console = Console(file=self._stream, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._task: TaskID | None = None
        self._phase_began = 0.0

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self._progress.console.print(f"{time.monotonic() - self._began:5.1f} s  {text}", markup=False)

    def begin(self, phase: Phase, messages: int | None) -> None:
        """Adds a bar: of messages, or of time where the phase lasts for a time."""
        self._phase_began = time.monotonic()
        self._total = messages
        self._task = self._progress.add_task(
            phase_name(phase, self._plan.kill),
            total=messages or self._plan.ttl_s,
            figures=self._amount(messages),
        )

    def update(self, phase: Phase, published: int, tally: Tally) -> None:
        """Moves the bar."""
        assert self._task is not None
        done = time.monotonic() - self._phase_began if self._total is None else published
        self._progress.update(self._task, completed=done, figures=live_figures(phase, tally))

    def end(self, phase: Phase, tally: Tally) -> None:
        """Fills the bar."""
        assert self._task is not None
        total = self._total or self._plan.ttl_s
        self._progress.update(self._task, completed=total, figures=live_figures(phase, tally))


def live_figures(phase: Phase, tally: Tally) -> str:
    """Returns the share of pairs delivered so far, under each policy."""
    shares = []
    for k_prime in K_PRIMES:
        expected = tally.expected[phase, k_prime]
        share = percent_digits(tally.delivered[phase, k_prime] / expected) if expected else "-"
        shares.append(f"K'={k_prime} {share:>6} %")
    return "  ".join(shares)


# --- DemoResult --------------------------------------------------------------------------------------------

_HEADS = (
    *("policy", "phase", "pairs", "measured", "interval", "given what happened", "range"),
    "",
)
_VERDICTS = {"not judged": "-"}


def table(phase_results: Sequence[PhaseResult]) -> str:
    """Returns the figures of all phases and policies as a table, with an empty line between policies."""
    lines = aligned(_HEADS, map(_row, phase_results), left=2)
    firsts = [f"{policy_name(k_prime)} " for k_prime in sorted({each.k_prime for each in phase_results})][1:]
    for first in firsts:
        index = next((number for number, line in enumerate(lines) if line.startswith(first)), 0)
        lines[index:index] = [""] * bool(index)
    return "\n".join(lines) + "\n"


def _row(result: PhaseResult) -> tuple[str, ...]:
    theory = ("-", "-")
    if result.predicted is not None and result.low is not None and result.high is not None:
        theory = (
            f"{percent_digits(result.predicted)} %",
            _span(result.share(result.low), result.share(result.high)),
        )
    return (
        policy_name(result.k_prime),
        phase_name(result.phase, result.down),
        f"{result.pairs:,}",
        f"{percent_digits(result.share(result.delivered))} %",
        _span(*result.interval),
        *theory,
        _VERDICTS.get(result.verdict, result.verdict),
    )


def _span(low: float, high: float) -> str:
    return f"{percent_digits(low)}-{percent_digits(high)}"


def explanation(plan: DemoPlan, result: DemoResult) -> str:
    """Returns what the figures mean, and how theory differs that does not know which servers died."""
    unknowing = ", ".join(f"{percent_digits(for_servers(plan.servers, plan.kill, k))} %" for k in K_PRIMES)
    k_primes = ", ".join(map(str, K_PRIMES))
    topics_with = Counter(result.dead_of_topic.values())
    spread = ", ".join(f"{dead} for {topics_with[dead]}" for dead in sorted(topics_with))
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
        f"K' = {k_primes}. Given what happened it differs, since each topic has {K} servers of its own. "
        f"Servers that died, and topics for which that many did: {spread}.",
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
    return [
        (
            name,
            Series(
                style,
                [_point(each) for each in phase_results if each.phase is phase],
                _theory(phase, phase_results),
            ),
        )
        for phase, name, style in looks
    ]


def _point(result: PhaseResult) -> MeasuredPoint:
    share = result.share(result.delivered)
    if result.phase is not Phase.DOWN or result.low is None or result.high is None:
        return MeasuredPoint(result.k_prime, share)
    ends = (result.share(result.low), result.share(result.high))
    return MeasuredPoint(
        result.k_prime, share, None, None, result.predicted, *ends, note=f"{percent_digits(share)} % arrived"
    )


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
    legend.append((EXPECTED, "theory given what happened, range of 99.99 % of runs"))
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
