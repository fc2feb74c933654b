"""A client's sessions by name and by address, the lookups of servers that are known by name, and when which
session has something to do. Sans-IO.

PROTOCOL §10.2. A named server is looked up when the client first deals with it, and again when it is lost or
has forgotten us, since another server may have its address now. As long as it is lost, or its name does not
resolve, it is looked up again, each time later. The address that it has stays in use until another is known:
a name server that is down takes nobody's servers away.

An address belongs to one session. Where a name leads to the address of another server, that one may have
moved, and is looked up if it has a name. Once its own name leads elsewhere, the address goes to this one.
"""

import heapq
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.session.allowance import Spending
from kcast.client.session.lease_requests import TTL_S_BELIEVED
from kcast.client.session.session import Session
from kcast.pubsub.endpoint import Address, format_address

LOOKUP_INTERVAL_S_MIN = 1.0
LOOKUP_INTERVAL_S_MAX = 30.0

Named = tuple[str, int]  # a host's name, and a port


@dataclass(slots=True)
class _Lookup:
    """When a named server is looked up next; never while that is under way."""

    due_at: float
    is_under_way: bool = False
    asked_at: float = -inf
    found: tuple[Address, ...] = ()  # by the last lookup that has found any
    interval_s: float = LOOKUP_INTERVAL_S_MIN

    def hasten(self, now: float) -> None:
        """Makes it due as soon as the smallest interval allows."""
        if not self.is_under_way:
            self.interval_s = LOOKUP_INTERVAL_S_MIN
            self.due_at = min(self.due_at, max(now, self.asked_at + LOOKUP_INTERVAL_S_MIN))


class Sessions:
    """The sessions of a client. `at` has them by each address at which their servers may be asked;
    `spending` is what their stamps have cost."""

    def __init__(self, rng: Random, families: Collection[int], renewals_per_ttl: float) -> None:
        self.at: dict[Address, Session] = {}
        self.spending = Spending()
        self._rng = rng
        self._families = set(families)  # which each session refers to
        self._renewals_per_ttl = renewals_per_ttl
        self._by_name: dict[str, Session] = {}
        self._lookups: dict[Named, _Lookup] = {}
        self._lookup_at = inf  # no later than the first lookup that is due

    def __contains__(self, server: ServerEntry) -> bool:
        return server.name in self._by_name

    def add_families(self, families: Collection[int]) -> None:
        """Takes IP versions, of 4 and 6, in which servers can be asked, too, from their next addresses on."""
        self._families.update(families)

    def all(self) -> Collection[Session]:
        """Returns all of them."""
        return self._by_name.values()

    def asked_at(self) -> dict[str, tuple[str, ...]]:
        """Returns the addresses at which each server may be asked, as text, by its name."""
        return {name: tuple(map(format_address, each.addresses)) for name, each in self._by_name.items()}

    def leased_at(self) -> list[Address]:
        """Returns the addresses of the servers that leases are wanted at."""
        leasing = (session.address for session in self._by_name.values() if session.leases)
        return [address for address in leasing if address is not None]

    @property
    def ttl_s_max(self) -> float:
        """The longest ttl that any server has told, at most `TTL_S_BELIEVED`; 0 before that."""
        told_s = (session.ttl_s or 0.0 for session in self._by_name.values())
        return min(max(told_s, default=0.0), TTL_S_BELIEVED)

    def of(self, server: ServerEntry, now: float) -> Session:
        """Returns the session of a server; makes one where there is none."""
        session = self._by_name.get(server.name)
        if session is None:
            session = Session(server, self._rng, self._families, self._renewals_per_ttl, self.spending)
            self._by_name[server.name] = session
            if server.named is not None:
                self._lookups[server.named] = _Lookup(now)
                self._lookup_at = min(self._lookup_at, now)
            self._take_addresses(session, now)
        return session

    def adopt(self, by_name: Mapping[str, ServerEntry], now: float) -> list[Session]:
        """Takes what a changed cluster says of servers that have a session; returns those that it changes."""
        changed = []
        for name, session in self._by_name.items():
            server = by_name.get(name)
            # One that cannot be asked may be by now, in a family that was added.
            if server is not None and (session.server != server or not session.addresses):
                session.server = server
                self._take_addresses(session, now)
                changed.append(session)
        return changed

    def keep(self, names: Collection[Container[str]], now: float) -> list[Session]:
        """Ends the sessions of servers whose names are in none of these, and returns them."""
        ended = [
            session for name, session in self._by_name.items() if not any(name in each for each in names)
        ]
        for session in ended:
            del self._by_name[session.server.name]
            if session.server.named is not None:
                del self._lookups[session.server.named]
            self._place(session, (), now)
            session.notices.clear()  # that it is lost is no news
        return ended

    # --- Lookups -------------------------------------------------------------------------------------

    def doubt(self, session: Session, now: float) -> None:
        """Makes a lookup of a named server due soon: it may have another address by now."""
        if session.server.named is not None:
            lookup = self._lookups[session.server.named]
            lookup.hasten(now)
            self._lookup_at = min(self._lookup_at, lookup.due_at)

    def next_timeout(self) -> float | None:
        """Returns when the next lookup is due (perhaps too early, never too late); None where none is."""
        return self._lookup_at if self._lookup_at < inf else None

    def take_lookups(self, now: float) -> list[Named]:
        """Returns the names to look up now. Each awaits `located` then."""
        if now < self._lookup_at:
            return []
        due = [(named, lookup) for named, lookup in self._lookups.items() if lookup.due_at <= now]
        for _, lookup in due:
            lookup.due_at, lookup.asked_at, lookup.is_under_way = inf, now, True
        self._lookup_at = min((lookup.due_at for lookup in self._lookups.values()), default=inf)
        return [named for named, _ in due]

    def located(self, named: Named, addresses: Collection[Address], now: float) -> Session | None:
        """Takes the addresses that were found, if any; returns the session whose server it is, if there is
        one."""
        lookup = self._lookups.get(named)
        session = self._by_name.get(format_address(named))
        if lookup is None or session is None:
            return None
        lookup.is_under_way = False
        lookup.found = tuple(addresses) or lookup.found
        losers = {}
        free = []
        for address in addresses:
            owner = self.at.get(address, session)
            if owner is not session and self._has_moved(owner, address):
                losers[owner] = True
            elif owner is not session:
                self.doubt(owner, now)
                continue
            free.append(address)
        if free or not session.addresses:
            self._place(session, free, now)
        for loser in losers:
            self._place(loser, [at for at in self._found(loser) if self.at.get(at, loser) is loser], now)
        if session.is_lost:
            lookup.due_at = now + lookup.interval_s
            self._lookup_at = min(self._lookup_at, lookup.due_at)
            lookup.interval_s = min(2 * lookup.interval_s, LOOKUP_INTERVAL_S_MAX)
        return session

    def _found(self, session: Session) -> tuple[Address, ...]:
        return self._lookups[session.server.named].found if session.server.named else session.addresses

    def _has_moved(self, session: Session, address: Address) -> bool:
        """Whether its name, looked up since, leads elsewhere."""
        return address not in self._found(session)

    # --- Addresses -----------------------------------------------------------------------------------

    def _take_addresses(self, session: Session, now: float) -> None:
        """Gives a session the addresses that the file says, which no other keeps."""
        if session.server.named is not None:
            return
        addresses = session.server.addresses
        for address in addresses:
            other = self.at.get(address, session)
            if other is not session:
                self._place(other, [at for at in other.addresses if at not in addresses], now)
        self._place(session, addresses, now)

    def _place(self, session: Session, addresses: Collection[Address], now: float) -> None:
        """Lets a server be asked at these addresses, and at no others."""
        for address in session.addresses:
            if self.at.get(address) is session:
                del self.at[address]
        session.locate(addresses, now)
        self.at |= dict.fromkeys(session.addresses, session)


class Wakeups:
    """A heap of times, one for each session. A session may be woken too early, and never is too late.

    `next_at` is when the first one is due; infinite where none is.
    """

    def __init__(self) -> None:
        self.next_at = inf
        self._heap: list[tuple[float, int, Session]] = []
        self._at: dict[Session, float] = {}
        self._count = 0  # so that sessions need no order

    def put(self, session: Session, at: float) -> None:
        """Wakes a session at this time, unless it is woken before."""
        if at < self._at.get(session, inf):
            self._at[session] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, session))
            self.next_at = self._heap[0][0]

    def take_due(self, now: float) -> Iterator[Session]:
        """Yields the sessions whose time has come."""
        while self.next_at <= now:
            at, _, session = heapq.heappop(self._heap)
            self.next_at = self._heap[0][0] if self._heap else inf
            if self._at.get(session) == at:
                del self._at[session]
                yield session
