"""Simulated captures are sound: judged healthy and complete, and delivering what theory says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.capture.parts import ROWS_MAX
from kcast.loadtest.capture.schema import PASSED, TABLES
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.scenario import Scenario
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


def test_leases_that_were_not_renewed_have_ended(tmp_path: Path) -> None:
    summary = of(tmp_path, k_prime=1, ttl_s=2, epoch_s=3.0, rate=20.0)
    assert summary.causes["lease-expired"] > 0
    assert summary.unexplained == 0
    assert summary.delivery_verdict.valid


def test_it_has_about_as_many_copies_as_asked_for(tmp_path: Path) -> None:
    assert of(tmp_path).copies == pytest.approx(20_000, rel=0.1)


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


def test_clients_counted_what_came(tmp_path: Path) -> None:
    scenario = big_scenario(20_000, **SMALL)
    folder = write_run(tmp_path / "run", [scenario]).scenarios[0]
    deliver = folder.read("deliver")
    came = np.asarray(deliver["injected"]) == PASSED
    stat = folder.read("client_stat")
    last = np.asarray(stat["t_ns"]) == np.asarray(stat["t_ns"]).max()
    counted = {name: int(np.asarray(stat[name])[last].sum()) for name in ("copies", "deliveries")}
    pairs = np.asarray(deliver["msg_id"])[came] * scenario.subscribers + np.asarray(deliver["sub_id"])[came]
    assert counted == {"copies": int(came.sum()), "deliveries": len(np.unique(pairs))}


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


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"repeat": 2}, "repeats"), ({"by": "kill"}, "kill"), ({"scheme": "S", "known": 0.5}, "modulo")],
)
def test_what_is_not_simulated_is_refused(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        write_run(tmp_path / "run", [Scenario(outages="independent", outage=0.1, **fields)])
