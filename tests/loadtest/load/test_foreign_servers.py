"""`kcast load --cluster`: a test on servers that someone else runs, on a network that loses datagrams."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcast.client.cluster import parse
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.foreign import ForeignServers
from kcast.loadtest.clusters.servers import ServerFailed
from tests.support.checkout import ROOT
from tests.support.load_command import Load

FILE = """kcast-cluster 1
policy k=3 publish=2 subscribe=3
server 192.0.2.1:7400
server 192.0.2.2:7400
server 192.0.2.3:7400
"""


@contextmanager
def running(*command: str) -> Iterator[str]:
    """A program, and the lines of the cluster file that it prints first."""
    with subprocess.Popen(
        (sys.executable, "-m", *command), stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as program:
        assert program.stdout is not None
        try:
            lines: list[str] = []
            while sum(line.startswith("server") for line in lines) < 5:
                lines.append(program.stdout.readline())
            yield "".join(lines)
        finally:
            program.terminate()


def run_with(*options: str | Path) -> tuple[int, str, str]:
    with Load(*options) as load:
        return load.end()


def test_servers_of_others_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(FILE)
    with ForeignServers(str(file)) as servers:
        assert (len(servers), servers.running, servers.taps) == (3, (True,) * 3, ((),) * 3)
        policy = Policy(3, 1, 3)
        assert servers.cluster(policy).policy == policy
        assert servers.cluster().servers == parse(FILE).servers
        with pytest.raises(ServerFailed, match="isolation"):
            servers.kill(0)
        servers.stop()
    with pytest.raises(ServerFailed, match=r"other\.cluster"):
        ForeignServers(str(tmp_path / "other.cluster"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--servers", "3"), "--servers is for own servers"),
        (("--backend", "lab"), "--backend is for own servers"),
        (("--by", "kill", "--outage", "0.1"), "can only be isolated"),
    ],
)
def test_what_needs_own_servers_is_refused(tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(FILE)
    code, _, errors = run_with("--cluster", file, "--dry-run", *options)
    assert (code, complaint in errors) == (2, True), errors


def test_the_policy_is_that_of_the_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(FILE)
    code, output, _ = run_with("--cluster", file, "--dry-run", "--json")
    assert (code, json.loads(output)["name"]) == (0, "3-2-3")
    code, output, _ = run_with("--cluster", file, "--dry-run", "--json", "--k-prime", "1", "--k", "2")
    assert (code, json.loads(output)["name"]) == (0, "2-1-2")


def is_measured(truth: float, loss: dict[str, float]) -> bool:
    """Whether a loss is in an interval of twice the width: real loss is beyond one of 95 % in one of 20 runs.

    How often it is in the interval itself is what `tests.benchmarks.losses` shows.
    """
    share, low, high = loss["share"], loss["low"], loss["high"]
    return low * low / share <= truth <= high * high / share


@pytest.mark.load
@pytest.mark.parametrize("in_a_row", ["1", "4"])
def test_loss_on_the_way_is_measured(tmp_path: Path, in_a_row: str) -> None:
    lab, lossy = tmp_path / "lab.cluster", tmp_path / "lossy.cluster"
    with running("kcast.client.cli", "serve", "--count", "5", "--port", "0") as servers:
        lab.write_text(servers)
        losses = ("--loss-in", "0.05", "--loss-out", "0.03", "--in-a-row", in_a_row)
        with running("tests.support.lossy_relay", str(lab), *losses) as relays:
            lossy.write_text(relays)
            options = ("--k-prime", "2", "--duration", "10", "--rate", "15", "--json")
            code, output, errors = run_with("--cluster", lossy, *options, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = [each for each in map(json.loads, output.splitlines()) if each["type"] == "scenario"]
    assert result["delivery_verdict"]["valid"]
    loss = result["loss"]
    assert is_measured(0.05, loss["in"]) and is_measured(0.03, loss["out"]), loss
    assert loss["said"].startswith("loss nobody asked for")
