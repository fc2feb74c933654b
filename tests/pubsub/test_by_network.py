"""pubsub/networks.py: who comes first, where some have many addresses."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import ByNetwork, Networks, fairly

MANY: list[Address] = [(f"2001:db8:0:{number:x}::1", 7) for number in range(1000)]
FEW: list[Address] = [("192.0.2.1", 7), ("198.51.100.1", 7), ("127.0.0.1", 7), ("127.0.0.1", 8)]


def test_each_network_has_one_before_any_has_two() -> None:
    sources = ByNetwork(Networks())
    for address in [*MANY, *FEW]:
        sources.add(address)
    for seed in range(9):
        found = list(sources.fairly(Random(seed)))
        assert set(found[:5]) > set(FEW)
        assert sorted(found) == sorted([*MANY, *FEW])


def test_where_there_are_too_many_nobody_is_always_left_out() -> None:
    """Of one network, and of as many as there are addresses."""
    for crowd in (MANY, [(f"10.0.{number >> 8}.{number & 255}", 7) for number in range(1000)]):
        sources, random = ByNetwork(Networks()), Random(1)
        for address in crowd:
            sources.add(address)
        chosen = set()
        for _ in range(20):
            chosen |= set(islice(sources.fairly(random), 800))
        assert chosen == set(crowd)


def test_what_is_removed_is_gone() -> None:
    sources = ByNetwork(Networks())
    for address in MANY:
        sources.add(address)
        sources.add(address)
    for address in MANY[:-1]:
        sources.remove(address)
    assert list(islice(sources.fairly(Random(1)), 10)) == MANY[-1:]
    sources.remove(MANY[-1])
    assert not sources._members
    with pytest.raises(KeyError):
        sources.remove(MANY[0])


def test_to_take_some_touches_no_more_networks_than_that() -> None:
    """A server with 100,000 of them would be busy for too long."""
    touched = 0

    class Members(dict[Address, None]):
        def __iter__(self) -> Iterator[Address]:
            nonlocal touched
            touched += 1
            return super().__iter__()

    networks = [Members({(f"10.{number >> 8}.{number & 255}.1", 7): None}) for number in range(1000)]
    assert len(list(islice(fairly(networks, lambda members: members, Random(1)), 10))) == 10
    assert touched <= 2 * 10  # from some place on, and up to it
