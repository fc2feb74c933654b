"""loadtest/users/assignment.py: a test from options and files; what is wrong with them, in one line."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcast.client.cluster import Cluster, ClusterError, format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.loadtest.users.assignment import Assignment, read_cluster, read_scenario
from kcast.loadtest.users.options import add_arguments

ADDRESSES = [("127.0.0.1", 7400 + number) for number in range(12)]


def options(**changes: Any) -> Namespace:
    parser = ArgumentParser()
    add_arguments(parser)
    own = {"scenario": "", "cluster": None, "capture": "", "run_time": None}
    return Namespace(**vars(parser.parse_args([])) | own | changes)


def cluster(policy: Policy | None = None) -> Cluster:
    return lab(ADDRESSES, policy)


def on_hosts(number: int, policy: Policy) -> Cluster:
    """Twelve servers on this many hosts."""
    every = cluster(policy)
    servers = [server._replace(key=f"host-{place % number}") for place, server in enumerate(every.servers)]
    return replace(every, servers=tuple(servers))


def write(path: Path, scenario: Scenario, **changes: Any) -> str:
    path.write_text(json.dumps(scenario.as_json() | changes))
    return str(path)


def test_without_a_scenario_the_cluster_file_has_servers_and_policy() -> None:
    for policy in [
        Policy(5, 3, 5),
        Policy(8, 8, 2),
        Policy(1, 1, 1),
        Policy(3, 3, 3),
        Policy(1, 1, 1, "modulo"),
        Policy.from_scheme("R", servers=12),
    ]:
        scenario = read_scenario(options(rate=7.0, run_time=90, capture="x"), cluster(policy))
        assert scenario.policy == policy
        assert (scenario.servers, scenario.rate, scenario.duration_s) == (12, 7.0, 90.0)
        assert (scenario.backend, scenario.by) == ("file", "isolation")
        assert scenario.publishing_users + scenario.subscribing_users == 0


def test_a_policy_of_no_scheme_can_be_tested_but_not_captured() -> None:
    odd = cluster(Policy(5, 4, 3))
    assert read_scenario(options(), odd).servers == 12
    with pytest.raises(ScenarioError, match="--capture cannot describe"):
        read_scenario(options(capture="x"), odd)


@pytest.mark.parametrize(
    ("hosts", "own", "given"),
    [
        (3, Policy(5, 3, 5), Policy(3, 3, 3)),
        (4, Policy(5, 3, 5), Policy(4, 3, 4)),
        (4, Policy(8, 8, 2), Policy(4, 4, 2)),
        (5, Policy(5, 3, 5), Policy(5, 3, 5)),
        (3, Policy(1, 1, 1, "modulo"), Policy(1, 1, 1, "modulo")),
    ],
)
def test_several_servers_of_a_host_are_one_host_of_the_k(
    tmp_path: Path, hosts: int, own: Policy, given: Policy
) -> None:
    scenario = read_scenario(options(capture="x"), on_hosts(hosts, own))
    assert (scenario.policy, scenario.servers) == (given, 12)
    file = write(tmp_path / "s.json", scenario.with_(mixed=1))
    assert read_scenario(options(scenario=file), on_hosts(hosts, given)).policy == given


@pytest.mark.parametrize(
    "scenario", [Scenario(mixed=1), Scenario(mixed=1, scheme="CH", k=4), Scenario(mixed=1, scheme="R")]
)
def test_a_scenario_that_needs_more_hosts_than_there_are_is_refused(
    tmp_path: Path, scenario: Scenario
) -> None:
    file = write(tmp_path / "s.json", scenario)
    with pytest.raises(ScenarioError, match=r"the 12 servers are on 3 hosts.* K of 3 or less"):
        read_scenario(options(scenario=file), on_hosts(3, scenario.policy))


def test_scheme_r_on_servers_that_share_hosts_cannot_be_captured() -> None:
    random = on_hosts(3, Policy.from_scheme("R", servers=12))
    assert read_scenario(options(), random).scheme == "R"
    with pytest.raises(ScenarioError, match="the 12 servers are on 3 hosts"):
        read_scenario(options(capture="x"), random)


def test_wrong_options_are_told() -> None:
    with pytest.raises(ScenarioError, match="--loss-in is 7: give a share"):
        read_scenario(options(loss_in=7), cluster())


def test_a_share_or_number_of_servers_that_are_down_asks_for_outages() -> None:
    assert read_scenario(options(outage=0.1), cluster()).outages == "independent"
    assert read_scenario(options(down=2), cluster()).outages == "exact"
    assert read_scenario(options(outage=0.1, outages="zones"), cluster()).outages == "zones"
    assert read_scenario(options(), cluster()).outages == "none"
    for kind in ("independent", "zones", "exact"):
        with pytest.raises(ScenarioError, match="--outages alone does nothing: give --outage a share"):
            read_scenario(options(outages=kind), cluster())


def test_a_scenario_file_has_all(tmp_path: Path) -> None:
    scenario = Scenario(servers=12, rate=3.0, mixed=1)
    file = write(tmp_path / "s.json", scenario)
    assert read_scenario(options(scenario=file, rate=99.0), cluster()) == scenario


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "not a scenario"),
        ('{"k": 0}', "--k is 0"),
        ('{"colour": 1}', "has no colour"),
        (json.dumps(Scenario(servers=11).as_json()), "11 servers, but the cluster has 12"),
        (json.dumps(Scenario(k=4).as_json()), "policy 4/3/4"),
        (json.dumps(Scenario(publishers=0, subscribers=0).as_json()), "no users"),
    ],
)
def test_what_is_wrong_with_a_scenario_file_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=complaint) as caught:
        read_scenario(options(scenario=str(file)), cluster())
    assert "\n" not in str(caught.value)


def test_a_file_that_is_of_no_use_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KCAST_CLUSTER", raising=False)
    with pytest.raises(ScenarioError, match=r"nowhere\.json: No such file"):
        read_scenario(options(scenario="nowhere.json"), cluster())
    with pytest.raises(ClusterError, match=r"nowhere\.txt: No such file"):
        read_cluster(options(cluster="nowhere.txt"))
    named = tmp_path / "named.cluster"
    named.write_text("kcast-cluster 1\nnames\nserver kcast-0:7400 key=kcast-0\n")
    with pytest.raises(ScenarioError, match=r"kcast-0:7400 is a name: load tests need addresses"):
        read_cluster(options(cluster=str(named)))
    with pytest.raises(ScenarioError, match="give --cluster FILE, or set KCAST_CLUSTER"):
        read_cluster(options())


def test_an_assignment_arrives_as_it_was_sent() -> None:
    assignment = Assignment(3, Scenario(mixed=2), format_cluster(cluster()), True, "some/folder", "clock", 17)
    assert Assignment.from_json(json.loads(json.dumps(assignment.as_json()))) == assignment
    assert Assignment.from_json(replace(assignment, is_fixed=False).as_json()) != assignment
