"""The servers that a benchmark starts for itself and stops at its end, and what they say at theirs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kcast.client.cli.common import say
from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.bench.view import NAME, counted
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import UNLIMITED
from kcast.pubsub.drops import STEPS
from kcast.pubsub.limits import TTL_S_DEFAULT

HOST = "127.0.0.1"


@contextmanager
def own_servers(count: int, policy: Policy) -> Iterator["OwnServers"]:
    """Starts servers on this machine, without limits on rates, and stops them at the end; says both.

    Raises ServerFailed.
    """
    name = counted(count, "server")
    options = (*UNLIMITED, "--log", "json")
    are_started = False
    try:
        with ProcessCluster(count, ttl_s=int(TTL_S_DEFAULT), options=options) as servers:
            are_started = True
            say(NAME, f"started {name} on {HOST}, policy {policy}")
            yield OwnServers(servers, policy)
    finally:
        if are_started:
            say(NAME, f"stopped the {name.removeprefix('1 ')}")


class OwnServers:
    """The servers while they run."""

    def __init__(self, servers: ProcessCluster, policy: Policy) -> None:
        self._servers = servers
        self._policy = policy

    @property
    def cluster(self) -> Cluster:
        """The cluster that they are."""
        return self._servers.cluster(self._policy)

    def cpu_ns(self) -> int:
        """Returns the CPU time that all have had until now; 0 where the system does not tell."""
        return sum(stat.cpu_ns for stat in self._servers.stats())

    def end(self) -> "LastWords":
        """Ends all; returns what they say at their end."""
        self._servers.stop()
        return last_words(self._servers.logs().values())


class LastWords(NamedTuple):
    """How many copies servers have sent, and what they dropped, by reason (docs/operations.md, Reasons)."""

    copies: int
    drops: Counter[str]


def last_words(logs: Iterable[str]) -> LastWords:
    """Reads what servers that have ended wrote into their logs, in JSON."""
    copies, drops = 0, Counter[str]()
    for line in (line for log in logs for line in log.splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue  # not the log's
        if told.get("event") == "end":
            copies += told["copies"]
            drops.update({reason: count for reason, count in told["drops"].items() if reason not in STEPS})
    return LastWords(copies, drops)
