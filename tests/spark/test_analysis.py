"""`kcast analyse` from end to end: its figures are those of the load tests, and the command works as
typed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.results.summary import Summary, summarise
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import TABLES
from tests.support.big_capture import big_scenario, write_run
from tests.support.quick_java import QUICK
from tests.support.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.spark

TIMEOUT_S = 300
SMALL: dict[str, Any] = {"servers": 12, "rate": 25.0, "epoch_s": 0.5, "topics": 8, "topics_per_subscriber": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the policies 5/2/5, and 4/4/2 with views that differ, and 2/2/2."""
    path = tmp_path_factory.mktemp("run") / "run"
    scenarios = [
        big_scenario(6_000, name="few-publish", k_prime=2, **SMALL),
        big_scenario(6_000, name="views", known=0.9, k=4, side="subscribe", **SMALL),
        big_scenario(6_000, name="ch", scheme="CH", k=2, **SMALL),
    ]
    write_run(path, scenarios)
    return path


class Done(NamedTuple):
    """The command's process, and its folders for the report and for temporary files."""

    process: subprocess.CompletedProcess[str]
    out: Path
    temp: Path


@pytest.fixture(scope="module")
def done(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("done")
    out, temp = folder / "deep" / "out", folder / "temp"
    process = kcast("analyse", run, "--out", out, "--master", "local[2]", "--memory", "1g", temp=temp)
    return Done(process, out, temp)


@pytest.fixture(scope="module")
def found(done: Done) -> Findings:
    return Findings.from_json((done.out / "report.json").read_bytes())


@pytest.fixture(scope="module")
def summaries(run: Path) -> list[Summary]:
    """What numpy finds in the same capture."""
    return [summarise(folder) for folder in open_run(run).scenarios]


def of_cell(found: Findings, table: str, cell: int) -> list[Row]:
    return [row for row in found.table(table) if row["cell"] == cell]


# --- The tables --------------------------------------------------------------------------------------


def test_all_tables_of_captures_are_there_in_order(found: Findings) -> None:
    expected = [name for name in TABLES if name not in ("simulation", "note")]
    assert list(found.tables) == expected
    assert found.problems == ()
    assert [row["scenario"] for row in found.table("scenarios")] == ["few-publish", "views", "ch"]


@pytest.mark.smoke
def test_shares_and_intervals_are_those_of_load_tests(found: Findings, summaries: list[Summary]) -> None:
    for cell, summary in enumerate(summaries):
        (row,) = of_cell(found, "reliability", cell)
        assert (row["pairs"], row["delivered"]) == (summary.pairs, summary.delivered)
        assert row["beforehand"] == summary.predicted
        assert row["low"] <= row["share"] <= row["high"]
        # The analysis looks for common losses in more clusterings than load tests do.
        assert row["trials"] <= summary.trials * (1 + 1e-9)
        (told,) = of_cell(found, "scenarios", cell)
        assert told["messages"] == summary.messages
        assert told["delivery_valid"] == summary.delivery_verdict.valid
        assert told["latency_valid"] == summary.latency_verdict.valid


def test_causes_are_those_of_load_tests(found: Findings, summaries: list[Summary]) -> None:
    for cell, summary in enumerate(summaries):
        rows = of_cell(found, "attribution", cell)
        assert {row["cause"]: row["misses"] for row in rows if row["misses"]} == summary.causes
        paths = {row["cause"]: row["paths"] for row in rows if row["paths"]}
        assert paths == {cause: count for cause, count in summary.paths.items() if cause in paths}
        assert summary.causes


def test_latencies_and_copies_are_those_of_load_tests(found: Findings, summaries: list[Summary]) -> None:
    for cell, summary in enumerate(summaries):
        rows = {row["since"]: row for row in of_cell(found, "latency", cell)}
        times = rows["intended"]
        assert times["count"] == summary.latency.count == summary.delivered
        assert (times["p50_ms"], times["p99_ms"]) == (summary.latency.p50_ms, summary.latency.p99_ms)
        (cost,) = of_cell(found, "cost", cell)
        assert (cost["copies"], cost["duplicates"]) == (summary.copies, summary.duplicates)


def test_a_sound_run_agrees_with_theory(found: Findings) -> None:
    joint = {row["theory"]: row for row in found.table("joint")}
    assert joint["given_events"]["scenarios"] == 3
    assert joint["given_events"]["verdict"] in ("agrees", "not refuted")
    # The runs are short.
    assert {row["verdict"] for row in found.table("reliability")} <= {"agrees", "not refuted"}
    assert found.table("health") == []


# --- The command -------------------------------------------------------------------------------------


def kcast(*arguments: str | Path, temp: Path) -> subprocess.CompletedProcess[str]:
    temp.mkdir()
    return subprocess.run(
        (sys.executable, "-m", "kcast.client.cli", *map(str, arguments)),
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temp), **QUICK},
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.smoke
def test_the_command_says_what_it_does_and_leaves_a_report_alone(done: Done, found: Findings) -> None:
    process, out, temp = done
    assert process.returncode == 0, process.stderr
    for line in process.stderr.splitlines():
        assert re.fullmatch(r" *\d+\.\d s  .+", line), line
    lines = process.stdout.splitlines()
    (head,) = [place for place, line in enumerate(lines) if line.split()[:2] == ["scenario", "pairs"]]
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == ["few-publish", "views", "ch"]
    assert any(line.startswith("theory given what happened: agrees in 3") for line in lines)
    assert lines[-1] == f"report: {out / 'report.html'}"
    assert list(temp.iterdir()) == []
    assert found.about["command"].startswith("kcast analyse ")
    assert "</html>" in (out / "report.html").read_text()
    for name in found.tables:
        assert {f"{name}.csv", f"{name}.parquet"} <= {path.name for path in (out / "tables").iterdir()}


def test_what_cannot_be_analysed_is_one_line_and_no_report(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = kcast("analyse", tmp_path / "empty", "--out", tmp_path / "out", temp=tmp_path / "temp")
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"kcast analyse: {tmp_path / 'empty'}: not a capture: it has no run.json")
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "temp").iterdir()) == []


# --- On a cluster of Spark's -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_a_cluster_finds_what_this_machine_finds(
    run: Path, found: Findings, cluster: SparkCluster, tmp_path: Path
) -> None:
    done = cluster.submit(str(run), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    there = Findings.from_json((tmp_path / "report.json").read_bytes())
    assert there.tables == found.tables
    assert all("Asked to launch executor" in log.read_text() for log in cluster.logs)
    assert "few-publish" in done.stdout
    assert (tmp_path / "report.html").exists()


def test_a_folder_that_is_no_capture_is_told_there_too(cluster: SparkCluster, tmp_path: Path) -> None:
    done = cluster.submit(str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("kcast analyse: ")]
    assert "no such folder; name a folder" in line
    assert "Traceback" not in done.stdout + done.stderr
