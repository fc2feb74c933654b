"""pubsub/queues.py: who is next, where some have many addresses."""

import random
from collections import Counter

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Share
from kcast.pubsub.queues import RoundRobin
from tests.support.forms import Seeds

NETWORKS = Networks()


def within(host: str) -> tuple[Share, ...]:
    """The networks of an address, the widest first, without what is its own."""
    address: Address = (host, 7)
    return tuple(share for share, _ in reversed(NETWORKS.shares_of(address)[1:]))


def waiting(*hosts: str) -> RoundRobin[str]:
    turns: RoundRobin[str] = RoundRobin()
    for host in hosts:
        turns.add(host, within(host))
    return turns


def rounds(turns: RoundRobin[str], count: int) -> list[str]:
    found = []
    for _ in range(count):
        found.append(turns.first())
        turns.pass_on()
    return found


def test_networks_take_turns_and_so_do_those_within() -> None:
    turns = waiting("192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1", "127.0.0.1")
    assert rounds(turns, 9) == [
        *("192.0.2.1", "198.51.100.1", "127.0.0.1"),
        *("192.0.2.2", "198.51.100.1", "127.0.0.1"),
        *("192.0.2.3", "198.51.100.1", "127.0.0.1"),
    ]


def test_all_of_a_48_have_the_turns_of_one_and_each_56_in_it_its_part() -> None:
    many = [f"2001:db8:0:{number:x}::1" for number in range(1000)]  # four /56
    turns = waiting(*many, "198.51.100.1")
    counts = Counter(rounds(turns, 8000))
    assert counts["198.51.100.1"] == 4000
    assert {counts[host] for host in many[:256]} <= {3, 4}
    assert {counts[host] for host in many[768:]} <= {4, 5}


def test_who_is_removed_costs_the_others_nothing() -> None:
    turns = waiting("192.0.2.1", "192.0.2.2", "198.51.100.1")
    turns.remove_first()
    assert rounds(turns, 4) == ["198.51.100.1", "192.0.2.2"] * 2
    turns.remove_first()
    assert rounds(turns, 2) == ["192.0.2.2"] * 2
    turns.remove_first()
    assert not turns
    with pytest.raises(IndexError):
        turns.first()
    turns.add("192.0.2.9", within("192.0.2.9"))
    assert turns.first() == "192.0.2.9"


def test_as_long_as_all_wait_none_has_more_than_a_turn_more(seeds: Seeds) -> None:
    """However they come and go: between networks, and within each."""
    for seed in seeds(4, 20):
        rng = random.Random(seed)
        turns: RoundRobin[str] = RoundRobin()
        there: list[str] = []
        for _ in range(60):
            host = f"10.0.{rng.randrange(4)}.{rng.randrange(30)}"
            if host not in there:
                there.append(host)
                turns.add(host, within(host))
            elif turns:
                there.remove(turns.first())
                turns.remove_first()
        networks = {within(host) for host in there}
        of_network: Counter[object] = Counter()
        of_host: Counter[str] = Counter()
        for host in rounds(turns, 300 * len(networks)):
            of_network[within(host)] += 1
            of_host[host] += 1
        assert set(of_network.values()) == {300}
        assert set(of_host) == set(there)
        for network in networks:
            counts = [of_host[host] for host in there if within(host) == network]
            assert max(counts) - min(counts) <= 1
        while turns:
            turns.remove_first()
        assert not turns._networks
