"""Simulated captures are sound: judged healthy and complete, and delivering what theory says."""

from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.capture.parts import ROWS_MAX
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.results.summary import Summary, summarise
from tests.support import big_capture
from tests.support.big_capture import big_scenario, copies_per_s, write_run

SMALL = {"servers": 20, "epoch_s": 0.5, "rate": 40.0}


def of(path: Path, **fields: Any) -> Summary:
    scenario = big_scenario(20_000, **SMALL | fields)
    return summarise(write_run(path / "run", [scenario]).scenarios[0])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scheme": "CH", "k": 3},
        {"scheme": "R", "servers": 30, "outage": 0.6},
        {"scheme": "S"},
        {"side": "subscribe"},
        {"known": 0.9, "side": "subscribe"},
        {"publishers": 1, "subscribers": 5, "mixed": 3},
        {"outages": "exact", "down": 4, "outage": 0.2},
        {"outages": "none", "outage": 0.0, "loss_in": 0.2, "delay_ms": 20.0, "jitter_ms": 5.0},
    ],
)
def test_it_is_healthy_and_as_theory_says(tmp_path: Path, fields: dict[str, Any]) -> None:
    summary = of(tmp_path, **fields)
    assert summary.delivery_verdict.reasons == ()
    assert summary.latency_verdict.reasons == ()
    assert summary.status == "complete"
    assert summary.unexplained == 0
    assert summary.health.published == summary.health.scheduled == summary.messages
    assert 0 < summary.misses < summary.pairs
    assert summary.predicted is not None
    # Far out in either tail, as these are many cases of one seed.
    assert abs(summary.share - summary.predicted) < 5 * max(summary.high - summary.low, 0.001)
    if summary.expected is not None and summary.expected_low is not None:
        width = summary.expected - summary.expected_low
        assert abs(summary.share - summary.expected) <= 2 * width + 1e-9


def test_parts_are_as_a_recorder_writes_them_and_as_scenario_json_says(tmp_path: Path) -> None:
    scenarios = [big_scenario(100_000, rate=2_000.0), big_scenario(9_000, name="second", **SMALL)]
    run = write_run(tmp_path / "run", scenarios)
    for folder in open_run(tmp_path / "run").scenarios:
        written = folder.info["tables"]
        assert list(written) == list(TABLES)
        for table, facts in written.items():
            rows = [folder.read(table).num_rows]
            assert facts == {"files": len(folder.parts(table)), "rows": sum(rows)}
            assert facts["rows"] <= facts["files"] * ROWS_MAX
            assert facts["rows"] > 0, f"{table} has no rows: it is not told apart from a missing one"
    assert run.status == "complete"
    assert len(run.scenarios[0].parts("deliver")) > 1


def test_the_same_seed_gives_the_same_rows_in_slabs_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = big_scenario(20_000, **SMALL)
    first, second, other = (
        write_run(tmp_path / str(number), [scenario], seed).scenarios[0]
        for number, seed in enumerate((1, 1, 2))
    )
    assert all(first.read(table).equals(second.read(table)) for table in TABLES)
    assert not first.read("deliver").equals(other.read("deliver"))
    # Half a second's copies at most: no slab has much more, however long the load is.
    monkeypatch.setattr(big_capture, "SLAB_COPIES", round(copies_per_s(scenario) / 2))
    slabs = write_run(tmp_path / "slabs", [scenario]).scenarios[0].parts("deliver")
    assert len(slabs) >= 2 * scenario.duration_s
    assert summarise(open_run(tmp_path / "slabs").scenarios[0]).delivery_verdict.valid
