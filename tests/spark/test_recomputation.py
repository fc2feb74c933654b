"""Measured figures of the report equal those that plain SQL computes from the capture's files.

The SQL (tests/support/recomputed.py) goes by docs/capture.md and shares no code with what it is held against.
Causes of misses are held against those of a plain oracle in `tests/loadtest/results/test_random.py`.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.results.summary import summarise
from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.findings.findings import Findings
from tests.support.big_capture import big_scenario
from tests.support.handmade_capture import T0, S, World
from tests.support.random_captures import random_world
from tests.support.recomputed import Row, Tables, differences, recompute
from tests.support.run_of_worlds import write_run_of

pytestmark = pytest.mark.spark

SMALL: Mapping[str, Any] = {
    **{"servers": 12, "rate": 13.7, "epoch_s": 0.5},
    **{"topics": 8, "topics_per_subscriber": 4, "subscribers": 8},
}
SLOW: Mapping[str, Any] = {"delay_ms": 100.0, "jitter_ms": 300.0, "deadline_s": 0.81}
LEASES_END: Mapping[str, Any] = {"ttl_s": 1, "renewals": 1.5, "loss_in": 0.2, "loss_out": 0.1}
SEEDS = (6, 12, 47)  # of random captures
FROM_TAPS = ("server_life", "server_rx", "lease", "server_stat")


def simulated() -> list[Any]:
    """Sound scenarios: K' on each side, outages, losses, slow legs, leases that end, views that differ."""
    return [
        big_scenario(2_500, name="few-publish", k=5, k_prime=2, **SLOW, **LEASES_END, **SMALL),
        big_scenario(2_500, name="few-subscribe", k=4, k_prime=2, side="subscribe", known=0.75, **SMALL),
    ]


def handmade(path: Path) -> list[World]:
    """Captures whose rows contradict each other, among them those without taps, windows and pairs."""
    worlds = {f"random-{seed}": random_world(path, random.Random(seed)) for seed in SEEDS}
    for number, world in enumerate(worlds.values()):
        world.scenario = world.scenario.with_(repeat=1 + number, repeat_interval_s=0.1)
        for message in world.rows["publish"]:
            message["size_bytes"] = 100 + message["msg_id"] % 7
    untapped = worlds["untapped"] = random_world(path, random.Random(1))
    for table in FROM_TAPS:
        untapped.rows[table] = []
    untapped.rows["window"] = []
    for row in untapped.where("intent", sub_id=0):  # which is away for a while
        row["t_to_ns"] = T0 + 2 * S
        untapped.add("intent", **row | {"t_from_ns": T0 + 3 * S, "t_to_ns": T0 + 10 * S})
    nobody = worlds["nobody"] = random_world(path, random.Random(2))
    nobody.rows["intent"] = []
    for name, world in worlds.items():
        world.scenario = world.scenario.with_(name=name)
    return list(worlds.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of all these."""
    root = tmp_path_factory.mktemp("recomputed")
    sound, worlds = simulated(), handmade(root)
    return write_run_of(root / "run", sound, worlds)


@pytest.fixture(scope="module")
def recomputed(run: Path) -> dict[str, Tables]:
    """All tables of each scenario, by its name."""
    return {folder.scenario.name: recompute(folder.path) for folder in open_run(run).scenarios}


@pytest.fixture(scope="module")
def found(spark: SparkSession, run: Path) -> Findings:
    return analyse(spark, open_captures(spark, [str(run)]))


def rows_of(found: Findings, scenario: str, table: str) -> Sequence[Row]:
    """The rows of a scenario in the report."""
    (cell,) = [row["cell"] for row in found.tables["scenarios"] if row["scenario"] == scenario]
    return [row for row in found.tables[table] if row["cell"] == cell]


def test_every_measured_figure_of_the_report_is_that_of_plain_sql(
    recomputed: dict[str, Tables], found: Findings
) -> None:
    assert not found.problems
    wrong = [
        f"{scenario}: {difference}"
        for scenario, tables in recomputed.items()
        for table, rows in tables.items()
        for difference in differences(table, rows, rows_of(found, scenario, table))
    ]
    assert not wrong, "\n".join(wrong)


def test_kcast_load_says_the_same(recomputed: dict[str, Tables], run: Path) -> None:
    for folder in open_run(run).scenarios:
        tables, said = recomputed[folder.scenario.name], summarise(folder).as_json()
        (pairs,), (cost,) = tables["reliability"], tables["cost"]
        here = {
            **{"pairs": pairs["pairs"], "delivered": pairs["delivered"]},
            **{name: cost[name] for name in ("messages", "copies", "duplicates")},
            "latency": {name: value or 0 for name, value in tables["latency"][0].items() if name != "since"},
        }
        there = {name: said[name] for name in here}
        assert here == there, folder.scenario.name


def test_these_captures_have_what_figures_are_about(recomputed: dict[str, Tables]) -> None:
    sound = recomputed["few-publish"]
    assert sound["cost"][0]["renewals"] and sound["cost"][0]["duplicates"]
    assert any(row["servers_down"] for row in sound["over_time"])
    assert sound["audience"][0]["longest_deaf_messages"] > 1
    assert not recomputed["nobody"]["reliability"][0]["pairs"]
    assert recomputed["untapped"]["servers"][0]["received"] is None
