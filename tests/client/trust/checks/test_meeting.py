"""trust/checks/meeting.py: clients with different lists meet while margin > x. PROTOCOL §8.3, §10.3."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, product
from random import Random

import pytest

from kcast.client.cluster import Cluster, ServerEntry
from kcast.client.clusters.view import View
from kcast.client.trust.checks import meeting
from kcast.hashring.policy import Policy
from tests.support.forms import Seeds

POLICIES = [
    Policy(k, publish, subscribe)
    for k, publish, subscribe in product(range(1, 6), repeat=3)
    if max(publish, subscribe) <= k < publish + subscribe
]


def servers(hosts: Mapping[int, tuple[int, ...]]) -> tuple[ServerEntry, ...]:
    """A server for each port of each host, of which number and ports are given."""
    return tuple(
        ServerEntry(((f"192.0.2.{number}", port),), f"192.0.2.{number}")
        for number, ports in hosts.items()
        for port in ports
    )


def cluster(*numbers: int, policy: Policy | None = None, salt: bytes = b"") -> Cluster:
    return Cluster(servers(dict.fromkeys(numbers, (7400,))), policy or Policy(), salt=salt)


def run_of_versions(seed: int, policy: Policy, hosts: int, versions: int) -> list[Cluster]:
    """Lists, each of which adds, removes, or gives other ports to a host or two of the one before."""
    rng = Random(seed)
    present: dict[int, tuple[int, ...]] = {
        number: (7400,) if rng.random() < 0.7 else (7400, 7401) for number in range(hosts)
    }
    run = [Cluster(servers(present), policy)]
    next_number = hosts
    for _ in range(versions - 1):
        for _ in range(rng.choice((1, 1, 2))):
            what = rng.choice(("add", "remove", "replace", "ports"))
            if what in ("remove", "replace") and len(present) > 1:
                del present[rng.choice(list(present))]
            if what in ("add", "replace"):
                present[next_number] = (7400,)
                next_number += 1
            if what == "ports":
                present[rng.choice(list(present))] = rng.choice(((7400,), (7401,), (7400, 7402)))
        run.append(Cluster(servers(present), policy))
    return run


@lru_cache(maxsize=4096)  # a list is compared with several others
def names_of(view: View, topic: bytes) -> frozenset[str]:
    return frozenset(server.name for server in view.servers(topic))


def draws_miss(publishers: View, subscribers: View, topic: bytes) -> bool:
    """Whether some draw of a publisher and some draw of a subscriber share no server: all are tried."""
    _, publish, _ = publishers.policy.sizes(len(publishers.ring))
    _, _, subscribe = subscribers.policy.sizes(len(subscribers.ring))
    drawn = [set(draw) for draw in combinations(sorted(names_of(publishers, topic)), publish)]
    leased = [set(draw) for draw in combinations(sorted(names_of(subscribers, topic)), subscribe)]
    return any(used.isdisjoint(held) for used in drawn for held in leased)


Listed = tuple[Cluster, View]


def pairs(seed: int) -> Iterator[tuple[Listed, Listed]]:
    """Each two of a run of lists, for each policy and few or many hosts."""
    for policy in POLICIES:
        hosts = Random(f"{seed} {policy}").choice((1, 2, 4, 7, 12, 40))
        run = run_of_versions(seed, policy, hosts, 6)
        yield from combinations([(cluster, View(cluster)) for cluster in run], 2)


def test_all_draws_meet_where_it_is_said_and_topics_keep_as_many_servers(seeds: Seeds) -> None:
    """Every pair of a run of versions, every draw of a publisher, every draw of a subscriber, both ways."""
    for seed in seeds(1, 8):
        promised = 0
        for (old, before), (new, after) in pairs(seed):
            difference = meeting.hosts_changed(old, new)
            if min(len(before.ring), len(after.ring)) >= old.policy.k and not difference.is_none:
                assert difference.always_meet == (old.policy.margin > difference.x), "the rule of the page"
                assert difference.kept == max(0, old.policy.k - difference.x)
            promised += difference.always_meet
            for topic in (b"%d" % number for number in range(40)):
                kept = names_of(before, topic) & names_of(after, topic)
                assert len(kept) >= difference.kept, (old, new, topic)
                if difference.always_meet:
                    assert not draws_miss(before, after, topic), (old, new, topic)
                    assert not draws_miss(after, before, topic), (old, new, topic)
        assert promised > 50, "else nothing was shown"


def test_bound_is_tight() -> None:
    """With x = margin hosts changed, some topic has draws that share no server."""
    for policy in POLICIES:
        for kind in ["added", "removed", "replaced", "ports"]:
            x = policy.margin
            hosts = policy.k + x
            present: dict[int, tuple[int, ...]] = dict.fromkeys(range(hosts), (7400,))
            gone = list(present)[:x]
            kept = {number: ports for number, ports in present.items() if number not in gone}
            others: dict[int, tuple[int, ...]] = dict.fromkeys(range(hosts, hosts + x), (7400,))
            lists = {
                "added": (kept, present),
                "removed": (present, kept),
                "replaced": (present, {**kept, **others}),
                "ports": (present, {**present, **dict.fromkeys(gone, (7401,))}),
            }
            old, new = (Cluster(servers(hosts), policy) for hosts in lists[kind])
            difference = meeting.hosts_changed(old, new)
            assert (difference.x, difference.always_meet) == (x, False)
            before, after = View(old), View(new)
            topics = [b"%d" % number for number in range(3000)]
            assert any(
                draws_miss(before, after, topic) or draws_miss(after, before, topic) for topic in topics
            )


def test_few_hosts_have_no_margin_to_spend() -> None:
    """Two hosts that are both replaced: x = 2 is below the margin of 3, but nothing is left."""
    difference = meeting.hosts_changed(cluster(1, 2), cluster(3, 4))
    assert (difference.x, difference.kept) == (2, 0)
    assert not difference.always_meet
    assert meeting.hosts_changed(cluster(1, 2), cluster(1, 2, 3, 4)).always_meet


def test_which_hosts_are_added_removed_and_changed() -> None:
    old = Cluster(servers({1: (7400,), 2: (7400, 7401), 3: (7400,), 4: (7400,)}))
    new = Cluster(servers({2: (7400,), 3: (7400,), 4: (7401,), 5: (7400,), 6: (7400,)}))
    difference = meeting.hosts_changed(old, new)
    assert difference.added == ("192.0.2.5", "192.0.2.6")
    assert difference.removed == ("192.0.2.1",)
    assert difference.changed == ("192.0.2.2", "192.0.2.4")
    assert (difference.x, difference.kept, difference.kept_of) == (4, 1, 5 - 1)


def test_order_of_lines_and_a_second_address_change_no_host() -> None:
    old = cluster(1, 2, 3)
    first, *rest = old.servers
    new = replace(old, servers=(*rest, first._replace(addresses=(*first.addresses, ("2001:db8::1", 7400)))))
    assert meeting.hosts_changed(old, new).is_none


@pytest.mark.parametrize("changed", [{"salt": b"other"}, {"policy": Policy(5, 4, 5)}])
def test_other_policies_and_salts_place_all_anew(changed: dict[str, object]) -> None:
    old = cluster(*range(12))
    difference = meeting.hosts_changed(old, replace(old, **changed))  # type: ignore[arg-type]
    assert difference.is_new_placement
    assert not difference.always_meet
    assert (difference.x, difference.kept) == (0, 0)
