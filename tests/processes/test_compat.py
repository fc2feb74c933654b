"""This version and 0.1.0 in one cluster, both ways round: `make test-compat`.

The other version comes from this repository's history, and uses the libraries of this one.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster_of_processes import end_process
from tests.support.trees import HERE, Tree, tree_of

pytestmark = pytest.mark.compat

COMMIT = "b490d10"  # 0.1.0, before packages were called kcast.*
WAIT_S = 30.0
LINES = ["rain, 4 degrees", "100 %", "snø", "", *map(str, range(200))]


@dataclass(frozen=True)
class Version:
    """The commands of a version of kcast."""

    tree: Tree

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        """Starts the command."""
        return subprocess.Popen(
            self.tree.kcast(*map(str, arguments)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=self.tree.folder,
            env=self.tree.environment,
        )

    def run(self, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
        """Runs the command to its end, with `text` as its standard input."""
        with self.start(*arguments) as process:
            try:
                told = process.communicate(text, timeout=WAIT_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, *told)


NEW = Version(HERE)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    tree = tree_of(COMMIT, tmp_path_factory.mktemp("old"))
    program = "import client.cli; print(client.cli.__file__)"
    command = (sys.executable, "-c", program)
    found = subprocess.run(command, cwd=tree.folder, env=tree.environment, capture_output=True, text=True)
    assert found.stdout.startswith(str(tree.folder)), found  # not this version's
    return Version(tree)


@pytest.fixture(params=["old", "new"])
def publisher(request: pytest.FixtureRequest, old: Version) -> Version:
    return old if request.param == "old" else NEW


@pytest.fixture(params=["old", "new"])
def subscriber(request: pytest.FixtureRequest, old: Version) -> Version:
    return old if request.param == "old" else NEW


@pytest.fixture(params=["old", "new"])
def server(request: pytest.FixtureRequest, old: Version) -> Version:
    return old if request.param == "old" else NEW


@contextmanager
def serving(version: Version, file: Path, *options: str) -> Iterator[Path]:
    """A lab of three servers while the `with` lasts; gives its cluster file."""
    process = version.start("serve", "--count", "3", "--port", "0", *options)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while sum(line.startswith("server ") for line in lines) < 3:
            line = process.stdout.readline()
            assert line, "the servers did not start"
            lines.append(line)
        file.write_text("".join(lines))
        yield file
    finally:
        end_process(process)


def delivered(
    subscriber: Version, publisher: Version, cluster: Path, *options: str, text: str, count: int
) -> tuple[list[str], str]:
    """What a subscriber prints of what a publisher sends line by line, and what the publisher says."""
    listening = subscriber.start("sub", "--cluster", cluster, "t/1", "--count", str(count), *options)
    try:
        assert listening.stderr is not None
        assert "leased on 3 of 3" in listening.stderr.readline()
        sent = publisher.run("pub", "--cluster", cluster, "t/1", text=text)
        assert sent.returncode == 0, sent.stderr
        told, _ = listening.communicate(timeout=WAIT_S)
    finally:
        listening.kill()
        listening.wait()
    return told.splitlines(), sent.stderr


@pytest.mark.parametrize("work_bits", ["0", "10"])
def test_all_lines_arrive_in_order(
    server: Version, publisher: Version, subscriber: Version, work_bits: str, tmp_path: Path
) -> None:
    with serving(server, tmp_path / "lab.txt", "--work-bits", work_bits) as cluster:
        text = "".join(f"{line}\n" for line in LINES)
        lines, told = delivered(subscriber, publisher, cluster, text=text, count=len(LINES))
    assert lines == LINES
    assert f"published {len(LINES)} messages: receipts from 2 servers each" in told


def test_a_server_of_the_other_version_answers_ping_and_health(
    server: Version, publisher: Version, tmp_path: Path
) -> None:
    with serving(server, tmp_path / "lab.txt") as cluster:
        told = publisher.run("ping", "--cluster", cluster)
        assert (told.returncode, told.stderr) == (0, "")
        assert "3 of 3 up in lab" in told.stdout
        address = next(line.split()[1] for line in cluster.read_text().splitlines() if "server " in line)
        assert publisher.run("health", address).returncode == 0


def test_doctor_finds_nothing_wrong_with_old_servers(old: Version, tmp_path: Path) -> None:
    with serving(old, tmp_path / "lab.txt") as cluster:
        told = NEW.run("doctor", "--cluster", cluster, "--json")
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert (told.returncode, told.stderr) == (0, ""), told
    assert [each["id"] for each in found if each["server"]] == ["answers", "leases", "copies"] * 3


def test_who_drains_is_understood(server: Version, subscriber: Version, tmp_path: Path) -> None:
    with serving(server, tmp_path / "lab.txt", "--ttl", "2") as cluster:
        listening = subscriber.start("sub", "--cluster", cluster, "t/1", "--count", "1", "--json")
        try:
            assert listening.stderr is not None
            assert "leased on 3 of 3" in listening.stderr.readline()
            assert NEW.run("pub", "--cluster", cluster, "t/1", "x").returncode == 0
            told, _ = listening.communicate(timeout=WAIT_S)
        finally:
            listening.kill()
            listening.wait()
    assert json.loads(told)["payload"] == "x"


def test_the_old_client_drops_what_is_marked_as_binary(old: Version, tmp_path: Path) -> None:
    """CHANGELOG says so: subscribers are upgraded first."""
    with serving(NEW, tmp_path / "lab.txt") as cluster:
        text = "\x01" * 300 + "\nplain\n"
        lines, _ = delivered(old, NEW, cluster, "--raw", text=text, count=1)
        assert lines == ["plain"]
        lines, _ = delivered(NEW, old, cluster, "--raw", text=text, count=2)
        assert lines == text.splitlines()
