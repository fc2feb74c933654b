"""Runs with results and no rows: what a store of runs reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kcast.hashring.intervals import wilson
from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.results.verdicts import Health, Verdict
from kcast.loadtest.scenario import Scenario

PAIRS, TRIALS = 20_000, 2000.0


def result(scenario: Scenario, share: float, p50_ms: float = 2.0, **changes: Any) -> Summary:
    """The results of a scenario that delivered this share."""
    low, high = wilson(share * TRIALS / 2, TRIALS / 2)
    times_ns = np.linspace(0.5, 1.5, 1000) * p50_ms * 1e6
    values: dict[str, Any] = {
        "scenario": scenario,
        "status": "complete",
        "messages": 2000,
        "pairs": PAIRS,
        "delivered": round(share * PAIRS),
        **{"share": share, "low": low, "high": high},
        **{"trials": TRIALS / 2, "trials_given_outages": TRIALS},
        **{"predicted": None, "prediction_note": "", "interval_note": ""},
        **{"expected": None, "expected_low": None, "expected_high": None},
        **{"causes": {"down": PAIRS - round(share * PAIRS)}, "paths": {}},
        **{"copies": 3 * PAIRS, "duplicates": 2 * PAIRS},
        **{"latency": Percentiles.of(times_ns.astype(np.int64)), "publish_delay": Percentiles()},
        "health": Health(2000, 2000, 0, 0, 1.0, 0.0, 0, 0, 0, 0),
        **{"delivery_verdict": Verdict(), "latency_verdict": Verdict()},
    }
    return Summary(**values | changes)


def write_run(path: Path, day: int, results: Sequence[Summary], **facts: Any) -> None:
    """Writes a run of this day of November 2026, with these results."""
    run = create_run(path, [summary.scenario for summary in results], seed=1)
    for summary in results:
        run.begin(summary.name).finish("complete", results=summary.as_json())
    run.finish("complete")
    run.update(**{"started": f"2026-11-{day:02}T12:00:00.000+00:00", **facts})
