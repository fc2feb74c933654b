"""The view: the servers that a client knows of, and which of them a topic belongs to. PROTOCOL §8."""

from collections import defaultdict

from kcast.client.cluster import Cluster, ServerEntry
from kcast.hashring.hashing import rendezvous
from kcast.hashring.ring import Explanation, HashRing


class View:
    """A cluster's hosts on the ring. A topic has K hosts, and one server on each: K servers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.policy = cluster.policy
        servers_of: defaultdict[bytes, list[ServerEntry]] = defaultdict(list)
        for server in cluster.servers:
            servers_of[server.key.encode()].append(server)
        self._servers_of = dict(servers_of)
        self.ring = HashRing(servers_of, cluster.salt)

    def servers(self, topic: bytes) -> tuple[ServerEntry, ...]:
        """Returns the servers of a topic (decoded), one of each of its hosts, nearest host first."""
        return tuple(self._pick(host, topic) for host in self.policy.candidates(self.ring, topic))

    def explain(self, topic: bytes) -> tuple[Explanation, tuple[ServerEntry, ...]]:
        """Returns why a topic has its hosts, and the server picked on each. Raises ValueError for policies
        without the ring."""
        if self.policy.placement != "ring":
            raise ValueError(f"the policy is {self.policy}: its hosts are not those of the ring")
        explanation = self.ring.explain(topic, self.policy.k)
        return explanation, tuple(self._pick(place.key, topic) for place in explanation.hosts)

    def _pick(self, host: bytes, topic: bytes) -> ServerEntry:
        servers = self._servers_of[host]
        if len(servers) == 1:
            return servers[0]
        by_port = {server.port: server for server in servers}
        return by_port[rendezvous(topic, tuple(by_port))]
