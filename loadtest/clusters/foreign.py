"""Servers that someone else runs: a test uses them, and can neither start, end nor look into them."""

from dataclasses import replace
from pathlib import Path

from kcast.client.cluster import Cluster, ClusterError
from kcast.client.source import find
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.servers import ServerFailed, Servers, ServerStat
from kcast.pubsub.endpoint import Address


class ForeignServers(Servers):
    """The servers of a cluster file or context, `name`. They have no taps. Raises ServerFailed."""

    backend = "file"

    def __init__(self, name: str) -> None:
        self._cluster = read_cluster(name)

    def __enter__(self) -> "ForeignServers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __len__(self) -> int:
        return len(self._cluster.servers)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The first address of each server."""
        return tuple(server.addresses[0] for server in self._cluster.servers)

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' names in the cluster file."""
        return tuple(server.name for server in self._cluster.servers)

    @property
    def keys(self) -> tuple[str, ...]:
        """Their keys on the ring, by the cluster file."""
        return tuple(server.key for server in self._cluster.servers)

    @property
    def running(self) -> tuple[bool, ...]:
        """True for each: nobody asks."""
        return (True,) * len(self)

    @property
    def pids(self) -> tuple[int | None, ...]:
        """None for each."""
        return (None,) * len(self)

    @property
    def taps(self) -> tuple[tuple[Path, ...], ...]:
        """No files."""
        return ((),) * len(self)

    def cluster(self, policy: Policy | None = None) -> Cluster:
        """Returns the cluster with this policy; without its name and signatures, which are for its own."""
        own = self._cluster
        return replace(own, policy=policy or own.policy, name="", signed=None, signatures=(), path=None)

    def kill(self, *indexes: int) -> None:
        """Raises ServerFailed, as all of these: they are not ours to touch."""
        raise ServerFailed("servers that someone else runs can only be cut off from clients: --by isolation")

    restart = stall = resume = isolate = rejoin = kill

    def stop(self) -> None:
        """Leaves them alone."""

    def logs(self) -> dict[str, str]:
        """Nothing is known."""
        return {}

    def stats(self) -> list[ServerStat]:
        """Nothing is known."""
        return [ServerStat()] * len(self)


def read_cluster(name: str) -> Cluster:
    """Reads the cluster that a cluster file or a context names. Raises ServerFailed."""
    try:
        source = find(name)
        assert source is not None  # since it has a name
        cluster = source.read()
    except ClusterError as error:
        raise ServerFailed(str(error)) from None
    for server in cluster.servers:
        if server.named:
            raise ServerFailed(f"{source.name}: {server.name} is a name: load tests need addresses")
    return cluster
