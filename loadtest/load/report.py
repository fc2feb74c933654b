"""The results that `kcast load` prints: a table, causes of misses, what is not valid, and latencies."""

from collections.abc import Collection, Mapping
from pathlib import Path

from kcast.client.cli.text import table, tell, to_json
from kcast.loadtest.charts.words import percent_digits, significant
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.results.verdicts import EXIT_LATENCY_NOT_VALID, EXIT_REFUSED, caveat

_DELIVERY_HEADS = (
    *("scenario", "pairs", "delivered", "interval"),
    *("beforehand", "given what happened", "copies", "valid"),
)
_LATENCY_HEADS = ("latency", "p50 ms", "p99 ms", "p99.9 ms", "valid")
_OUTSIDE = "*"


def exit_code(results: Collection[Summary], *, is_strict: bool) -> int:
    """Returns 0 if all figures of delivery are valid; if strict, those of latency must be, too."""
    if not all(summary.delivery_verdict.valid for summary in results):
        return EXIT_REFUSED
    if is_strict and not all(summary.latency_verdict.valid for summary in results):
        return EXIT_LATENCY_NOT_VALID
    return 0


def print_results(results: Mapping[str, Summary], out: Path, *, is_strict: bool, as_json: bool) -> None:
    """Prints summaries, given by scenario name; `out` is the folder of the capture."""
    if as_json:
        for name, summary in results.items():
            tell(to_json({"type": "scenario", "name": name, **summary.as_json()}))
        code = exit_code(results.values(), is_strict=is_strict)
        tell(to_json({"type": "run", "folder": str(out), "scenarios": list(results), "exit_code": code}))
        return
    reasons = [*causes(results), *losses(results), *not_valid(results)]
    for part in (delivery_table(results), latency_table(results), reasons):
        if part:
            tell("\n" + "\n".join(part))
    tell(f"\ncapture: {out}")


def headline(summary: Summary) -> str:
    """Returns the result of a scenario in one line."""
    words = [f"delivered {percent_digits(summary.share)} % of {summary.pairs:,} pairs"]
    if summary.latency.count:
        words.append(
            f"p50 {significant(summary.latency.p50_ms)} ms, p99 {significant(summary.latency.p99_ms)} ms"
        )
    if not summary.delivery_verdict.valid:
        words.append("NOT VALID")
    elif not summary.latency_verdict.valid:
        words.append("latency cannot be trusted")
    return ", ".join(words)


def delivery_table(results: Mapping[str, Summary]) -> list[str]:
    """Returns what was delivered in each scenario beside theory, a line each, and the notes below it."""
    rows = [_delivery_row(name, summary) for name, summary in results.items()]
    lines = table(_DELIVERY_HEADS, rows)
    notes = {
        f"theory beforehand: {summary.prediction_note}": None
        for summary in results.values()
        if summary.prediction_note
    }
    notes |= {
        f"interval of {name}: {summary.interval_note}": None
        for name, summary in results.items()
        if summary.interval_note
    }
    if any(_expected(summary) is not None for summary in results.values()):
        notes["two theories: beforehand, before outages; given what happened, after them"] = None
    if any(summary.agrees is False for summary in results.values()):
        notes[f"{_OUTSIDE} differs from what was measured; by chance one in twenty does"] = None
    return [*lines, *notes]


def latency_table(results: Mapping[str, Summary]) -> list[str]:
    """Returns the latencies of each scenario in which anything arrived, a line each."""
    rows = [
        (
            name,
            *map(significant, (summary.latency.p50_ms, summary.latency.p99_ms, summary.latency.p999_ms)),
            "yes" if summary.latency_verdict.valid else "no",
        )
        for name, summary in results.items()
        if summary.latency.count
    ]
    return table(_LATENCY_HEADS, rows) if rows else []


def _delivery_row(name: str, summary: Summary) -> tuple[str, ...]:
    theory = [
        "-" if share is None else f"{percent_digits(share)} %"
        for share in (summary.predicted, _expected(summary))
    ]
    if summary.agrees is False:
        theory[0 if _expected(summary) is None else 1] += _OUTSIDE
    return (
        name,
        f"{summary.pairs:,}",
        f"{percent_digits(summary.share)} %",
        f"{percent_digits(summary.low)}-{percent_digits(summary.high)}",
        *theory,
        f"{summary.copies_per_pair:.2f}",
        "yes" if summary.delivery_verdict.valid else "NO",
    )


def _expected(summary: Summary) -> float | None:
    """Returns theory given what happened; None where nothing happened, so that it says nothing new."""
    scenario = summary.scenario
    says_nothing_new = scenario.outages == "none" and scenario.known == 1 and not summary.loss.get("said")
    return None if says_nothing_new else summary.expected


def causes(results: Mapping[str, Summary]) -> list[str]:
    """Returns the causes of misses, one line for each scenario that has any."""
    rows = [
        (name, f"{summary.misses:,} missed", _shares(summary))
        for name, summary in results.items()
        if summary.misses
    ]
    width = max((len(name) for name, _, _ in rows), default=0)
    return [f"{name:{width}}  {count}: {shares}" for name, count, shares in rows]


def _shares(summary: Summary) -> str:
    """Returns, say, `loss-in 29 (69.0%), down 13 (31.0%)`, the most frequent first."""
    ordered = sorted(summary.causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{label} {count:,} ({count / summary.misses:.1%})" for label, count in ordered)


def losses(results: Mapping[str, Summary]) -> list[str]:
    """Returns what the network lost in each scenario though nobody asked for it, one line each."""
    told = {name: summary.loss.get("said") for name, summary in results.items()}
    return [f"{name}: {said}" for name, said in told.items() if said]


def not_valid(results: Mapping[str, Summary]) -> list[str]:
    """Returns each reason why figures of a scenario are not valid."""
    return [
        caveat(what, name, reason)
        for name, summary in results.items()
        for what, verdict in (("delivery", summary.delivery_verdict), ("latency", summary.latency_verdict))
        for reason in verdict.reasons
    ]
