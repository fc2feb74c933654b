"""Two lists at once: do clients that have different ones still meet? Sans-IO. PROTOCOL §8.3, §10.3.

Let two lists have the same policy k/publish/subscribe and the same salt. A topic's servers are S in the one
and T in the other. The lists differ by x hosts: the larger of the number added and the number removed.

*A topic keeps at least k - x servers.* Sort all hosts of both lists by how far before the topic they lie; the
order of two hosts depends on nothing else. S is how the old list begins in this order, and T how the new one
does. Take away from S the hosts that were removed, at most x. What is left are the nearest k - x, or more, of
those that stand in both lists. Take away from T the hosts that were added, at most x. What is left are, too,
the nearest k - x, or more, of those that stand in both. So the shorter of the two rests is in S and in T.

*All clients meet while margin > x*, where margin = publish + subscribe - k. S and T together have at most
k + x servers. A publisher uses `publish` of S, a subscriber `subscribe` of T, or the other way round. If
publish + subscribe > k + x, these are more than there are, so one server is used by both: whoever has drawn
what. If publish + subscribe = k + x, two draws may share no server, where all changes fall upon one topic:
so the bound is tight.

A host whose ports changed is one removed and one added at the same place, since a topic may have another of
its servers. A list of fewer than k hosts has smaller draws; `always_meet` counts with what the lists have.

Another policy or another salt places all topics anew, and so does any change where hosts are numbered
(placement by modulo). Where all hosts are every topic's, the sides meet by chance anyway. For all these no x
promises anything: such a list needs a time from which it holds (`kcast.client.clusters.views`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kcast.client.clusters.cluster import Cluster, ServerEntry


@dataclass(frozen=True, slots=True)
class Difference:
    """What tells two lists apart. Hosts are named by their keys; those in `changed` have other servers."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    is_new_placement: bool  # no count of hosts says how many topics move
    kept: int  # the number of its servers that each topic of the old list keeps at least ...
    kept_of: int  # ... of these
    always_meet: bool

    @property
    def x(self) -> int:
        """The number of hosts by which the lists differ: the larger of those added and those removed."""
        return max(len(self.added), len(self.removed)) + len(self.changed)

    @property
    def is_none(self) -> bool:
        """Whether every topic has the servers that it had."""
        return not self.x and not self.is_new_placement

    @property
    def kept_text(self) -> str:
        """What is left of each topic's servers."""
        if self.is_none:
            return "no topic has another server"
        if self.is_new_placement:
            return "topics are placed anew"
        return f"every topic keeps at least {self.kept} of {self.kept_of} servers"


def hosts_changed(old: Cluster, new: Cluster) -> Difference:
    """Compares two lists."""
    before, after = old.hosts, new.hosts
    kept_servers = set(old.servers) & set(new.servers)
    removed_names, added_names = (_names_by_host(cluster, kept_servers) for cluster in (old, new))
    added = tuple(host for host in added_names if host not in before)
    removed = tuple(host for host in removed_names if host not in after)
    changed = tuple(
        host
        for host in {**removed_names, **added_names}
        if host in before and host in after and removed_names.get(host) != added_names.get(host)
    )
    has_changed = bool(added or removed or changed)
    is_new_placement = (
        old.policy != new.policy or old.salt != new.salt or (has_changed and old.policy.placement != "ring")
    )
    size_before, publish_before, subscribe_before = old.policy.sizes(len(before))
    size_after, publish_after, subscribe_after = new.policy.sizes(len(after))
    lost = min(len(removed) + len(changed), size_before)
    gained = min(len(added) + len(changed), size_after)
    kept = max(0, min(size_before - lost, size_after - gained))
    all_servers = size_before + size_after - kept
    used = min(publish_before + subscribe_after, publish_after + subscribe_before)
    return Difference(
        added,
        removed,
        changed,
        is_new_placement=is_new_placement,
        kept=0 if is_new_placement else kept,
        kept_of=size_before,
        always_meet=not is_new_placement and (not has_changed or used > all_servers),
    )


def _names_by_host(cluster: Cluster, without: Collection[ServerEntry]) -> Mapping[str, Collection[str]]:
    """Returns the names of each host's servers, but for these."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for server in cluster.servers:
        if server not in without:
            names[server.key].add(server.name)
    return names
