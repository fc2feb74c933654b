"""The cluster files of compose.yaml's two sides. What they do on an engine: tests/containers."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kcast.client.cluster import ClusterError, parse
from kcast.client.clusters.view import View
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.compose import cluster, main

ENVIRONMENT = {
    "KCAST_HOST_SIDE": "127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403",
    "KCAST_CONTAINERS_SIDE": "172.30.74.11:7400 172.30.74.12:7400 172.30.74.13:7400",
}


def run(*arguments: str, **environment: str | None) -> Result:
    return CliRunner().invoke(main, arguments, env={**ENVIRONMENT, **environment})


def test_each_side_has_its_addresses_and_the_same_keys() -> None:
    host, containers = cluster("host", ENVIRONMENT), cluster("containers", ENVIRONMENT)
    assert [server.name for server in host.servers] == ENVIRONMENT["KCAST_HOST_SIDE"].split()
    assert [server.name for server in containers.servers] == ENVIRONMENT["KCAST_CONTAINERS_SIDE"].split()
    for side in (host, containers):
        assert [server.key for server in side.servers] == ["server-1", "server-2", "server-3"]
        assert side.policy == Policy()


def test_topics_lie_on_the_same_servers_for_both() -> None:
    # With one server a topic, any difference would show.
    host, containers = (
        View(replace(cluster(side, ENVIRONMENT), policy=Policy(1, 1, 1))) for side in ("host", "containers")
    )
    topics = [b"topic %d" % number for number in range(50)]
    placed = [[view.servers(topic)[0].key for topic in topics] for view in (host, containers)]
    assert placed[0] == placed[1]
    assert set(placed[0]) == {"server-1", "server-2", "server-3"}


def test_a_side_is_printed_as_a_cluster_file() -> None:
    for side in ["host", "containers"]:
        result = run("print", side)
        assert (result.exit_code, result.stderr) == (0, "")
        assert parse(result.stdout) == cluster(side, ENVIRONMENT)


def test_kcast_runs_on_the_containers_side(tmp_path: Path) -> None:
    file = tmp_path / "cluster"
    result = run("kcast", "where", "weather", KCAST_CLUSTER=str(file))
    assert (result.exit_code, result.stderr.count("172.30.74")) == (0, 0)
    assert "172.30.74.11:7400" in result.stdout
    assert parse(file.read_text()) == cluster("containers", ENVIRONMENT)


def test_kcast_is_given_all_that_follows(tmp_path: Path) -> None:
    file = str(tmp_path / "cluster")
    assert "Usage: kcast pub" in run("kcast", "pub", "--help", KCAST_CLUSTER=file).stdout
    assert "Usage: kcast [OPTIONS]" in run("kcast", "--help", KCAST_CLUSTER=file).stdout
    result = run("kcast", "pub", "topic", "--", "-5", "words", KCAST_CLUSTER=file)
    assert (result.exit_code, "unexpected words (words)" in result.stderr) == (2, True)


def test_addresses_that_are_not_there_are_told() -> None:
    for value in [None, "", "  "]:
        result = run("print", "host", KCAST_HOST_SIDE=value)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("kcast cluster-file: KCAST_HOST_SIDE is not set: ")
        assert result.stderr.count("\n") == 1


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(ClusterError, match=r"KCAST_HOST_SIDE: expected IP:PORT .*'172\.30\.74\.0\.11:7400'"):
        cluster("host", {"KCAST_HOST_SIDE": "172.30.74.0.11:7400"})


def test_a_file_that_cannot_be_written_is_told() -> None:
    result = run("kcast", "ping", KCAST_CLUSTER="/nowhere/cluster")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "kcast client: /nowhere/cluster: No such file or directory\n"
