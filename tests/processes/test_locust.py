"""Locust as its users know it, on real servers: `make test-load`."""

import csv
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import Scenario
from tests.support.cluster_of_processes import ClusterOfProcesses
from tests.support.locust_runs import LOCUSTFILE, WAIT_S, Locust, captured, fitting, living, pairs

pytestmark = pytest.mark.load

CACHE_S = 2.1  # for this long, the web UI shows old figures
CSV = ("--csv", "run", "--csv-full-history")
LOAD = ("--rate", "40", "--topics", "8", "--topics-per-subscriber", "4", "--deadline", "2")
SCENARIO = Scenario(
    seed=9,
    k=3,
    k_prime=2,
    publishers=3,
    subscribers=8,
    mixed=2,
    topics=8,
    topics_per_subscriber=4,
    rate=40.0,
    duration_s=3.0,
    deadline_s=1.0,
)

# No file grows beyond 12 kB. Python would cut the modules that it compiles off there, for everybody after it.
FULL_DISK = (
    "import resource, sys\n"
    "sys.dont_write_bytecode = True\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))\n"
)

# With --processes locust waits for its workers after it has closed its CSV files, and may write to them then.
CLOSED_CSV = re.compile(
    r"Traceback [^\n]*\n(?:[ \t][^\n]*\n)*(?:[ \t][^\n]*stats_writer\n)(?:[ \t][^\n]*\n)*"
    r"ValueError: I/O operation on closed file\."
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path_factory.mktemp("servers"), 4, Policy(3, 2, 3)) as running:
        yield running


@pytest.fixture
def cluster(servers: ClusterOfProcesses) -> Cluster:
    return servers.cluster


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def port_options() -> tuple[str, ...]:
    """Options for a free port, for a master and its workers."""
    port = str(free_port())
    return "--master-bind-port", port, "--master-port", port


def await_captured(capture: Path, locust: Locust) -> None:
    """Returns when deliveries have been captured."""
    deadline = time.monotonic() + WAIT_S
    while not list(capture.glob("run=*/scenario=*/table=deliver/*")):
        assert time.monotonic() < deadline, locust.log
        time.sleep(0.1)


# --- Headless -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A headless run that has ended, and locust's log of it."""

    folder: Path
    run_time_s: int
    log: str

    @property
    def capture(self) -> Path:
        return self.folder / "capture"

    def rows(self) -> dict[str, dict[str, str]]:
        """Returns the rows of locust's CSV file by their type."""
        with (self.folder / "run_stats.csv").open(newline="") as file:
            return {row["Type"]: row for row in csv.DictReader(file)}

    def table(self) -> dict[str, list[str]]:
        """Returns the columns of locust's last table by the type of their row."""
        lines = (line for line in self.log.splitlines() if "|" in line and "%)" in line)
        return {line.split()[0]: line.split() for line in lines}


def run_headless(
    folder: Path,
    cluster: Cluster,
    *options: str,
    is_enough: Callable[[Run], bool],
    locustfile: str = str(LOCUSTFILE),
    changes: str = "",
    environ: dict[str, str] | None = None,
    also_start: Callable[[Locust], object] = lambda _: None,
    exit_code: int = 0,
) -> Run:
    """Runs locust for 6 s; where a busy machine does not do enough within this time, for twice as long."""
    for run_time_s in (6, 12, 24, 48):
        run_folder = folder / f"for-{run_time_s}-s"
        run_folder.mkdir()
        with Locust(run_folder, cluster, locustfile, changes=changes) as locust:
            locust.start(
                *("--headless", "-t", f"{run_time_s}s", "--only-summary", *LOAD, "--capture", "capture"),
                *options,
                environ=environ,
            )
            also_start(locust)
            assert locust.end(within_s=WAIT_S + run_time_s) == exit_code, locust.log
        run = Run(run_folder, run_time_s, locust.log)
        if is_enough(run):
            break
    return run


def published(run: Run) -> int:
    """Number of messages that locust counted."""
    return int(run.table()["PUB"][2]) if "PUB" in run.table() else 0


def has_pairs(run: Run) -> bool:
    return bool(pairs(captured(run.capture)).expected)


def processes_options(processes: int) -> tuple[str, ...]:
    """Options for a master with so many workers; none for a single process."""
    return ("--processes", str(processes), *port_options()) if processes else ()


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.smoke), 2])
def test_headless_with_all_outputs(tmp_path: Path, cluster: Cluster, processes: int) -> None:
    def is_enough(run: Run) -> bool:
        """Whether all happens, and most of it is in locust's CSV file, which may be some seconds behind."""
        rows, table = run.rows(), run.table()
        return {"SUB", "PUB", "DELIVER"} <= rows.keys() & table.keys() and all(
            int(rows[name]["Request Count"]) > 0.7 * int(table[name][2]) for name in ("PUB", "DELIVER")
        )

    run = run_headless(
        tmp_path,
        cluster,
        *("-u", "12", "-r", "12", *CSV, "--html", "run.html", *processes_options(processes)),
        is_enough=is_enough,
    )
    assert "Traceback" not in CLOSED_CSV.sub("", run.log)
    set_at, reached_at = (
        datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f")
        for text in re.findall(r"^\[(.*?)\] .*(?:Run time limit set|limit reached)", run.log, re.MULTILINE)
    )
    assert (reached_at - set_at).total_seconds() > run.run_time_s - 0.1
    rows, table = run.rows(), run.table()
    assert rows.keys() == {"SUB", "PUB", "DELIVER", ""}
    capture = captured(run.capture)
    assert capture.status == "complete"
    published = capture.read("publish")
    assert int(table["PUB"][2]) == published.num_rows
    counts = {name: int(rows[name]["Request Count"]) for name in ("PUB", "DELIVER")}
    assert 0.7 * published.num_rows < counts["PUB"] <= published.num_rows
    assert published.num_rows == sum(capture.read("window")["scheduled"].to_pylist())
    # What was on its way at the end is neither delivered nor missed; it counts in locust's figures alone.
    found = pairs(capture)
    assert found.expected == found.delivered
    on_its_way = int(table["DELIVER"][2]) - len(found.delivered)
    assert on_its_way >= 0 < len(found.delivered)
    assert int(table["SUB"][2]) == len(set(capture.read("intent")["sub_id"].to_pylist()))

    # Times are not cut down to whole milliseconds, and are those of the capture.
    delays_ms = sorted(
        (row["t_send_ns"] - row["t_intended_ns"]) / 1e6
        for row in published.select(["t_send_ns", "t_intended_ns"]).to_pylist()
    )
    report = (run.folder / "run.html").read_text()
    statistics = json.loads(re.findall(r'"response_time_statistics": (\[.*?\])', report)[0])
    in_report = next(row for row in statistics if row["method"] == "PUB")
    # Of these delays, locust's files may lack the last ones: the median of so many of them has such a rank.
    rank = counts["PUB"] // 2
    low, high = delays_ms[max(0, rank - 2)], delays_ms[min(len(delays_ms) - 1, len(delays_ms) - rank + 1)]
    for told in (rows["PUB"]["50%"], rows["PUB"]["Median Response Time"], in_report["0.5"]):
        assert 0.99 * low <= float(told) <= 1.01 * high
        assert 0 < float(told) != round(float(told))
    median = delays_ms[len(delays_ms) // 2]
    assert float(table["PUB"][-4]) == pytest.approx(median, rel=0.01, abs=0.002)
    # A latency at the user is that at the socket and a little more.
    latencies = sorted(found.latencies_ms)
    rank = max(0, counts["DELIVER"] // 2 - on_its_way - 2)
    assert float(rows["DELIVER"]["50%"]) > 0.99 * latencies[rank]


def test_a_miss_is_a_failure_and_ends_with_locusts_exit_code(tmp_path: Path, cluster: Cluster) -> None:
    def failures(run: Run) -> list[dict[str, str]]:
        with (run.folder / "run_failures.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    run = run_headless(
        tmp_path,
        cluster,
        *("-u", "6", "-r", "6", *CSV),
        *("--loss-out", "0.8", "--deadline", "0.5", "--exit-code-on-error", "7"),
        is_enough=lambda run: sum(int(row["Occurrences"]) for row in failures(run)) > 10,
        exit_code=7,
    )
    (failure,) = failures(run)
    assert failure["Error"] == "Missed('not received within 0.5 s')"
    assert int(failure["Occurrences"]) > 10


STAIRS = """
from locust import LoadTestShape
class Stairs(LoadTestShape):
    def tick(self):
        step = int(self.get_run_time() / 3)
        return ((2, 6, 12)[step], 12) if step < 3 else None
"""


def test_a_shape_steps_users_up(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "stairs.py").write_text(STAIRS)
    run = run_headless(
        tmp_path,
        cluster,
        *("-u", "12", "-r", "12", *processes_options(2)),
        is_enough=has_pairs,
        locustfile=f"{LOCUSTFILE},{tmp_path / 'stairs.py'}",
    )
    for users in (2, 6, 12):
        assert f"updating to {users} users" in run.log
    capture = captured(run.capture)
    found = pairs(capture)
    assert len(found.delivered) == len(found.expected) > 0
    windows = capture.read("window").to_pylist()
    assert len({window["t_from_ns"] // 10**9 for window in windows}) > 1
    assert sum(window["scheduled"] for window in windows) == capture.read("publish").num_rows


# --- The web UI -----------------------------------------------------------------------------------------


class WebUi:
    """Locust's web UI, by the requests that its page makes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, form: dict[str, Any] | None = None) -> Any:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(self._url + path, data, timeout=WAIT_S) as answer:
            body = answer.read().decode()
        return json.loads(body) if body.startswith("{") else body

    def await_up(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.ask("/")
                return
            except urllib.error.URLError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def stats(self) -> dict[str, dict[str, Any]]:
        return {entry["method"]: entry for entry in self.ask("/stats/requests")["stats"]}

    def await_count(self, kind: str, count: int) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while (entry := self.stats().get(kind, {"num_requests": 0}))["num_requests"] < count:
            assert time.monotonic() < deadline, self.stats()
            time.sleep(0.2)
        return entry


@pytest.mark.parametrize("workers", [2])
def test_the_web_ui_starts_stops_and_starts_again(tmp_path: Path, cluster: Cluster, workers: int) -> None:
    port = free_port()
    web = WebUi(port)
    processes = ("--processes", str(workers), *port_options()) if workers else ()
    with Locust(tmp_path, cluster) as locust:
        locust.start("--web-host", "127.0.0.1", "--web-port", str(port), "--capture", "capture", *processes)
        web.await_up()
        if workers:
            deadline = time.monotonic() + WAIT_S
            while web.ask("/worker-count")["worker_count"] < workers:
                assert time.monotonic() < deadline
        page = web.ask("/")
        for field in ("loss_in", "topics_per_subscriber", "outages"):
            assert f'"{field}": {{"choices"' in page
        for field in ("progress_fd", "capture", "arrivals", "renewals"):
            assert f'"{field}"' not in page
        assert re.search(r'"missing_host_warning": ?false', page)
        assert re.search(r'"host": ?"kcast://locust.cluster"', page)

        wrong = web.ask("/swarm", {"user_count": 6, "spawn_rate": 6, "loss_in": 7})
        assert (wrong["success"], wrong["message"]) == (
            False,
            "kcast: --loss-in is 7: give a share from 0 to 1",
        )
        elsewhere = web.ask("/swarm", {"user_count": 6, "spawn_rate": 6, "host": "kcast://other.cluster"})
        assert not elsewhere["success"] and "start locust with another --cluster" in elsewhere["message"]
        form = {
            "user_count": 6,
            "spawn_rate": 6,
            "host": "kcast://locust.cluster",
            "rate": 50,
            "topics": 4,
            "topics_per_subscriber": 4,
        }
        assert web.ask("/swarm", form)["success"]
        entry = web.await_count("PUB", 100)
        assert entry["num_failures"] == 0
        for name in ("median_response_time", "min_response_time"):
            assert 0 < entry[name] != round(entry[name]), (name, entry)
        web.await_count("DELIVER", 300)
        web.ask("/stop", {})
        assert web.ask("/swarm", {**form, "rate": 20})["success"]
        # Not by the counts alone: a late report of a worker may still be of the first test.
        await_captured(tmp_path / "capture-2", locust)
        time.sleep(CACHE_S)
        told = web.await_count("DELIVER", 1)["num_requests"]
        web.await_count("DELIVER", told + 100)
        assert "MISS" not in web.stats()
        web.ask("/stop", {})
        locust.processes[0].send_signal(signal.SIGINT)
        assert locust.end() == 0, locust.log
    first, second = (captured(tmp_path / name) for name in ("capture", "capture-2"))
    assert (first.scenario.rate, second.scenario.rate) == (50.0, 20.0)
    assert first.status == second.status == "complete"
    for capture in (first, second):
        windows = capture.read("window").to_pylist()
        scheduled = sum(window["scheduled"] for window in windows)
        assert scheduled == capture.read("publish").num_rows
        lasted_s = sum(window["t_to_ns"] - window["t_from_ns"] for window in windows) / 1e9
        assert scheduled / lasted_s == pytest.approx(capture.scenario.rate, rel=0.3)


# --- Tests of a scenario --------------------------------------------------------------------------------


def test_two_workers_do_what_one_process_does(tmp_path: Path, cluster: Cluster) -> None:
    scenario, cluster = fitting(
        SCENARIO.with_(loss_in=0.1, loss_out=0.1, outages="independent", outage=0.3, epoch_s=1.0), cluster
    )
    captures = []
    for workers in (1, 2):
        folder = tmp_path / f"by-{workers}"
        folder.mkdir()
        with Locust(folder, cluster) as locust:
            locust.start_fixed(
                scenario, "--capture", str(folder / "capture"), workers=workers, port=free_port()
            )
            told = locust.follow()
            assert [locust.end(each) for each in range(len(locust.processes))] == [0] * len(locust.processes)
        assert told["phase"] == "done", locust.log
        capture = captured(folder / "capture")
        found = pairs(capture)
        assert told["published"] == capture.read("publish").num_rows
        assert told["delivered"] == len(found.delivered)
        assert told["missed"] == len(found.expected - found.delivered) > 0
        down = {(row["server_id"], row["epoch"]) for row in capture.read("outage").to_pylist()}
        captures.append((capture, found, down))
    (one, found_one, down_one), (two, found_two, down_two) = captures
    # What the seed decides is the same, whoever does it; what chance decides is alike.
    assert found_one.expected == found_two.expected
    assert down_one == down_two
    shares = [len(found.delivered) / len(found.expected) for _, found, _ in captures]
    assert shares[0] == pytest.approx(shares[1], abs=0.06)
    processes = [set(capture.read("member")["process"].to_pylist()) for capture in (one, two)]
    assert processes == [{"local"}, {"worker-0", "worker-1"}]


def test_a_worker_with_another_clock_learns_its_offset(tmp_path: Path, cluster: Cluster) -> None:
    changes = (
        "import os\n"
        "from kcast.loadtest.users import clocks\n"
        "clocks.clock_id = lambda: f'of process {os.getpid()}'\n"
    )
    scenario, cluster = fitting(SCENARIO.with_(duration_s=1.0), cluster)
    with Locust(tmp_path, cluster, changes=changes) as locust:
        locust.start_fixed(scenario, "--capture", str(tmp_path / "capture"), workers=2, port=free_port())
        assert locust.follow()["phase"] == "done", locust.log
    rows = captured(tmp_path / "capture").read("clock").to_pylist()
    assert {row["process"] for row in rows} == {"worker-0", "worker-1"}
    for row in rows:  # in truth their clocks are the same
        assert 0 < row["error_ns"] < 20_000_000
        assert abs(row["offset_ns"]) <= row["error_ns"]


def test_a_worker_that_is_killed_fails_the_test(tmp_path: Path, cluster: Cluster) -> None:
    scenario, cluster = fitting(SCENARIO.with_(duration_s=60.0), cluster)
    with Locust(tmp_path, cluster) as locust:
        locust.start_fixed(scenario, "--capture", str(tmp_path / "capture"), workers=2, port=free_port())
        locust.follow("running")
        locust.processes[2].kill()
        told = locust.follow()
        assert told["phase"] == "failed"
        assert re.search(r"a locust worker has ended, and with it \d users", told["error"])
        assert locust.end(0) == 1, locust.log
        locust.end(1)
    assert captured(tmp_path / "capture").status == "partial"


@pytest.mark.parametrize("workers", [2])
def test_nothing_outlives_its_owner(tmp_path: Path, cluster: Cluster, workers: int) -> None:
    scenario, cluster = fitting(SCENARIO.with_(duration_s=60.0), cluster)
    with Locust(tmp_path, cluster) as locust:
        locust.start_fixed(scenario, workers=workers, port=free_port())
        locust.follow("running")
        locust.close_progress_pipe()
        codes = [locust.end(number, within_s=10) for number in range(len(locust.processes))]
        assert codes[0] == 1, locust.log
        assert not living(process.pid for process in locust.processes)


@pytest.mark.parametrize("is_fixed", [True])
def test_a_full_disk_fails_a_scenario_and_spares_others(
    tmp_path: Path, cluster: Cluster, is_fixed: bool
) -> None:
    if is_fixed:
        scenario, cluster = fitting(SCENARIO.with_(duration_s=60.0, rate=100.0), cluster)
        with Locust(tmp_path, cluster, changes=FULL_DISK) as locust:
            locust.start_fixed(scenario, "--capture", "capture")
            told = locust.follow()
            assert told["phase"] == "failed"
            assert told["error"].startswith("the capture cannot be written: ")
            assert "File too large" in told["error"]
            assert locust.end() == 1, locust.log
        capture = captured(tmp_path / "capture")
    else:
        complaint = "the capture cannot be written; the test goes on without it"
        run = run_headless(
            tmp_path,
            cluster,
            *("-u", "9", "-r", "9", "--rate", "100"),
            changes=FULL_DISK,
            is_enough=lambda run: published(run) > 500,
        )
        assert run.log.count(complaint) == 1
        capture = captured(run.capture)
    assert capture.status == "partial"
    assert "File too large" in capture.info["reason"]


def test_a_worker_started_elsewhere_writes_into_the_same_capture(tmp_path: Path, cluster: Cluster) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    port = str(free_port())
    run = run_headless(
        tmp_path,
        cluster,
        *("-u", "12", "-r", "12", "--master", "--master-bind-port", port, "--expect-workers", "1"),
        also_start=lambda locust: locust.start("--worker", "--master-port", port, cwd=elsewhere),
        is_enough=lambda run: captured(run.capture).read("publish").num_rows > 0,
    )
    assert not list(elsewhere.iterdir())
    capture = captured(run.capture)
    assert capture.status == "complete"
    assert capture.read("publish").num_rows == sum(capture.read("window")["scheduled"].to_pylist()) > 0


# --- Clusters that do not answer ------------------------------------------------------------------------


@pytest.fixture
def dead(tmp_path: Path) -> Cluster:
    """A cluster whose servers are gone."""
    with ClusterOfProcesses(tmp_path, 3, Policy(3, 2, 3)) as gone:
        return gone.cluster


SILENT = "no server of the cluster answers"


@pytest.mark.parametrize("processes", [2])
def test_a_dead_cluster_fails_at_once(tmp_path: Path, dead: Cluster, processes: int) -> None:
    with Locust(tmp_path, dead) as locust:
        options = ("--capture", "capture", "--exit-code-on-error", "7", *processes_options(processes))
        locust.start("--headless", "-u", "6", "-r", "6", "-t", "10m", *LOAD, *options)
        assert locust.end() == 7, locust.log
    assert SILENT in locust.log
    capture = captured(tmp_path / "capture")
    assert capture.status == "partial" and capture.info["reason"].startswith(SILENT)


def test_a_dead_cluster_is_told_on_the_web_ui_which_goes_on(tmp_path: Path, dead: Cluster) -> None:
    web = WebUi(free_port())
    with Locust(tmp_path, dead) as locust:
        locust.start("--web-host", "127.0.0.1", "--web-port", str(web.port))
        web.await_up()
        assert web.ask("/swarm", {"user_count": 3, "spawn_rate": 3})["success"]
        deadline = time.monotonic() + WAIT_S
        while (
            not (exceptions := web.ask("/exceptions")["exceptions"])
            or web.ask("/stats/requests")["state"] != "stopped"
        ):
            assert time.monotonic() < deadline, locust.log
            time.sleep(0.2)
        assert any(each["msg"].startswith(SILENT) for each in exceptions)
        locust.processes[0].send_signal(signal.SIGINT)
        assert locust.end() == 1, locust.log


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("Subscriber", "SUB leases: NotLeased('no lease stands when the test ends')"),
        ("Publisher", "PUB message: NobodyAnswers('no server answers this publisher')"),
    ],
)
def test_a_user_without_a_lease_is_a_failure_however_short_the_run(
    tmp_path: Path, dead: Cluster, kind: str, failure: str
) -> None:
    # So that it comes to users at all.
    changes = "from kcast.loadtest.users import worker\nworker.any_answers = lambda *_: True\n"
    with Locust(tmp_path, dead, changes=changes) as locust:
        locust.start("--headless", "-u", "2", "-r", "2", "-t", "6s", *LOAD, kind)
        assert locust.end() == 1, locust.log
    # Its CSV files lack what comes at the very end.
    report = locust.log[locust.log.index("Error report") :]
    assert re.findall(r"^(\d+) +(.*\S)", report, re.MULTILINE) == [("2", failure)]


# --- Wrong input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--cluster", "nowhere.txt"), "kcast: nowhere.txt: No such file or directory"),
        (("--cluster", "empty.txt"), "kcast: empty.txt:1: expected 'kcast-cluster 1' as the first line"),
        (("--cluster", ""), "kcast: the cluster's name is empty: give the path of a cluster file"),
        (("--cluster", "nowhere"), "kcast: nowhere: no such file, and no such context"),
        (("--loss-in", "2"), "kcast: --loss-in is 2: give a share from 0 to 1"),
        (("--scenario", "nowhere.json"), "kcast: nowhere.json: No such file or directory"),
        (("--scenario", "empty.txt"), "kcast: empty.txt: not JSON"),
        (("--capture", "full"), "kcast: full is not empty: give another --capture"),
        (("--progress-fd", "77"), "argument --progress-fd: 77: not an open descriptor"),
        (("--los-in", "2"), "Did you mean '--loss-in'?"),
    ],
)
def test_wrong_input_ends_with_one_clear_line(
    tmp_path: Path, cluster: Cluster, options: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    with Locust(tmp_path, cluster) as locust:
        locust.start("--headless", "-u", "1", "-t", "1s", *options)
        assert locust.end() in (1, 2)
    assert complaint in locust.log
    assert "Traceback" not in locust.log
