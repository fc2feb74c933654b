"""Making room in a full table: things on probation, and the parties that hold them. PROTOCOL §7.10. Sans-IO.

A flood of new leases must neither push out those that stand nor lock out whoever comes later. So a new lease
is on probation. When room is needed, it is made among those on probation, and the party that holds the most
of them gives one up, if it then still holds no less than the party that asks. So all parties end with equal
parts, but for those that want less: max-min fairness, as when the longest queue drops first (McKenney,
Stochastic Fairness Queueing, 1990; RFC 8290 §4.1.2).

Parties are within each other: networks, smaller networks or IPs within these, and addresses. The rule holds
first among the widest, then among those within the party that asks. Hence whoever is in the network of a
squatter has a part of that network's part.

    all -+- 192.0.2.0/24 ---+- 192.0.2.1 -+- 192.0.2.1:5000
         |                  |             +- 192.0.2.1:5001
         |                  +- 192.0.2.7 --- 192.0.2.7:5000
         +- 198.51.100.0/24 --- ...
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from kcast.pubsub.networks import Path

Thing = TypeVar("Thing", bound=Hashable)


class _Party(Generic[Thing]):
    """What an address holds (`things`), or the parties within a wider one (`members`)."""

    __slots__ = ("held", "members", "most", "names_by_held", "things")

    def __init__(self) -> None:
        self.held = 0
        self.things: dict[Thing, None] = {}
        self.members: dict[Hashable, _Party[Thing]] = {}
        self.names_by_held: dict[int, dict[Hashable, None]] = {}
        self.most = 0  # that a member holds

    def grow(self, name: Hashable) -> "_Party[Thing]":
        """Counts one more thing for this member, and returns it."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = _Party()
        self._move(name, member.held, member.held + 1)
        member.held += 1
        self.most = max(self.most, member.held)
        return member

    def shrink(self, name: Hashable) -> "_Party[Thing]":
        """Counts one thing less for this member, and returns it."""
        member = self.members[name]
        self._move(name, member.held, member.held - 1)
        member.held -= 1
        if not member.held:
            del self.members[name]
        if self.most not in self.names_by_held:
            self.most -= 1  # to what the member holds now, or to 0
        return member

    def drop(self, name: Hashable) -> int:
        """Forgets a member, if there is such a one; returns what it held."""
        member = self.members.pop(name, None)
        if member is None:
            return 0
        self._move(name, member.held, 0)
        while self.most and self.most not in self.names_by_held:
            self.most -= 1
        return member.held

    def held_by(self, name: Hashable) -> int:
        """Returns what a member holds; 0 of one that is none."""
        member = self.members.get(name)
        return 0 if member is None else member.held

    def latest(self) -> Thing:
        """Returns what came last to the member that holds the most; of several, the last one to do so."""
        party = self
        while party.members:
            party = party.members[next(reversed(party.names_by_held[party.most]))]
        return next(reversed(party.things))

    def _move(self, name: Hashable, held: int, held_now: int) -> None:
        if held:
            names = self.names_by_held[held]
            del names[name]
            if not names:
                del self.names_by_held[held]
        if held_now:
            self.names_by_held.setdefault(held_now, {})[name] = None


class Probation(Generic[Thing]):
    """Things on probation, each held at the last party of a path."""

    def __init__(self) -> None:
        self._all: _Party[Thing] = _Party()

    def __len__(self) -> int:
        return self._all.held

    def enter(self, thing: Thing, path: Path) -> None:
        """Puts a thing on probation; one that is on it already stays."""
        if thing in self._things_at(path):
            return
        party = self._all
        party.held += 1
        for name in path:
            party = party.grow(name)
        party.things[thing] = None

    def leave(self, thing: Thing, path: Path) -> bool:
        """Ends the probation of a thing; returns whether it was on it."""
        things = self._things_at(path)
        if thing not in things:
            return False
        del things[thing]
        party = self._all
        party.held -= 1
        for name in path:
            party = party.shrink(name)
        return True

    def clear(self) -> None:
        """Ends the probation of all."""
        self._all = _Party()

    def forget(self, network: Hashable) -> None:
        """Ends the probation of all that is of a widest network."""
        self._all.held -= self._all.drop(network)

    def yielding_to(self, path: Path, *, of_its_network: bool = False) -> Thing | None:
        """Returns what is to make room for one thing more of the party at this path; None if nothing is.

        With `of_its_network` only what is in the widest network of the path may.
        """
        party: _Party[Thing] = self._all
        if of_its_network:
            if path[0] not in party.members:
                return None
            party, path = party.members[path[0]], path[1:]
        for name in path:
            if party.most > party.held_by(name) + 1:
                return party.latest()
            if name not in party.members:
                break
            party = party.members[name]
        return None

    def _things_at(self, path: Path) -> "dict[Thing, None]":
        party = self._all
        for name in path:
            if name not in party.members:
                return {}
            party = party.members[name]
        return party.things
