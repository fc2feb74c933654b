"""Addresses by their networks, so that some can be chosen without any network having more than its part."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import chain, islice, zip_longest
from random import Random
from typing import TypeVar

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Share

Thing = TypeVar("Thing")


class ByNetwork:
    """A set of addresses; on loopback each is a network of its own."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._members: dict[Share, dict[Address, None]] = {}  # by the widest network

    def add(self, address: Address) -> None:
        """Adds an address."""
        share = self._networks.shares_of(address)[-1][0]
        self._members.setdefault(share, {})[address] = None

    def remove(self, address: Address) -> None:
        """Removes an address. Raises KeyError if it is not there."""
        share = self._networks.shares_of(address)[-1][0]
        members = self._members[share]
        del members[address]
        if not members:
            del self._members[share]

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on.

        Networks, and the addresses of each, come in the order in which they were added, from any place on.
        """
        start = random.random()
        rest: Iterable[Iterator[Address]] = map(partial(_from, start), _from(start, self._members.values()))
        while rest:  # whoever takes only some addresses touches only so many networks
            left = []
            for each in rest:
                address = next(each, None)
                if address is not None:
                    yield address
                    left.append(each)
            rest = left


def _from(start: float, things: Collection[Thing]) -> Iterator[Thing]:
    """Yields all of these things, beginning behind this part of them."""
    skipped = int(start * len(things))
    return chain(islice(things, skipped, None), islice(things, skipped))


def alternately(first: ByNetwork, second: ByNetwork, random: Random) -> Iterator[Address]:
    """Yields addresses of the two in turn, fairly; one that is in both, twice."""
    for pair in zip_longest(first.fairly(random), second.fairly(random)):
        yield from filter(None, pair)
