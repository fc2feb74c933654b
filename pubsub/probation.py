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

A party with a single thing stands as that thing, and nothing is kept about the parties within it. So where
most have one, as in a table full of addresses with a lease each, a thing takes two entries of dicts, and not
six dicts. Whatever is asked or changed looks at each party on a path once.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kcast.pubsub.networks import Path

Thing = TypeVar("Thing", bound=Hashable)


class _Party(Generic[Thing]):
    """What the members of a party hold: narrower parties, or at the end of a path things.

    It is two things at least, but for the party of all.
    """

    __slots__ = ("held", "members", "most", "names_by_held")

    def __init__(self) -> None:
        self.held = 0
        self.members: dict[Hashable, _Party[Thing] | Thing] = {}  # of one thing: that thing
        self.names_by_held: dict[int, dict[Hashable, None]] = {}
        self.most = 0  # that a member holds

    def recount(self, name: Hashable, held: int, held_now: int) -> None:
        """Takes note that a member, which held so much, now holds so much."""
        names_by_held = self.names_by_held
        if held:
            names = names_by_held[held]
            del names[name]
            if not names:
                del names_by_held[held]
        if held_now in names_by_held:
            names_by_held[held_now][name] = None
        elif held_now:
            names_by_held[held_now] = {name: None}
        if held_now > self.most:
            self.most = held_now
        while self.most and self.most not in names_by_held:
            self.most -= 1  # one step, unless a member was dropped

    def held_by(self, name: Hashable) -> int:
        """Returns what a member holds; 0 of one that is none."""
        member = self.members.get(name)
        if member is None:
            return 0
        return member.held if isinstance(member, _Party) else 1

    def latest(self) -> Thing:
        """Returns what came last to the member that holds the most; of several, the last one to do so."""
        member: _Party[Thing] | Thing = self
        while isinstance(member, _Party):
            member = member.members[next(reversed(member.names_by_held[member.most]))]
        return member

    def other_than(self, thing: Thing) -> Thing:
        """Returns the other one of two things."""
        party = self
        while True:
            for member in party.members.values():
                if isinstance(member, _Party):
                    party = member  # it has both
                elif member != thing:
                    return member


class Probation(Generic[Thing]):
    """Things on probation, each held at the last party of its path, which `path_of` tells."""

    def __init__(self, path_of: Callable[[Thing], Path]) -> None:
        self._path_of = path_of
        self._all: _Party[Thing] = _Party()

    def __len__(self) -> int:
        return self._all.held

    def __contains__(self, thing: Thing) -> bool:
        member: _Party[Thing] | Thing | None = self._all
        for name in self._path_of(thing):
            if not isinstance(member, _Party):
                break
            member = member.members.get(name)
        return thing in member.members if isinstance(member, _Party) else member == thing

    def enter(self, thing: Thing) -> None:
        """Puts a thing on probation; one that is on it already stays."""
        if thing in self:
            return
        party = self._all
        for depth, name in enumerate(self._path_of(thing), 1):
            party.held += 1
            member = party.members.get(name)
            if member is None:
                party.members[name] = thing
                party.recount(name, 0, 1)
                return
            if not isinstance(member, _Party):
                member = party.members[name] = self._party_of(member, depth)
            party.recount(name, member.held, member.held + 1)
            party = member
        party.held += 1
        party.members[thing] = thing
        party.recount(thing, 0, 1)

    def leave(self, thing: Thing) -> bool:
        """Ends the probation of a thing; returns whether it was on it."""
        if not self._all.held or thing not in self:
            return False
        party = self._all
        for name in self._path_of(thing):
            party.held -= 1
            member = party.members[name]
            if not isinstance(member, _Party):
                del party.members[name]
                party.recount(name, 1, 0)
                return True
            party.recount(name, member.held, member.held - 1)
            if member.held == 2:
                party.members[name] = member.other_than(thing)
                return True
            party = member
        party.held -= 1
        del party.members[thing]
        party.recount(thing, 1, 0)
        return True

    def clear(self) -> None:
        """Ends the probation of all."""
        self._all = _Party()

    def forget(self, network: Hashable) -> None:
        """Ends the probation of all that is of a widest network."""
        held = self._all.held_by(network)
        if held:
            del self._all.members[network]
            self._all.recount(network, held, 0)
            self._all.held -= held

    def yielding_to(self, path: Path, *, of_its_network: bool = False) -> Thing | None:
        """Returns what is to make room for one thing more of the party at this path; None if nothing is.

        With `of_its_network` only what is in the widest network of the path may.
        """
        party: _Party[Thing] | Thing | None = self._all
        for depth, name in enumerate(path):
            if not isinstance(party, _Party):
                break  # whoever holds a single thing has none to spare
            if party.most > party.held_by(name) + 1 and (depth or not of_its_network):
                return party.latest()
            party = party.members.get(name)
        return None

    def _party_of(self, thing: Thing, depth: int) -> _Party[Thing]:
        """Returns a party with this thing in it, to which the first `depth` names of its path lead."""
        path = self._path_of(thing)
        name = path[depth] if depth < len(path) else thing
        party: _Party[Thing] = _Party()
        party.held = 1
        party.members[name] = thing
        party.recount(name, 0, 1)
        return party
