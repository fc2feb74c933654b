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

SHARED = """kcast-cluster 1
lab
policy k=5 publish=3 subscribe=5
server 127.0.0.1:7400 key=one
server 127.0.0.1:7401 key=one
server 127.0.0.1:7402 key=two
server 127.0.0.1:7403 key=two
"""
"""Two hosts with two servers each."""


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


def test_several_servers_of_a_host_are_one_host_of_the_k(tmp_path: Path) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(SHARED)
    code, output, errors = run_with("--cluster", file, "--dry-run", "--json")
    assert (code, json.loads(output)["name"]) == (0, "2-2-2"), "a topic has one server on each host"
    assert "its 4 servers are on 2 hosts: with these, policy 5/3/5 is 2/2/2" in errors
    code, output, errors = run_with("--cluster", file, "--dry-run", "--json", "--k", "2", "--k-prime", "1")
    assert (code, json.loads(output)["name"], errors) == (0, "2-1-2", "")


@pytest.mark.parametrize(
    "options", [("--k", "2,3"), ("--k-prime", "2"), ("--preset", "smoke"), ("--scheme", "R")]
)
def test_what_needs_more_hosts_than_there_are_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(SHARED)
    code, _, errors = run_with("--cluster", file, "--dry-run", *options)
    assert code == 2
    assert "the 4 servers are on 2 hosts" in errors and "RCH or CH with a K of 2 or less" in errors


def test_ramble_needs_sixteen_hosts(tmp_path: Path) -> None:
    file = tmp_path / "some.cluster"
    file.write_text(FILE)
    code, _, errors = run_with("--cluster", file, "--dry-run", "--preset", "ramble")
    expected = f"kcast load: --preset ramble needs 16 hosts, and {file} has 3 hosts: give a --k\n"
    assert (code, errors) == (2, expected)


def is_measured(truth: float, loss: dict[str, float]) -> bool:
    """Whether a loss is in an interval of twice the width: real loss is beyond one of 95 % in one of 20 runs.

    How often it is in the interval itself is what `bench.losses` shows.
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
