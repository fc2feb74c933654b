"""The view: the servers that a client knows of, and which of them a topic belongs to. PROTOCOL §8."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from kcast.client.clusters.cluster import Cluster, ServerEntry
from kcast.hashring.hashing import rendezvous
from kcast.hashring.ring import Explanation, HashRing


class View:
    """A cluster's hosts on the ring. A topic has K hosts, and one server on each: K servers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.policy = cluster.policy
        hosts = [server.key.encode() for server in cluster.servers]
        self._server_of = dict(zip(hosts, cluster.servers, strict=True))  # the last one of each host
        self.ring = HashRing(self._server_of, cluster.salt)
        self._several: dict[bytes, dict[int, ServerEntry]] = {}  # by port, of hosts that have several servers
        if len(self._server_of) < len(hosts):
            by_port: defaultdict[bytes, dict[int, ServerEntry]] = defaultdict(dict)
            for host, server in zip(hosts, cluster.servers, strict=True):
                by_port[host][server.port] = server
            self._several = {host: servers for host, servers in by_port.items() if len(servers) > 1}

    @cached_property
    def by_name(self) -> dict[str, ServerEntry]:
        """Its servers by their names; made on first use, since only changes of the cluster ask for it."""
        return {server.name: server for server in self.cluster.servers}

    def servers(self, topic: bytes) -> tuple[ServerEntry, ...]:
        """Returns the servers of a topic (decoded), one of each of its hosts, nearest host first."""
        return tuple(self._pick(host, topic) for host in self.policy.candidates(self.ring, topic))

    def servers_of_each(self, topics: Sequence[bytes]) -> Iterator[tuple[ServerEntry, ...]]:
        """Yields the `servers` of each topic. For thousands of them this is several times faster."""
        if self.policy.placement != "ring":
            yield from map(self.servers, topics)
            return
        keys, rows = self.ring.keys, self.ring.nodes_many(topics, self.policy.k).tolist()
        for topic, row in zip(topics, rows, strict=True):
            yield tuple(self._pick(keys[index], topic) for index in row)

    def explain(self, topic: bytes) -> tuple[Explanation, tuple[ServerEntry, ...]]:
        """Returns why a topic has its hosts, and the server picked on each. Raises ValueError for policies
        without the ring."""
        if self.policy.placement != "ring":
            raise ValueError(f"the policy is {self.policy}: its hosts are not those of the ring")
        explanation = self.ring.explain(topic, self.policy.k)
        return explanation, tuple(self._pick(place.key, topic) for place in explanation.hosts)

    def _pick(self, host: bytes, topic: bytes) -> ServerEntry:
        by_port = self._several.get(host)
        return by_port[rendezvous(topic, tuple(by_port))] if by_port else self._server_of[host]
