"""client/clusters/view.py: a topic's servers are those of its hosts, in the ring's order. PROTOCOL §8."""

import pytest

from kcast.client.cluster import Cluster, ServerEntry, parse
from kcast.client.clusters.view import View
from kcast.hashring.hashing import rendezvous
from kcast.hashring.policy import Policy
from kcast.hashring.ring import HashRing

HEADER = "kcast-cluster 1\n"
TOPICS = [b"topic-%d" % number for number in range(300)]


def view_of(*lines: str) -> View:
    return View(parse(HEADER + "".join(line + "\n" for line in lines)))


def hosts(count: int) -> list[str]:
    return [f"server 192.0.2.{host}:7400" for host in range(1, count + 1)]


def test_order_is_the_rings() -> None:
    """§8.2: nearest host first, under the file's salt, over the hosts' keys."""
    view = view_of("salt 0102", *hosts(20))
    ring = HashRing([f"192.0.2.{host}" for host in range(1, 21)], b"\x01\x02")
    for topic in TOPICS:
        keys = tuple(server.key.encode() for server in view.servers(topic))
        assert keys == ring.nodes(topic, 5)
        assert len(set(keys)) == 5


@pytest.mark.parametrize("count", [0, 3, 20, 60])
@pytest.mark.parametrize(
    "policy", [Policy(5, 3, 5), Policy(1, 1, 1, "modulo"), Policy(9, 9, 9, "all")], ids=str
)
def test_servers_of_each_topic_are_its_servers(policy: Policy, count: int) -> None:
    ports = {number: (7400, 7401) if number % 3 else (7400,) for number in range(count)}
    servers = [
        ServerEntry(((f"192.0.2.{number}", port),), f"192.0.2.{number}")
        for number, its_ports in ports.items()
        for port in its_ports
    ]
    view = View(Cluster(tuple(servers), policy, salt=b"s"))
    assert list(view.servers_of_each(TOPICS)) == [view.servers(topic) for topic in TOPICS]
    assert list(view.servers_of_each([])) == []


def test_view_does_not_depend_on_the_order_of_lines() -> None:
    forwards, backwards = view_of(*hosts(20)), view_of(*reversed(hosts(20)))
    assert all(forwards.servers(topic) == backwards.servers(topic) for topic in TOPICS)


def test_salt_moves_topics() -> None:
    plain, salted = view_of(*hosts(20)), view_of("salt 01", *hosts(20))
    assert any(plain.servers(topic) != salted.servers(topic) for topic in TOPICS)


def test_few_hosts_are_all_used() -> None:
    view = view_of(*hosts(3))
    assert {len(view.servers(topic)) for topic in TOPICS} == {3}


def test_one_of_several_servers_of_a_host_is_picked_by_topic() -> None:
    """§8.4: K counts hosts; ports do not move a host."""
    ports = (7400, 7401, 7402)
    view = view_of(*(f"server 192.0.2.{host}:{port}" for host in range(1, 9) for port in ports))
    single = view_of(*hosts(8))
    picked = set()
    for topic in TOPICS:
        servers = view.servers(topic)
        assert [server.key for server in servers] == [server.key for server in single.servers(topic)]
        assert {server.addresses[0][1] for server in servers} == {rendezvous(topic, ports)}
        picked |= {server.addresses[0] for server in servers}
    assert len(picked) == 24


def test_hash_tags_keep_topics_together() -> None:
    """§8.2"""
    view = view_of(*hosts(20))
    assert view.servers(b"{user7}/in") == view.servers(b"out/{user7}") == view.servers(b"user7")


def test_both_families_are_one_host() -> None:
    view = view_of("server 192.0.2.1:1,[2001:db8::1]:1", "server [2001:db8::2]:1,192.0.2.2:1")
    assert {server.key for server in view.servers(b"t")} == {"192.0.2.1", "2001:db8::/64"}


POLICIES = ["k=5 publish=3 subscribe=5", "scheme=CH k=2", "scheme=RCH k=4 k'=2 side=subscribe"]


@pytest.mark.parametrize("policy", POLICIES)
def test_explanation_is_of_the_same_servers(policy: str) -> None:
    ports = (7400, 7401)
    view = view_of(
        f"policy {policy}", *(f"server 192.0.2.{h}:{port}" for h in range(1, 13) for port in ports)
    )
    for topic in TOPICS:
        explanation, servers = view.explain(topic)
        assert servers == view.servers(topic)
        assert tuple(place.key.decode() for place in explanation.hosts) == tuple(s.key for s in servers)


def test_modulo_uses_one_host_and_all_uses_all() -> None:
    """§8.3: S and R."""
    single = view_of("policy scheme=S", *hosts(12))
    assert {len(single.servers(topic)) for topic in TOPICS} == {1}
    assert len({single.servers(topic) for topic in TOPICS}) == 12
    everywhere = view_of("policy scheme=R", *hosts(12))
    assert {len(everywhere.servers(topic)) for topic in TOPICS} == {12}
