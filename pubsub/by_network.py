"""Addresses by their networks, so that some can be chosen without any network having more than its part."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Share


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

    def fairly(self) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on: of each those first that
        were added first."""
        rest: Iterable[Iterator[Address]] = map(iter, self._members.values())
        while rest:  # whoever takes only some addresses touches only so many networks
            left = []
            for each in rest:
                address = next(each, None)
                if address is not None:
                    yield address
                    left.append(each)
            rest = left


def alternately(first: ByNetwork, second: ByNetwork) -> Iterator[Address]:
    """Yields addresses of the two in turn, fairly; one that is in both, twice."""
    for pair in zip_longest(first.fairly(), second.fairly()):
        yield from filter(None, pair)
