"""pubsub/audience.py: who is live on a topic, whatever came and went between two looks."""

from random import Random

import pytest

from kcast.pubsub.audience import LARGE, Audience, Entry
from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks
from tests.support.forms import Seeds

TTL_S = 10.0
HOSTS = tuple(f"198.51.{number}.1" for number in range(4))


def of_port(port: int) -> Address:
    return HOSTS[port % len(HOSTS)], port


def test_a_lease_alone_is_its_audience() -> None:
    entry = Entry(b"t", of_port(1), 100.0)
    assert (entry.count, entry.paid_count, entry.opener) == (1, 1, of_port(1))
    assert entry.find(of_port(1)) is entry and entry.find(of_port(2)) is None
    assert list(entry.live(109.999, TTL_S)) == [of_port(1)]
    assert list(entry.live(110.0, TTL_S)) == []
    assert not entry.is_established
    entry.opened_at = None
    assert entry.is_established


@pytest.mark.parametrize("ports", [4, 12, 300])
def test_the_live_are_those_that_have_not_ended(seeds: Seeds, ports: int) -> None:
    """Looks come now and then, and what has ended may stay for a while before it is removed."""
    for seed in seeds(1, 8):
        rng, networks, now = Random(seed), Networks(), 100.0
        audience = Audience(Entry(b"t", of_port(0), now))
        renewed_at = {of_port(0): now}  # in the order in which they came
        kept = looks = 0
        for _ in range(1500):
            now += rng.choice((0.0, 0.0, 0.01, 0.5, 3.0)) / (1 + ports // 100)
            address = of_port(rng.randrange(ports))
            entry = audience.find(address)
            if entry is None:
                audience.add(Entry(b"t", address, now), networks)
                renewed_at[address] = now
            elif entry.renewed_at + TTL_S > now and rng.random() < 0.6:
                entry.renewed_at = renewed_at[address] = now
            elif len(renewed_at) > 1:
                audience.remove(entry, TTL_S)
                del renewed_at[address]
            if rng.random() < 0.3:
                live = audience.live(now, TTL_S)
                assert list(live) == [each for each, at in renewed_at.items() if at + TTL_S > now]
                assert audience.live(now, TTL_S) is live or not live
                kept += len(live) < len(renewed_at)
                looks += 1
            assert audience.count == len(renewed_at)
            paid = audience.count - (len(audience.excess) if audience.excess else 0)
            assert audience.paid_count == paid
        assert 10 < kept < looks
        assert (audience.excess is not None) is (ports > LARGE)


def test_many_that_end_at_once_are_searched_once() -> None:
    """They are forgotten in slices, and something may be published between any two of them."""
    audience = Audience(Entry(b"t", of_port(0), 100.0))
    entries = [Entry(b"t", of_port(port), 100.0) for port in range(1, 100)]
    standing = Entry(b"t", of_port(100), 105.0)
    for entry in (*entries, standing):
        audience.add(entry, Networks())
    live = audience.live(111.0, TTL_S)
    assert live == (standing.address,)
    for entry in entries:
        audience.remove(entry, TTL_S)
        assert audience.live(111.0, TTL_S) is live
    audience.remove(standing, TTL_S)
    assert audience.live(111.0, TTL_S) == ()
