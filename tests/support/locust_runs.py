"""Real runs of locust on real servers: starts its processes, follows their progress, and ends them."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kcast.client.cluster import Cluster, format_cluster
from kcast.loadtest.capture.folder import ScenarioFolder, open_run
from kcast.loadtest.capture.schema import DUPLICATE, PASSED
from kcast.loadtest.scenario import Scenario
from tests.support.checkout import ROOT

LOCUSTFILE = ROOT / "loadtest" / "locustfile.py"
WAIT_S = 60.0


class Locust:
    """Locust processes on one cluster. Use it with `with`: its end kills them and what they have started.

    `changes` are statements that each of them runs after those of the locustfile.
    """

    def __init__(
        self, folder: Path, cluster: Cluster | None, locustfile: Path | str = LOCUSTFILE, *, changes: str = ""
    ) -> None:
        self.folder = folder
        self.progress: list[dict[str, Any]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        if changes:
            locustfile = folder / "locustfile.py"
            locustfile.write_text(f"from kcast.loadtest.locustfile import *\n{changes}")
        self._locustfile = str(locustfile)
        self._stack = ExitStack()
        self._cluster_file = folder / "locust.cluster"
        if cluster is not None:
            self._cluster_file.write_text(format_cluster(cluster))
        self._progress_fd: int | None = None
        self._rest = b""

    def __enter__(self) -> "Locust":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(WAIT_S)
        self._stack.close()

    @property
    def log(self) -> str:
        """The output of all of them."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("locust-*.log")))

    def start(
        self,
        *options: str,
        environ: dict[str, str] | None = None,
        descriptor: int = -1,
        cwd: Path | None = None,
    ) -> int:
        """Starts a process. Returns its number."""
        number = len(self.processes)
        with (self.folder / f"locust-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                (sys.executable, "-m", "locust", "-f", self._locustfile, *options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=cwd or self.folder,
                env={**os.environ, "KCAST_CLUSTER": str(self._cluster_file), **(environ or {})},
                pass_fds=() if descriptor < 0 else (descriptor,),
                start_new_session=True,
            )
        self.processes.append(process)
        return number

    def start_fixed(self, scenario: Scenario, *options: str, workers: int = 1, port: int = 0) -> None:
        """Starts the test of a scenario, whose progress can be followed."""
        file = self.folder / "scenario.json"
        file.write_text(json.dumps(scenario.as_json()))
        self._progress_fd, write_fd = os.pipe()
        self._stack.callback(self.close_progress_pipe)
        common = ("--headless", "--scenario", str(file), "--progress-fd", str(write_fd), *options)
        if workers == 1:
            self.start(*common, descriptor=write_fd)
        else:
            master = ("--master", "--master-bind-port", str(port), "--expect-workers", str(workers))
            self.start(*common, *master, descriptor=write_fd)
            for _ in range(workers):
                self.start(*common, "--worker", "--master-port", str(port), descriptor=write_fd)
        os.close(write_fd)

    def close_progress_pipe(self) -> None:
        """Closes the reading end of the progress pipe."""
        if self._progress_fd is not None:
            os.close(self._progress_fd)
            self._progress_fd = None

    def follow(self, phase: str = "") -> dict[str, Any]:
        """Follows the progress until a phase, or to the end. Returns the last report."""
        assert self._progress_fd is not None
        deadline = time.monotonic() + WAIT_S
        while not (phase and self.progress and self.progress[-1]["phase"] == phase):
            ready, _, _ = select.select([self._progress_fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"neither {phase or 'the end'} nor anything else: {self.progress[-1:]} {self.log}"
            data = os.read(self._progress_fd, 65_536)
            if not data:
                assert not phase, f"ended before {phase}: {self.log}"
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.progress += map(json.loads, lines)
        return self.progress[-1]

    def end(self, number: int = 0, within_s: float = WAIT_S) -> int:
        """Waits until a process ends. Returns its exit code."""
        try:
            return self.processes[number].wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end: {self.log}") from None


class Pairs(NamedTuple):
    """Pairs of message and subscriber, those that were delivered, and their latencies."""

    expected: set[tuple[int, int]]
    delivered: set[tuple[int, int]]
    latencies_ms: list[float]


def captured(path: Path) -> ScenarioFolder:
    """Returns the only scenario of a run."""
    (scenario,) = open_run(path).scenarios
    return scenario


def pairs(scenario: ScenarioFolder) -> Pairs:
    """Computes pairs by definition: each message and subscriber of its topic; the first copy in time."""
    intents = defaultdict(list)
    for row in scenario.read("intent").to_pylist():
        intents[row["topic_id"]].append(row)
    first: dict[tuple[int, int], int] = {}
    for row in scenario.read("deliver").to_pylist():
        if row["injected"] in (PASSED, DUPLICATE):
            pair = row["msg_id"], row["sub_id"]
            first[pair] = min(first.get(pair, row["t_user_ns"]), row["t_user_ns"])
    found = Pairs(set(), set(), [])
    for row in scenario.read("publish").to_pylist():
        for intent in intents[row["topic_id"]]:
            if intent["t_from_ns"] <= row["t_intended_ns"] < intent["t_to_ns"]:
                pair = row["msg_id"], intent["sub_id"]
                found.expected.add(pair)
                latency_ns = first.get(pair, 1 << 62) - row["t_intended_ns"]
                if latency_ns <= scenario.scenario.deadline_s * 1e9:
                    found.delivered.add(pair)
                    found.latencies_ms.append(latency_ns / 1e6)
    return found


def fitting(scenario: Scenario, cluster: Cluster) -> tuple[Scenario, Cluster]:
    """Returns the scenario with the cluster's number of servers, the cluster with the scenario's policy."""
    scenario = scenario.with_(servers=len(cluster.servers), backend="file")
    return scenario, replace(cluster, policy=scenario.policy)


def living(pids: Iterable[int]) -> list[int]:
    """Returns those of the processes that exist."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]
