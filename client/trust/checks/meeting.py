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
from kcast.client.clusters.view import View
from kcast.client.clusters.views import in_force

SAMPLE_TOPICS = 20_000
_SAMPLE_WORK = 20_000_000  # topics times hosts: a second or so


@dataclass(frozen=True, slots=True)
class Difference:
    """What tells two lists apart. Hosts are named by their keys; those in `changed` have other servers."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    margin: int
    is_new_placement: bool  # no count of hosts says how many topics move
    kept: int  # the number of its servers that each topic of the old list keeps at least ...
    kept_of: int  # ... of these
    always_meet: bool
    anew_at_unix_s: int | None  # when a salt begins that the old list does not know of, and places all anew

    @property
    def x(self) -> int:
        """The number of hosts by which the lists differ: the larger of those added and those removed."""
        return max(len(self.added), len(self.removed)) + len(self.changed)

    @property
    def is_none(self) -> bool:
        """Whether every topic has the servers that it had."""
        return not self.x and not self.is_new_placement


@dataclass(frozen=True, slots=True)
class Sample:
    """What two lists do to a sample of topics, always the same ones: `"0"`, `"1"`, `"2"` and so on."""

    topics: int
    moved: int  # have another server
    may_miss: int  # draws in the two lists may share no server

    @property
    def moved_percent(self) -> float:
        """The share of topics that have another server."""
        return 100 * self.moved / self.topics


def hosts_changed(old: Cluster, new: Cluster, at_unix_s: float) -> Difference:
    """Compares two lists as they are at a time: of several salts, each goes by the one in force then."""
    anew_at = (at for salt, at in new.next_salts if at > at_unix_s and (salt, at) not in old.next_salts)
    anew_at_unix_s = min(anew_at, default=None)
    old, new = in_force(old, at_unix_s), in_force(new, at_unix_s)
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
        margin=new.policy.margin,
        is_new_placement=is_new_placement,
        kept=0 if is_new_placement else kept,
        kept_of=size_before,
        always_meet=not is_new_placement and (not has_changed or used > all_servers),
        anew_at_unix_s=anew_at_unix_s,
    )


def sample(old: Cluster, new: Cluster, at_unix_s: float) -> Sample:
    """Looks up topics in both lists: 20,000 of them, fewer where there are more than 1,000 hosts."""
    views = [View(in_force(cluster, at_unix_s)) for cluster in (old, new)]
    count = min(SAMPLE_TOPICS, _SAMPLE_WORK // max(1, *(len(view.ring) for view in views)))
    topics = [b"%d" % number for number in range(count)]
    (_, publish_before, subscribe_before), (_, publish_after, subscribe_after) = (
        view.policy.sizes(len(view.ring)) for view in views
    )
    used = min(publish_before + subscribe_after, publish_after + subscribe_before)
    moved = may_miss = 0
    for servers_before, servers_after in zip(*(view.servers_of_each(topics) for view in views), strict=True):
        if servers_before == servers_after:
            continue
        before, after = ({server.name for server in servers} for servers in (servers_before, servers_after))
        if before != after:
            moved += 1
            may_miss += used <= len(before | after)
    return Sample(count, moved, may_miss)


def sentence(difference: Difference, found: Sample, lists: str) -> str:
    """Tells what the change does, as in:

    2 added, 1 removed: 1.4 % of topics have another server; every topic keeps at least 3 of 5: versions 41
    and 42 always meet

    `lists` names the two: `versions 41 and 42`.
    """
    counts = [
        f"{len(hosts)} {what}"
        for hosts, what in (
            (difference.added, "added"),
            (difference.removed, "removed"),
            (difference.changed, "with other ports"),
        )
        if hosts
    ]
    change = ", ".join(counts) or "no host changed"
    if difference.is_none:
        return f"{change}: no topic has another server: {lists} always meet"
    moved = f"{_share(found)} of topics have another server"
    if difference.is_new_placement:
        counts = ["topics are placed anew", *counts]
        return f"{', '.join(counts)}: {moved}: {lists} do not always meet"
    kept = f"every topic keeps at least {difference.kept} of {difference.kept_of}"
    if difference.always_meet:
        return f"{change}: {moved}; {kept}: {lists} always meet"
    missed = f"{found.may_miss} of {found.topics} topics may miss messages"
    return f"{change}: {moved}; {kept}; {missed}: {lists} do not always meet"


def _share(found: Sample) -> str:
    """Returns the share of topics that move; a sample cannot tell less than its smallest share from none."""
    if not found.moved:
        return f"less than {100 / found.topics:.2g} %"
    return f"{found.moved_percent:.2g} %" if found.moved_percent < 1 else f"{found.moved_percent:.1f} %"


def _names_by_host(cluster: Cluster, without: Collection[ServerEntry]) -> Mapping[str, Collection[str]]:
    """Returns the names of each host's servers, but for these."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for server in cluster.servers:
        if server not in without:
            names[server.key].add(server.name)
    return names
