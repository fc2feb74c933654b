"""What the leading process orders for a test: made of its options, and sent to all workers with the users.

With `--scenario FILE` a test is *fixed*: that file has all, users begin together, and the test ends by
itself. Else locust has the say: options tell the load, the cluster file the servers and the policy, and users
come and go.
"""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kcast.client import cluster as clusters
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.loadtest.users.options import OPTIONS

# Locust's tests end when somebody ends them; a plan of outages has to end somewhere.
OUTAGES_END_S = 3600.0


@dataclass(frozen=True, slots=True)
class Order:
    """A test. `number` counts those of one locust, from 1; `t0_ns` is 0 as long as it is not decided.

    `capture` is the folder of the scenario, empty for no capture; `clock` is whose monotonic clock all times
    are of.
    """

    number: int
    scenario: Scenario
    cluster: str
    is_fixed: bool
    capture: str
    clock: str
    t0_ns: int

    def as_json(self) -> dict[str, Any]:
        """As it travels."""
        return {name: getattr(self, name) for name in self.__slots__} | {"scenario": self.scenario.as_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The order that `as_json` told. Raises ScenarioError."""
        return cls(**values | {"scenario": Scenario.from_json(values["scenario"])})


def read_cluster(options: Namespace) -> Cluster:
    """The cluster that the options name. Raises ScenarioError and ClusterError."""
    if not options.cluster:
        raise ScenarioError("no cluster file: give --cluster FILE, or set KCAST_CLUSTER")
    return clusters.load(options.cluster)


def read_scenario(options: Namespace, cluster: Cluster) -> Scenario:
    """What the options tell to do with a cluster. Raises ScenarioError."""
    if options.scenario:
        return _from_file(Path(options.scenario), cluster)
    policy = cluster.policy
    scenario = Scenario(
        **{option.field: getattr(options, option.field) for option in OPTIONS if option.in_locust},
        **_scheme(policy),
        backend="file",
        servers=len(cluster.servers),
        # As many as locust has it.
        publishers=0,
        subscribers=0,
        mixed=0,
        duration_s=float(options.run_time or OUTAGES_END_S),
    )
    if options.capture and scenario.policy != policy:
        raise ScenarioError(
            f"the cluster's policy is {policy}: a capture knows only those of the schemes S, R, CH and RCH"
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
    if not scenario.publishing_users + scenario.subscribing_users:
        raise ScenarioError(f"{path}: no users: give publishers, subscribers or mixed")
    return scenario


def _scheme(policy: Policy) -> dict[str, Any]:
    """A policy as the fields of a scenario; the nearest there is."""
    fields: dict[str, Any] = {"scheme": policy.scheme}
    if policy.scheme in ("CH", "RCH"):
        fields["k"] = policy.k
    if policy.scheme == "RCH":
        side = "publish" if policy.publish < policy.k else "subscribe"
        fields |= {"side": side, "k_prime": getattr(policy, side)}
    return fields
