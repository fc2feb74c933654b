"""What a store of runs shows, as plain data: each scenario's figures in each run, and where they changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcast.loadtest.store.changes import Change, changes_of_shares, changes_of_times, difference_interval
from kcast.loadtest.store.runs import RunSeries, Store, series

TIMES = ("p50_ms", "p99_ms")
_CONFIDENCE = 0.95


def overview(store: Store) -> dict[str, Any]:
    """Returns, ready for JSON:

    - `runs`: of each run its place from 0, id, start, kcast and path.
    - `results`: of each scenario and run the share delivered with its interval, the effective sample size,
      the difference to the scenario's first valid run with its interval, percentiles of latency, copies for
      a pair, and whether they are valid. Runs that are not valid have no difference. Intervals of a
      scenario's differences hold together (Bonferroni).
    - `changes`: of each scenario, figure and change point the run with which it begins, the levels before and
      after, the interval of their difference for shares, and the p-value.
    - `problems`: what was left out.
    """
    every = series(store)
    return {
        "runs": [
            {
                "place": place,
                "run": run.run_id,
                "started": run.started,
                "kcast": run.version,
                "path": str(run.path),
            }
            for place, run in enumerate(store.runs)
        ],
        "results": [row for one in every for row in _results(one)],
        "changes": [row for one in every for row in _changes(one)],
        "problems": list(store.problems),
    }


def _results(one: RunSeries) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    compared = [number for number, point in enumerate(one.points) if point.is_compared]
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(compared) - 1)
    for number, (point, trials) in enumerate(zip(one.points, one.trials, strict=True)):
        summary = point.summary
        difference = low = high = None
        if number in compared[1:]:
            first, first_trials = one.points[compared[0]].summary.share, one.trials[compared[0]]
            difference = summary.share - first
            low, high = difference_interval(first, first_trials, summary.share, trials, confidence)
        rows.append(
            {
                "scenario": one.name,
                "place": point.place,
                "run": point.run.run_id,
                "pairs": summary.pairs,
                "share": summary.share,
                "low": summary.low,
                "high": summary.high,
                "trials": trials,
                "difference": difference,
                "difference_low": low,
                "difference_high": high,
                "p50_ms": summary.latency.p50_ms if summary.latency.count else None,
                "p99_ms": summary.latency.p99_ms if summary.latency.count else None,
                "copies": summary.copies_per_pair,
                "delivery_valid": summary.delivery_verdict.valid,
                "latency_valid": summary.latency_verdict.valid,
            }
        )
    return rows


def _changes(one: RunSeries) -> list[Mapping[str, Any]]:
    """The changes of all figures of a scenario, among the runs in which each is valid."""
    rows: list[Mapping[str, Any]] = []
    sound = [
        (point, trials) for point, trials in zip(one.points, one.trials, strict=True) if point.is_compared
    ]
    found = changes_of_shares([point.summary.share for point, _ in sound], [size for _, size in sound])
    rows += [_change(one.name, "delivered", [point.place for point, _ in sound], change) for change in found]
    timed = [
        point for point in one.points if point.summary.latency_verdict.valid and point.summary.latency.count
    ]
    for figure in TIMES:
        times = [getattr(point.summary.latency, figure) for point in timed]
        places = [point.place for point in timed]
        rows += [_change(one.name, figure, places, change) for change in changes_of_times(times)]
    return rows


def _change(scenario: str, figure: str, places: Sequence[int], change: Change) -> Mapping[str, Any]:
    return {
        "scenario": scenario,
        "figure": figure,
        "place": places[change.place],
        "before": change.before,
        "after": change.after,
        "low": change.low,
        "high": change.high,
        "p_value": change.p_value,
    }
