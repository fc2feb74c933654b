"""What a list itself must be: in time, large enough, spread, and not too far from the list before. Sans-IO.

PROTOCOL §10.7, steps 9 to 11. Each function looks at one thing, and returns the trouble with it, or None.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, ListFacts, ServerEntry, facts_of
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.meeting import hosts_changed
from kcast.client.trust.checks.verdicts import FORMER_MAX, Trouble
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note
from kcast.pubsub.networks import networks_of, text_of

CLOCK_SLACK_S = 600
LATER_SALT = "a salt that holds later, which kcast 0.4 alone knows: its publisher leaves one, without from="

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """The time by this machine's clock, and the time that the witnesses prove to be over.

    `proven_unix_s` is the q-th newest time of cosignatures (`log_checks.proven_unix_s`), 0 where there are
    none. Whoever holds newer ones back cannot stop the time by it: lists expire by the later of both.
    `seen_unix_s` is over, too: a list that holds from then on was in force when the newest was accepted.
    """

    now_unix_s: int
    proven_unix_s: int = 0
    seen_unix_s: int = 0

    @property
    def at_least_unix_s(self) -> int:
        """The latest of them: lists are not early, nor fresh, because the clock is slow."""
        return max(self.now_unix_s, self.proven_unix_s, self.seen_unix_s)

    @property
    def compared_unix_s(self) -> int:
        """The time by which lists before the newest are compared with it: what is proven, where there are
        witnesses, since a clock that is fast would call them all expired."""
        return self.proven_unix_s or self.now_unix_s

    @property
    def trouble(self) -> Trouble | None:
        """That this machine's clock is slow, if the witnesses prove it."""
        slow_s = self.at_least_unix_s - self.now_unix_s
        if slow_s <= CLOCK_SLACK_S:
            return None
        return Trouble(
            ListFault.CLOCK,
            f"the clock of this machine is slow by at least {duration(slow_s)}, as times that were signed "
            "for the list show: set it",
        )


def seen_unix_s(lists: Iterable[Cluster]) -> int:
    """Returns the time that is over by what is held, of which the last two lists are given: one of them was
    in force when the newest was accepted. 0 where there is none."""
    return min((facts_of(each).valid_after_s for each in lists), default=0)


def duration(seconds: float) -> str:
    """Returns a time span for people: `3 days`, `2 h`, `5 min`."""
    for unit_s, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)} {unit}"
    return f"{max(0, int(seconds))} s"


def read_list(data: bytes, source: str = "list") -> tuple[Cluster, Note]:
    """Reads a signed list; who has signed it is not looked at. Raises NoteError and ClusterError."""
    note = Note.parse(data)
    return clusters.parse(clusters.decode(data, source), source), note


def overdue(cluster: Cluster, clock: Clock) -> Trouble | None:
    """Returns whether a list should have been replaced, or must have been."""
    facts, now = facts_of(cluster), clock.at_least_unix_s
    if now > facts.valid_until_s:
        over = duration(now - facts.valid_until_s)
        return Trouble(
            ListFault.EXPIRED,
            f"version {facts.version} was valid until {over} ago: either its publisher, or whoever brings "
            f"it, holds newer ones back, or the clock of this machine is fast by at least {over}",
        )
    if now > facts.fresh_until_s:
        return Trouble(
            ListFault.STALE,
            f"version {facts.version} should have been replaced {duration(now - facts.fresh_until_s)} ago; "
            f"it is valid for {duration(facts.valid_until_s - now)} more",
        )
    return None


def too_small(cluster: Cluster, document: TrustDocument) -> Trouble | None:
    """Returns whether there are fewer hosts than the list and the trust document demand."""
    hosts = len(cluster.hosts)
    needed = max(facts_of(cluster).min_servers, document.floor)
    if hosts >= needed:
        return None
    return Trouble(ListFault.SMALL, f"{_version(cluster)} has {hosts} of the {needed} hosts that it needs")


def too_crowded(cluster: Cluster, document: TrustDocument) -> Trouble | None:
    """Returns whether one network has more hosts than the trust document allows."""
    if document.hosts_per_prefix == 0:
        return None
    for prefix, count in hosts_by_prefix(cluster.servers).most_common(1):
        if count > document.hosts_per_prefix:
            return Trouble(
                ListFault.CROWDED,
                f"{_version(cluster)} has {count} hosts in {prefix}, where the trust document allows "
                f"{document.hosts_per_prefix}",
            )
    return None


def hosts_by_prefix(servers: Iterable[ServerEntry]) -> Counter[str]:
    """Returns how many of these servers' hosts there are in each network."""
    hosts = {(prefix_of(host), server.key) for server in servers for host, _ in server.addresses}
    return Counter(prefix for prefix, _ in hosts)


def prefix_of(host: str) -> str:
    """Returns the network whose hosts are counted together: an IPv4 /24 or an IPv6 /48."""
    return text_of(networks_of(host, exempts_loopback=False)[-1])


def too_different(cluster: Cluster, former: Iterable[Cluster], document: TrustDocument) -> Trouble | None:
    """Returns whether more hosts have come or gone than the trust document allows, since any of the lists
    before."""
    new = cluster.hosts
    for each in former:
        old = each.hosts
        added, removed = len(new - old), len(old - new)
        for count, sign in ((added, "+"), (removed, "-")):
            if count * 100 > document.churn_percent * len(old):
                return Trouble(
                    ListFault.CHURN,
                    f"{sign}{count} of {len(old)} hosts since {_version(each)}, where the trust "
                    f"document allows {document.churn_percent} % at once",
                )
    return None


def kept_former(lists: Sequence[tuple[T, ListFacts]], at_unix_s: int) -> list[T]:
    """Returns those of the lists before the newest, given newest first, that it is compared with: the last
    ones that are valid, and the oldest one that is still fresh.

    So however many versions there are, what changes in a fresh interval is bounded.
    """
    valid = [(each, facts) for each, facts in lists if facts.valid_until_s >= at_unix_s]
    fresh = [each for each, facts in valid if facts.fresh_until_s >= at_unix_s]
    last = [each for each, _ in valid[: FORMER_MAX - 1]]
    return last if not fresh or fresh[-1] in last else [*last, fresh[-1]]


def apart(cluster: Cluster, former: Cluster, clock: Clock) -> Trouble | None:
    """Returns whether clients with the list before may miss clients with this one.

    By the time until which the one before was fresh, everybody has asked for a newer one. So what changes
    only then is no trouble.
    """
    new, old = facts_of(cluster), facts_of(former)
    difference = hosts_changed(former, cluster)
    begins_s = max(new.valid_after_s, clock.at_least_unix_s)
    if begins_s >= old.fresh_until_s or difference.is_none or difference.always_meet:
        return None
    return Trouble(
        ListFault.APART,
        f"clients that have version {old.version} and clients that have version {new.version} may miss each "
        "other on some topics, until all have the newer one",
    )


def kept(cluster: Cluster, former: Cluster) -> str:
    """Returns what a list that is not `apart` from the one before leaves of each topic's servers."""
    difference = hosts_changed(former, cluster)
    text = f"{difference.kept_text} since {_version(former)}"
    if not (difference.is_none or difference.always_meet):
        text += ", from when all have learned of it"
    return text


def in_force(lists: Sequence[Cluster], clock: Clock) -> Cluster | None:
    """Returns the first of these lists, newest first, that holds already; None where none does.

    Versions do not tell which one is newest: they may have been counted anew.
    """
    return next((each for each in lists if facts_of(each).valid_after_s <= clock.at_least_unix_s), None)


def _version(cluster: Cluster) -> str:
    return f"version {facts_of(cluster).version}"
