"""The cluster of compose.yaml on a real engine: `make test-containers`."""

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kcast.client.cluster import format_cluster, load
from kcast.client.clusters.view import View
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import DRAIN_MARGIN_S, RENEWAL_INTERVAL_S_MAX
from tests.support.checkout import ROOT
from tests.support.cluster_of_processes import Command
from tests.support.compose_project import SERVERS, WAIT_S, ComposeProject, docker, leftovers, wait_for

pytestmark = pytest.mark.containers

FILES = ("LICENSE", "README.md", "pubsub/PROTOCOL.md")
TEXT = b"".join((ROOT / name).read_bytes() for name in FILES).splitlines(keepends=True)[:600]
FULL = b"leased on 5 of 5\n"
RATE = "200"  # lines a second: two thirds of the text take 2 s, in which much can happen


@pytest.fixture(scope="module")
def project() -> Iterator[ComposeProject]:
    """Five servers; a test that ends some of them starts them again. Whether they get healthy, one tests."""
    with ComposeProject() as running:
        running.up()
        running.await_healthy()
        yield running


@pytest.fixture(scope="module")
def host_file(project: ComposeProject, tmp_path_factory: pytest.TempPathFactory) -> str:
    """This machine's cluster file."""
    file = tmp_path_factory.mktemp("compose") / "host.cluster"
    file.write_text(format_cluster(project.cluster("host")))
    return str(file)


class Meeting:
    """A subscriber on either side, and a publisher on this machine, of one topic. Use it with `with`."""

    def __init__(self, project: ComposeProject, host_file: str, topic: str, count: int) -> None:
        subscribe = ("sub", topic, "--count", str(count))
        self._stack = ExitStack()
        with self._stack:
            enter = self._stack.enter_context
            self.on_host = enter(Command(*subscribe, "--cluster", host_file))
            self.in_container = enter(project.client(*subscribe))
            publish = ("pub", topic, "--rate", RATE, "--cluster", host_file)
            self.publisher = enter(Command(*publish, stdin=subprocess.PIPE))
            self.subscribers = (self.on_host, self.in_container)
            for subscriber in self.subscribers:
                subscriber.await_error(FULL)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def await_lines(self, count: int) -> None:
        """Returns when both subscribers have printed `count` lines."""
        for subscriber in self.subscribers:
            subscriber.await_lines(count)

    def await_error(self, text: bytes, after: bytes = b"") -> None:
        """Returns when both subscribers have said so."""
        for subscriber in self.subscribers:
            subscriber.await_error(text, after)

    def end(self, lines: list[bytes]) -> None:
        """Asserts that all ended well, and that these lines are what came, each once."""
        code, _, errors = self.publisher.end()
        assert code == 0, errors
        for subscriber in self.subscribers:
            code, output, errors = subscriber.end()
            assert code == 0, errors
            assert sorted(output.splitlines(keepends=True)) == sorted(lines), errors


# --- The files ---------------------------------------------------------------------------------------


def test_the_compose_file_is_valid(project: ComposeProject) -> None:
    assert project.compose("config", "--quiet").stderr == ""


def test_each_side_has_the_addresses_that_the_engine_gave(project: ComposeProject) -> None:
    for side in ("host", "containers"):
        found = []
        for service in SERVERS:
            settings = project.inspect(service)["NetworkSettings"]
            assert settings["Ports"].keys() == {"7400/udp"}
            (published,) = settings["Ports"]["7400/udp"]
            assert published["HostIp"] == "127.0.0.1"
            (network,) = settings["Networks"].values()
            address = {
                "host": (published["HostIp"], int(published["HostPort"])),
                "containers": (network["IPAddress"], 7400),
            }[side]
            found.append((service, (address,)))
        assert [(server.key, server.addresses) for server in project.cluster(side).servers] == found


def test_both_sides_place_topics_on_the_same_servers(project: ComposeProject) -> None:
    # With one server a topic, any difference would show.
    host, containers = (
        View(replace(project.cluster(side), policy=Policy(1, 1, 1))) for side in ("host", "containers")
    )
    keys = {}
    for number in range(100):
        topic = b"topic %d" % number
        keys[topic] = host.servers(topic)[0].key
        assert containers.servers(topic)[0].key == keys[topic]
    assert set(keys.values()) == set(SERVERS)


# --- Confinement -------------------------------------------------------------------------------------

LOOK_AROUND = """\
import json
status = dict(line.split(":", 1) for line in open("/proc/1/status"))
failures = {}
for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/opt/kcast"):
    try:
        open(folder + "/written", "w").close()
    except OSError as error:
        failures[folder] = error.errno
print(json.dumps({"status": status, "failures": failures}))
"""


def test_a_server_is_confined(project: ComposeProject) -> None:
    for service in SERVERS:
        found = json.loads(project.python(service, LOOK_AROUND))
        status = {name: value.split() for name, value in found["status"].items()}
        assert "0" not in status["Uid"] + status["Gid"] + status["Groups"]
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert [int(value, 16) for value in status[name]] == [0]
        assert status["NoNewPrivs"] == ["1"]
        # /dev/shm is the engine's own, in memory, and counts towards the container's limit.
        assert found["failures"].pop("/dev/shm", None) is None
        assert set(found["failures"].values()) <= {errno.EROFS, errno.EACCES}
        assert {"/", "/tmp", "/var/tmp", "/run", "/opt/kcast"} == found["failures"].keys()
        config = project.inspect(service)["HostConfig"]
        assert config["ReadonlyRootfs"] is True and config["Privileged"] is False
        assert config["Memory"] > 0 and config["PidsLimit"] > 0
        assert config["NanoCpus"] == 10**9
        assert config["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "3"}}


def test_servers_have_nothing_to_warn_of(project: ComposeProject) -> None:
    for service in SERVERS:
        assert [entry for entry in project.log(service) if entry["level"] == "warning"] == []


def test_metrics_are_there_for_containers(project: ComposeProject) -> None:
    opened = "urllib.request.urlopen('http://server-2:9400/metrics', timeout=9)"
    metrics = project.python("server-1", f"import urllib.request; print({opened}.read().decode())")
    assert "\nkcast_leases " in metrics


def test_the_engine_waits_for_a_drain(project: ComposeProject) -> None:
    for service in SERVERS:
        assert project.inspect(service)["Config"]["StopTimeout"] > RENEWAL_INTERVAL_S_MAX + DRAIN_MARGIN_S


# --- Messages ----------------------------------------------------------------------------------------


def test_this_machine_and_containers_meet(project: ComposeProject, host_file: str) -> None:
    with (
        Meeting(project, host_file, "meeting", len(TEXT)) as meeting,
        project.client("pub", "meeting", stdin=subprocess.PIPE) as in_container,
    ):
        meeting.publisher.feed(b"".join(TEXT[:300]))
        in_container.feed(b"".join(TEXT[300:]))
        code, _, errors = in_container.end()
        assert code == 0, errors
        assert errors.endswith(b"kcast pub: published 300 messages: receipts from 3 servers each\n")
        meeting.end(TEXT)


def test_a_container_answers_another_one(project: ComposeProject) -> None:
    """As compose.yaml's head has it."""
    with project.client("reply", "clock", "--command", "date", "--count", "1") as worker:
        worker.await_error(b" answers\n")
        with project.client("request", "clock") as caller:
            code, answer, errors = caller.end()
            assert (code, answer.count(b"\n")) == (0, 1), errors
            assert answer.strip(), errors
        code, _, errors = worker.end()
        assert code == 0, errors


@pytest.mark.smoke
def test_nothing_is_lost_while_servers_are_killed(project: ComposeProject, host_file: str) -> None:
    """SIGKILL to two of five, under 5/3/5; then they come back, and are used again."""
    with Meeting(project, host_file, "killed", len(TEXT)) as meeting:
        meeting.publisher.feed(b"".join(TEXT[:400]), close=False)
        meeting.await_lines(50)
        for service in ("server-2", "server-4"):
            project.kill(service)
        meeting.await_error(b"leased on 3 of 5\n")
        project.compose("start", "server-2", "server-4")
        meeting.await_error(FULL, after=b"leased on 3 of 5\n")
        meeting.publisher.feed(b"".join(TEXT[400:]))
        meeting.end(TEXT)


def test_what_is_killed_by_hand_stays_dead_until_it_is_started(
    project: ComposeProject, host_file: str
) -> None:
    """As docs/containers.md has it."""
    project.compose("kill", "server-2")
    wait_for("server-2 to end", lambda: not project.inspect("server-2")["State"]["Running"])
    with Command("ping", "--cluster", host_file, "--count", "10") as ping:  # for two seconds and more
        code, output, errors = ping.end()
    assert (code, b"4 of 5 up" in output) == (1, True), errors
    assert not project.inspect("server-2")["State"]["Running"]
    project.compose("start", "server-2")
    project.await_healthy()
    with Command("ping", "--cluster", host_file, "--count", "1") as ping:
        assert ping.end()[0] == 0


def test_a_stopped_server_drains(project: ComposeProject, host_file: str, tmp_path: Path) -> None:
    """SIGTERM, as `docker stop` sends it, in the midst of a stream: no message is lost, exit code 0."""
    # To those who know no other server it still forwards.
    alone = tmp_path / "alone.cluster"
    full = load(host_file)
    alone.write_text(format_cluster(replace(full, servers=full.servers[2:3])))
    subscribe = ("sub", "drained/alone", "--count", "1", "--cluster", str(alone))
    with Meeting(project, host_file, "drained", len(TEXT)) as meeting, Command(*subscribe) as subscriber:
        subscriber.await_error(b"leased on 1 of 1\n")
        meeting.publisher.feed(b"".join(TEXT[:400]), close=False)
        meeting.await_lines(50)
        with project.begin("stop", "server-3") as stop:
            wait_for("server-3 to drain", lambda: any(e["event"] == "drain" for e in project.log("server-3")))
            with Command("pub", "drained/alone", "still here", "--cluster", str(alone)) as publisher:
                code, _, errors = publisher.end()
                assert code == 0, errors
            assert subscriber.end()[:2] == (0, b"still here\n")
            stop.wait(WAIT_S)
        meeting.publisher.feed(b"".join(TEXT[400:]))
        meeting.end(TEXT)
    end = project.log("server-3")[-1]
    assert (end["event"], end["ending"]) == ("end", "drained")
    state = project.inspect("server-3")["State"]
    assert (state["Running"], state["ExitCode"], state["OOMKilled"]) == (False, 0, False)
    project.compose("start", "server-3")


def test_a_server_that_ends_by_itself_is_started_again(project: ComposeProject) -> None:
    project.python("server-5", "import os, signal; os.kill(1, signal.SIGTERM)")
    wait_for("the engine to start server-5 again", lambda: project.inspect("server-5")["RestartCount"] == 1)
    project.await_healthy()


# --- The end -----------------------------------------------------------------------------------------


def test_down_leaves_nothing() -> None:
    with ComposeProject() as project:
        project.up("server-1")
        with project.client("ping", "--count", "1") as ping:
            assert b"1 of 5 up" in ping.end()[1]
        assert leftovers(project.name).keys() == {"container", "network"}
        project.compose("down")
        assert leftovers(project.name) == {}


STARTS = """\
from tests.support.compose_project import ComposeProject
with ComposeProject() as project:
    print(project.name, flush=True)
    project.up()
    print("up", flush=True)
    import signal
    signal.pause()
"""


@pytest.mark.parametrize(("interruption", "is_up"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupted_run_leaves_nothing(interruption: signal.Signals, is_up: bool) -> None:
    with subprocess.Popen(
        (sys.executable, "-c", STARTS),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            name = process.stdout.readline().strip()
            if is_up:
                assert process.stdout.readline() == "up\n"
            else:
                wait_for("a container", lambda: "container" in leftovers(name))
            process.send_signal(interruption)
            _, errors = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    assert leftovers(name) == {}
    assert docker("image", "ls", "--quiet", name) == ""
