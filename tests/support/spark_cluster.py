"""A cluster of Spark's own, from the package that is installed: a master, and two workers of a core each."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from kcast.spark.session.java import java_home
from tests.support.quick_java import OPTION

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
START_S, SUBMIT_S = 120.0, 300.0  # on a machine that is busy with other things


class SparkCluster(NamedTuple):
    """The cluster's master, the environment of who submits to it, and the logs of its workers."""

    master: str
    env: dict[str, str]
    logs: tuple[Path, ...]

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `kcast analyse` on the cluster. Both streams end in stdout: spark-submit merges them."""
        script = subprocess.run(
            [sys.executable, "-m", "kcast.spark.submit"], capture_output=True, text=True, check=True
        ).stdout.strip()
        options = [f"--master={self.master}", "--driver-memory=1g", "--executor-memory=1g"]
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
        }
        options += [f"--conf={name}={value}" for name, value in settings.items()]
        return subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", *options, script, *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SUBMIT_S,
        )


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster on free ports while the `with` lasts; its logs are in `folder`."""
    home = java_home(folder / "java")
    # Without the last, each Java leaves a file in /tmp while it runs, where other tests look for leftovers.
    options = (OPTION, "-XX:-UsePerfData")
    env = os.environ | {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": " ".join(f'"{option}"' for option in options),
    }
    own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    with _running(folder / "master.log", env, f"{deploy}.master.Master", *own) as log:
        master = _told(log, r"Starting Spark master at (spark://\S+)")
        _told(log, "I have been elected leader")
        worker = (*own, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), master)
        with ExitStack() as workers:
            logs = [
                workers.enter_context(_running(place, env, f"{deploy}.worker.Worker", *worker))
                for place in (folder / f"worker-{number}.log" for number in range(1, WORKERS + 1))
            ]
            for log in logs:
                _told(log, "Successfully registered with master")
            yield SparkCluster(master, env, tuple(logs))


@contextmanager
def _running(log: Path, env: dict[str, str], *command: str) -> Iterator[Path]:
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


def _told(log: Path, what: str) -> str:
    """Waits until a log matches a pattern; returns the match."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := re.search(what, log.read_text(errors="replace")):
            return found[found.re.groups]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} does not say {what}:\n{log.read_text(errors='replace')[-2000:]}")
