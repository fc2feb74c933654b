"""Turns by network: whoever has many addresses gets no more turns than who has one. Sans-IO.

Networks take turns; within each, the networks in it; and at last those who wait. So the part of a party with
an IPv6 /48, which has 65,536 /64s, is that of a party with a single address.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from kcast.pubsub.networks import Share

Waiting = TypeVar("Waiting")


class _Network(Generic[Waiting]):
    __slots__ = ("members", "share")

    def __init__(self, share: Share | None) -> None:
        self.share = share
        self.members: deque[_Network[Waiting] | Waiting] = deque()  # the one whose turn it is stands first


class Turns(Generic[Waiting]):
    """The order of all who wait."""

    def __init__(self) -> None:
        self._all: _Network[Waiting] = _Network(None)
        self._networks: dict[Share, _Network[Waiting]] = {}  # in which somebody waits

    def __bool__(self) -> bool:
        return bool(self._all.members)

    def add(self, waiting: Waiting, networks: Sequence[Share]) -> None:
        """Lets somebody wait who is in these networks, of which the widest stands first."""
        within = self._all
        for share in networks:
            network = self._networks.get(share)
            if network is None:
                network = self._networks[share] = _Network(share)
                within.members.append(network)
            within = network
        within.members.append(waiting)

    def first(self) -> Waiting:
        """Returns whose turn it is. Raises IndexError if nobody waits."""
        member = self._all.members[0]
        while isinstance(member, _Network):
            member = member.members[0]
        return member

    def pass_on(self) -> None:
        """Ends the first one's turn."""
        for network in self._path():
            network.members.rotate(-1)

    def remove_first(self) -> None:
        """Lets the first one wait no more; the turn goes on to another network."""
        path = self._path()
        path[-1].members.popleft()
        for within, network in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            if network.members:
                within.members.rotate(-1)
            else:
                within.members.popleft()
                assert network.share is not None
                del self._networks[network.share]

    def _path(self) -> list[_Network[Waiting]]:
        """Returns the networks of the first one, the widest first."""
        path = [self._all]
        while isinstance(member := path[-1].members[0], _Network):
            path.append(member)
        return path
