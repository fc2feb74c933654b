"""Addresses by their networks, so that some can be chosen without any network having more than its part.

Most networks have few addresses. These stand in a tuple, which takes a fraction of what a dict would.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice, zip_longest
from random import Random
from typing import Protocol, TypeVar

from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks, Share

FEW = 8

Addresses = tuple[Address, ...] | dict[Address, None]
"""The addresses of one network, in the order in which they were added; once they were many, in a dict."""

Group = TypeVar("Group")
Thing = TypeVar("Thing")


def added(addresses: Addresses, address: Address) -> Addresses:
    """Returns these addresses and another one. A dict is changed."""
    if isinstance(addresses, tuple):
        if len(addresses) < FEW:
            return (*addresses, address)
        addresses = dict.fromkeys(addresses)
    addresses[address] = None
    return addresses


def removed(addresses: Addresses, address: Address) -> Addresses:
    """Returns these addresses but for one of them. A dict is changed."""
    if isinstance(addresses, tuple):
        return tuple([each for each in addresses if each != address])
    del addresses[address]
    return addresses


def fairly(
    groups: Collection[Group], addresses_of: Callable[[Group], Collection[Address]], random: Random
) -> Iterator[Address]:
    """Yields one address of each group, then another one of each, and so on.

    Groups, and the addresses of each, come in the order in which they were added, from any place on. Whoever
    takes only some addresses touches only as many groups.
    """
    start = random.random()
    rest: Iterable[Iterator[Address]] = (_from(start, addresses_of(group)) for group in _from(start, groups))
    while rest:
        left = []
        for each in rest:
            address = next(each, None)
            if address is not None:
                yield address
                left.append(each)
        rest = left


class Sources(Protocol):
    """A set of addresses that knows their networks."""

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on, from any place."""


class ByNetwork:
    """A set of addresses; on loopback each is a network of its own."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._members: dict[Share, Addresses] = {}  # by the widest network

    def add(self, address: Address) -> None:
        """Adds an address."""
        share = self._networks.shares_of(address)[-1][0]
        members = self._members.get(share, ())
        if address not in members:
            self._members[share] = added(members, address)

    def remove(self, address: Address) -> None:
        """Removes an address. Raises KeyError if it is not there."""
        share = self._networks.shares_of(address)[-1][0]
        members = self._members[share]
        if address not in members:
            raise KeyError(address)
        self._members[share] = members = removed(members, address)
        if not members:
            del self._members[share]

    def fairly(self, random: Random) -> Iterator[Address]:
        """Yields one address of each network, then another one of each, and so on, from any place."""
        return fairly(self._members.values(), _same, random)


def _same(addresses: Addresses) -> Addresses:
    return addresses


def _from(start: float, things: Collection[Thing]) -> Iterator[Thing]:
    """Yields all of these things, beginning behind this part of them."""
    skipped = int(start * len(things))
    return chain(islice(things, skipped, None), islice(things, skipped))


def alternately(first: Sources, second: Sources, random: Random) -> Iterator[Address]:
    """Yields addresses of the two in turn, fairly; one that is in both, twice."""
    for pair in zip_longest(first.fairly(random), second.fairly(random)):
        yield from filter(None, pair)
