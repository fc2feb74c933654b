"""The analysis on a Spark cluster: a master and a worker, from the package that is installed."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
from pyspark.sql import SparkSession

from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.session.java import java_home
from tests.support.big_capture import big_scenario, write_run

pytestmark = pytest.mark.spark

SPARK_HOME = Path(pyspark.__file__).parent
START_S, SUBMIT_S = 120.0, 300.0  # on a machine that is busy with other things
QUICK = "-XX:TieredStopAtLevel=1"  # compiling takes longer than running such small jobs
SMALL: dict[str, Any] = {"servers": 12, "rate": 25.0, "epoch_s": 0.5, "topics": 8, "topics_per_subscriber": 4}


class Cluster(NamedTuple):
    master: str
    env: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master, and a worker with one core, on free ports."""
    folder = tmp_path_factory.mktemp("cluster")
    env = os.environ | {
        "JAVA_HOME": str(java_home(folder / "java")),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    with running(folder / "master.log", env, f"{deploy}.master.Master", *own) as log:
        master = told(log, r"Starting Spark master at (spark://\S+)")
        told(log, "I have been elected leader")
        worker = (*own, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), master)
        with running(folder / "worker.log", env, f"{deploy}.worker.Worker", *worker) as log:
            told(log, "Successfully registered with master")
            yield Cluster(master, env)


@contextmanager
def running(log: Path, env: dict[str, str], *command: str) -> Iterator[Path]:
    """The log of a process of the cluster, which is ended afterwards."""
    with log.open("wb") as file:
        started = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield log
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def told(log: Path, what: str) -> str:
    """Waits until a log matches a pattern; returns the match."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := re.search(what, log.read_text(errors="replace")):
            return found[found.re.groups]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} does not say {what}:\n{log.read_text(errors='replace')[-2000:]}")


def submit(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = subprocess.run(
        [sys.executable, "-m", "kcast.spark.submit"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = [f"--master={cluster.master}", "--driver-memory=1g", "--executor-memory=1g"]
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
    }
    options += [f"--conf={name}={value}" for name, value in settings.items()]
    return subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", *options, script, *arguments],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=SUBMIT_S,
    )


def test_a_cluster_finds_what_this_machine_finds(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    scenarios = [
        big_scenario(3_000, name="few publish", k_prime=2, **SMALL),
        big_scenario(3_000, name="ch", scheme="CH", k=3, **SMALL),
    ]
    run = write_run(tmp_path / "run", scenarios).path
    done = submit(cluster, str(run), "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "report.json").exists(), done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "out" / "report.json").read_text())["tables"]
    expected = analyse(spark, open_captures(spark, [str(run)])).tables
    assert found == {name: list(rows) for name, rows in expected.items()}
    assert done.returncode in (0, 5), done.stdout[-4000:]
    assert "few publish" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()


def test_a_folder_that_is_no_capture_is_told_there_too(cluster: Cluster, tmp_path: Path) -> None:
    done = submit(cluster, str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    # spark-submit merges both streams.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("kcast analyse: ")]
    assert "no such folder, and so no run.json" in line
    assert "Traceback" not in done.stdout + done.stderr
