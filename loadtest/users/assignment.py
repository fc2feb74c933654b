"""The assignment of a test: locust's master makes it from its options and sends it to all workers.

With `--scenario FILE` a test is *fixed*: the file says everything, users begin together, and the test ends by
itself. Otherwise options say what the load is, the cluster file has the servers and the policy, and users
come and go as locust decides.
"""

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kcast.client.cli.common import count_of
from kcast.client.cluster import Cluster
from kcast.client.source import CLUSTER_VARIABLE, Source, find
from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import OUTAGES_ALONE, Scenario, ScenarioError, implied_outages
from kcast.loadtest.users.options import OPTIONS

# A plan of outages needs an end, and a locust test without --run-time has none.
OUTAGES_END_S = 3600.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every process has to know of a test.

    `number` counts the tests of one locust, from 1. `cluster` is the text of the cluster file. `capture` is
    the folder of the scenario, "" for no capture. `clock` identifies the coordinator's monotonic clock, by
    which `t0_ns` is told; 0 until it is set.
    """

    number: int
    scenario: Scenario
    cluster: str
    is_fixed: bool
    capture: str
    clock: str
    t0_ns: int

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, for locust's message that starts users."""
        return {name: getattr(self, name) for name in self.__slots__} | {"scenario": self.scenario.as_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Returns the assignment that `as_json` has made. Raises ScenarioError."""
        return cls(**values | {"scenario": Scenario.from_json(values["scenario"])})


def cluster_source(options: Namespace) -> Source:
    """Returns the cluster file that the options mean. Raises ScenarioError and ClusterError."""
    source = find(options.cluster)
    if source is None:
        raise ScenarioError(f"no cluster: give --cluster FILE, or set {CLUSTER_VARIABLE}")
    return source


def read_cluster(options: Namespace, tell: Callable[[str], object] = lambda _: None) -> Cluster:
    """Reads the cluster file that the options mean; what is wrong with a signed list goes to `tell`.

    Raises ScenarioError and ClusterError.
    """
    source = cluster_source(options)
    cluster = source.read()
    for trouble in source.troubles():
        tell(f"{trouble.name}: {trouble.text} ({trouble.fault})")
    for server in cluster.servers:
        if server.named:
            raise ScenarioError(f"{source.name}: {server.name} is a name: load tests need addresses")
    return cluster


def read_scenario(options: Namespace, cluster: Cluster) -> Scenario:
    """Returns the scenario that the options ask for on this cluster. Raises ScenarioError."""
    if options.scenario:
        return _from_file(Path(options.scenario), cluster)
    policy = policy_on(cluster)
    given = {option.field: getattr(options, option.field) for option in OPTIONS if option.in_locust}
    asks_for_outages = given["outages"] != "none"
    if not asks_for_outages:
        given["outages"] = implied_outages(given["outage"], given["down"])
    scenario = Scenario(
        **given,
        **scheme_of(policy),
        backend="file",
        servers=len(cluster.servers),
        # Locust decides how many users there are.
        publishers=0,
        subscribers=0,
        mixed=0,
        duration_s=float(options.run_time or OUTAGES_END_S),
    )
    if asks_for_outages and not scenario.has_outages:
        raise ScenarioError(OUTAGES_ALONE)
    if options.capture:
        refuse_too_few_hosts(policy, cluster)
    if options.capture and scenario.policy != policy:
        raise ScenarioError(
            f"the cluster's policy is {policy}, which --capture cannot describe: one side must use all K"
        )
    return scenario


def _from_file(path: Path, cluster: Cluster) -> Scenario:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ScenarioError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ScenarioError(f"{path}: not a scenario: give an object")
    scenario = Scenario.from_json(values)
    if scenario.servers != len(cluster.servers):
        raise ScenarioError(f"{path}: {scenario.servers} servers, but the cluster has {len(cluster.servers)}")
    if scenario.policy != cluster.policy:
        raise ScenarioError(f"{path}: policy {scenario.policy}, but the cluster's is {cluster.policy}")
    refuse_too_few_hosts(scenario.policy, cluster)
    if not scenario.publishing_users + scenario.subscribing_users:
        raise ScenarioError(f"{path}: no users: give publishers, subscribers or mixed")
    return scenario


def policy_on(cluster: Cluster) -> Policy:
    """Returns the policy that a cluster's clients go by in fact: smaller than its own where several servers
    share a host and its hosts are too few.

    Theory takes each server for a host, and would give a topic servers that it does not have.
    """
    policy, hosts = cluster.policy, len(cluster.hosts)
    if policy.placement != "ring" or hosts == len(cluster.servers):
        return policy
    return Policy(*policy.sizes(hosts))


def refuse_too_few_hosts(policy: Policy, cluster: Cluster) -> None:
    """Raises ScenarioError where several servers share a host and the policy needs more hosts than there
    are: theory would give topics more servers than they have."""
    servers, hosts = len(cluster.servers), len(cluster.hosts)
    if hosts < servers and (policy.placement == "all" or policy.k > hosts):
        raise ScenarioError(
            f"policy {policy}: the {servers} servers are on {count_of(hosts, 'host')}, and a topic has one "
            f"server on a host: use scheme RCH or CH with a K of {hosts} or less"
        )


def scheme_of(policy: Policy) -> dict[str, Any]:
    """Returns the fields of a scenario for a policy; for a similar one if they cannot express it."""
    fields: dict[str, Any] = {"scheme": policy.scheme}
    if policy.scheme in ("CH", "RCH"):
        fields["k"] = policy.k
    if policy.scheme == "RCH":
        side = "publish" if policy.publish < policy.k else "subscribe"
        fields |= {"side": side, "k_prime": getattr(policy, side)}
    return fields
