"""The tables of leases: who has subscribed to which topic, and until when. PROTOCOL §7.1, §7.5, §7.10.

Every lease lives at most `ttl_s` from its last renewal, so leases expire in the order of renewal, and no scan
is needed. They stand in two segments: a new lease is on *probation*, and becomes *established* by a renewal
that comes half a renewal interval after it was opened, or later. A flood cannot push out established leases.
They fill at most three quarters of a table, and of what a network may have, so that there is always room that
newcomers can get: what is on probation is divided evenly among those who want it (`kcast.pubsub.probation`).
The same holds for topics: one is established with its first established lease. So is one that has many
leases, if there is room: to end them takes long.

This is the `ttl` table, which always promises `ttl_s`. `kcast.pubsub.fifo_table` has the other one.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from enum import StrEnum
from itertools import islice
from math import inf
from typing import NamedTuple, TypeVar

from kcast.pubsub.crowds import LARGE, Crowd, Crowds
from kcast.pubsub.endpoint import Address
from kcast.pubsub.expiring import ExpiringSet
from kcast.pubsub.limits import (
    LEASES_KEPT_FREE,
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
    Limits,
)
from kcast.pubsub.networks import Network, Networks
from kcast.pubsub.probation import Probation
from kcast.pubsub.router import Many, Route, Routes

Key = TypeVar("Key", bound=Hashable)

EXPIRED_MAX = 500  # in one go: about a millisecond
COUNTED_MAX = 128  # of an audience: larger ones are not searched for leases that have just ended
ESTABLISHED_MAX = 0.75  # of a table, and of what a network may have
NEARLY_FULL = 0.75  # from here on it is known who is on probation, and leases of a table have a price ...
ROOM_AGAIN = 0.7  # ... until there is so much room again
EVICTED_WITH_TOPIC_MAX = 16  # a datagram may ask for 63 new topics, and each may end so many leases


class Limit(StrEnum):
    """The limit that a new lease would exceed: the reason of a refusal (PROTOCOL §5.8)."""

    FULL = "full"
    ADDRESS = "address"
    PREFIX = "prefix"
    TOPICS = "topics"


class Lease(NamedTuple):
    """A lease: a topic in wire form, and the address that gets its copies."""

    topic: bytes
    address: Address


class _Audience:
    """The subscribers of one topic, and a cached tuple of the live ones."""

    __slots__ = ("crowds", "expires_at", "is_established", "live", "live_until", "opener")

    def __init__(self, opener: Address) -> None:
        self.expires_at: dict[Address, float] = {}
        self.live: tuple[Address, ...] = ()
        self.live_until = 0.0
        self.opener = opener  # the topic counts as this one's
        self.is_established = False
        self.crowds: Crowds | None = None  # of a large one


class _Routes(dict[bytes, Route]):
    """The routes that were asked for. A lease that comes or goes drops its topic's, and all hold `until` the
    first lease ends."""

    def __init__(self, table: "LeaseTable") -> None:
        self._table = table
        self.now = 0.0
        self.until = inf

    def __missing__(self, topic: bytes) -> Route:
        route = self._table._route_of(topic, self.now)
        if route:
            self[topic] = route
        return route


class _RoutesNow:
    """Routes while the table still has leases that have ended."""

    def __init__(self, table: "LeaseTable", now: float) -> None:
        self._table = table
        self._now = now

    def __getitem__(self, topic: bytes) -> Route:
        return self._table._route_of(topic, self._now)


class LeaseTable:
    """The `ttl` table: topic -> subscribers, each for `ttl_s` after its last renewal, within `limits`.

    `networks` tells which addresses belong together.
    """

    def __init__(self, ttl_s: float, limits: Limits, networks: Networks | None = None) -> None:
        self.ttl_s = ttl_s
        self.limits = limits
        self.is_nearly_full = False
        """Whether there is so little room that leases have a price."""
        self.evicted: list[Lease] = []
        """Leases that were pushed out. Whoever reports them empties the list."""
        self._networks = networks or Networks()
        self._probation_s = min(ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX) / 2
        self._new: ExpiringSet[Lease] = ExpiringSet(ttl_s)
        self._opened_at: dict[Lease, float] = {}  # of those in `_new`
        self._established: ExpiringSet[Lease] = ExpiringSet(ttl_s)
        self._topics: dict[bytes, _Audience] = {}
        self._routes = _Routes(self)
        self._established_topics = 0
        self._count_of_address: Counter[Address] = Counter()
        self._count_of_prefix: Counter[Network] = Counter()
        self._topics_of_prefix: Counter[Network] = Counter()
        self._established_of_prefix: Counter[Network] = Counter()
        self._established_topics_of_prefix: Counter[Network] = Counter()
        self._nearly_full_prefixes: set[Network] = set()
        self._beyond_free: dict[Address, dict[bytes, None]] = {}  # all but the first few of an address
        # While there is little room: what was opened or renewed since, and is on probation.
        self._leases_on_probation: Probation[Lease] = Probation()
        self._topics_on_probation: Probation[bytes] = Probation()

    def __len__(self) -> int:
        return len(self._new) + len(self._established)

    @property
    def topic_count(self) -> int:
        """Number of topics that have a lease."""
        return len(self._topics)

    @property
    def load(self) -> float:
        """The part of the table that is taken, by leases or by topics, whichever is more."""
        return max(len(self) / self.limits.leases, len(self._topics) / self.limits.topics)

    def share_of(self, address: Address) -> float:
        """Returns what part of the leases that a network may have this address's has; 0 without a network."""
        networks = self._networks.of(address[0])
        return self._count_of_prefix[networks[-1]] / self.limits.leases_per_prefix if networks else 0.0

    def promise_s(self, now: float) -> float:
        """Returns the seconds that a lease granted now is sure to live."""
        return self.ttl_s

    def is_over(self, now: float) -> bool:
        """Whether all leases have ended; some may not be forgotten yet."""
        return all(leases.is_over(now) for leases in (self._new, self._established))

    def is_live(self, topic: bytes, address: Address, now: float) -> bool:
        """Whether this lease is live."""
        audience = self._topics.get(topic)
        return audience is not None and audience.expires_at.get(address, now) > now

    def holds_more_than_free(self, address: Address) -> bool:
        """Whether this address holds leases beyond the few whose renewal never has a price (§7.9)."""
        return address in self._beyond_free

    def is_beyond_free(self, topic: bytes, address: Address) -> bool:
        """Whether this lease is not among the first few that its address was granted, of those it holds."""
        return topic in self._beyond_free.get(address, ())

    # --- Renewing and opening ------------------------------------------------------------------------

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a live lease."""
        lease, audience = Lease(topic, address), self._topics[topic]
        audience.expires_at[address] = now + self.ttl_s
        if lease in self._established:
            self._established.renew(lease, now)
        elif self._may_establish(lease, audience, now):
            self._establish(lease, audience, now)
        else:
            self._new.renew(lease, now)
            if self._is_watched(address):
                self._put_on_probation(lease, audience)

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a new lease, or returns the limit that forbids it. Call `expire` before."""
        limit = self._without_room(topic, address, now)
        if limit is not None:
            return limit
        lease, audience = Lease(topic, address), self._topics.get(topic)
        if audience is None:
            audience = self._topics[topic] = _Audience(address)
            self._count_topic(audience, 1)
        self._new.renew(lease, now)
        self._opened_at[lease] = now
        audience.expires_at[address] = now + self.ttl_s
        audience.live_until = 0.0
        self._routes.pop(topic, None)
        self._routes.until = min(self._routes.until, now + self.ttl_s)
        if audience.crowds is not None:
            audience.crowds.add(address)
        elif len(audience.expires_at) > LARGE:
            audience.crowds = Crowds(self._networks, audience.expires_at)
        has_many = len(audience.expires_at) > EVICTED_WITH_TOPIC_MAX
        if has_many and not audience.is_established and self._may_establish_topic(audience):
            self._establish_topic(topic, audience)
        if self._count_of_address[address] >= LEASES_KEPT_FREE:
            self._beyond_free.setdefault(address, {})[topic] = None
        self._count_of_address[address] += 1
        for network in self._widest_network_of(address):
            self._count_of_prefix[network] += 1
            if self._load_of(network) >= NEARLY_FULL:
                self._nearly_full_prefixes.add(network)
        self.is_nearly_full = self.is_nearly_full or self.load >= NEARLY_FULL
        if self._is_watched(address):
            self._put_on_probation(lease, audience)
        return None

    def _may_establish(self, lease: Lease, audience: _Audience, now: float) -> bool:
        limits = self.limits
        return (
            now - self._opened_at[lease] >= self._probation_s
            and len(self._established) + 1 <= ESTABLISHED_MAX * limits.leases
            and all(
                self._established_of_prefix[network] + 1 <= ESTABLISHED_MAX * limits.leases_per_prefix
                for network in self._widest_network_of(lease.address)
            )
            and (audience.is_established or self._may_establish_topic(audience))
        )

    def _may_establish_topic(self, audience: _Audience) -> bool:
        limits = self.limits
        return self._established_topics + 1 <= ESTABLISHED_MAX * limits.topics and all(
            self._established_topics_of_prefix[network] + 1 <= ESTABLISHED_MAX * limits.topics_per_prefix
            for network in self._widest_network_of(audience.opener)
        )

    def _establish(self, lease: Lease, audience: _Audience, now: float) -> None:
        self._new.remove(lease)
        del self._opened_at[lease]
        self._established.renew(lease, now)
        for network in self._widest_network_of(lease.address):
            self._established_of_prefix[network] += 1
        if self._is_watched(lease.address):
            self._leases_on_probation.leave(lease, self._networks.path_of(lease.address))
        if not audience.is_established:
            self._establish_topic(lease.topic, audience)

    def _establish_topic(self, topic: bytes, audience: _Audience) -> None:
        audience.is_established = True
        self._established_topics += 1
        for network in self._widest_network_of(audience.opener):
            self._established_topics_of_prefix[network] += 1
        if self._is_watched(audience.opener):
            self._topics_on_probation.leave(topic, self._networks.path_of(audience.opener))

    # --- Making room ---------------------------------------------------------------------------------

    def _without_room(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Returns the limit that forbids a lease, if none of those on probation makes room for it."""
        limits = self.limits
        if self._count_of_address[address] >= limits.leases_per_address:
            return Limit.ADDRESS
        is_new_topic = topic not in self._topics
        for network in self._widest_network_of(address):
            has_topics = self._topics_of_prefix[network] < limits.topics_per_prefix
            if is_new_topic and not has_topics and not self._evict_topic_for(address, of_its_network=True):
                return Limit.TOPICS
            has_leases = self._count_of_prefix[network] < limits.leases_per_prefix
            if not has_leases and not self._evict_for(address, of_its_network=True):
                return Limit.PREFIX
        has_topics = len(self._topics) < limits.topics
        if is_new_topic and not has_topics and not self._evict_topic_for(address):
            return Limit.TOPICS
        return None if self._has_room(address, now) else Limit.FULL

    def _is_watched(self, address: Address) -> bool:
        """Whether it is known what this address has on probation."""
        if self.is_nearly_full:
            return True
        if not self._nearly_full_prefixes:
            return False
        return any(network in self._nearly_full_prefixes for network in self._widest_network_of(address))

    def _load_of(self, network: Network) -> float:
        """The part of what a network may have that is taken, as `load`."""
        leases, topics = self._count_of_prefix[network], self._topics_of_prefix[network]
        return max(leases / self.limits.leases_per_prefix, topics / self.limits.topics_per_prefix)

    def _put_on_probation(self, lease: Lease, audience: _Audience) -> None:
        self._leases_on_probation.enter(lease, self._networks.path_of(lease.address))
        if not audience.is_established:
            self._topics_on_probation.enter(lease.topic, self._networks.path_of(audience.opener))

    def _has_room(self, address: Address, now: float) -> bool:
        """Whether there is room for a lease of this address, perhaps since another has just made room."""
        return len(self) < self.limits.leases or self._evict_for(address)

    def _evict_for(self, address: Address, *, of_its_network: bool = False) -> bool:
        path = self._networks.path_of(address)
        lease = self._leases_on_probation.yielding_to(path, of_its_network=of_its_network)
        if lease is None:
            return False
        self._evict(lease)
        return True

    def _evict_topic_for(self, address: Address, *, of_its_network: bool = False) -> bool:
        path = self._networks.path_of(address)
        topic = self._topics_on_probation.yielding_to(path, of_its_network=of_its_network)
        if topic is None:
            return False
        # None of its leases is established, or the topic would be.
        for subscriber in list(islice(self._topics[topic].expires_at, EVICTED_WITH_TOPIC_MAX)):
            self._evict(Lease(topic, subscriber))
        return topic not in self._topics

    def _evict(self, lease: Lease) -> None:
        (self._established if lease in self._established else self._new).remove(lease)
        self._forget(lease)
        self.evicted.append(lease)

    # --- Audiences -----------------------------------------------------------------------------------

    def audience_count(self, topic: bytes) -> int:
        """Returns the number of leases on a topic; it may include some that have just expired."""
        audience = self._topics.get(topic)
        return 0 if audience is None else len(audience.expires_at)

    def paid_count(self, topic: bytes) -> int:
        """Returns the number of leases on a topic that its publishers pay for (`kcast.pubsub.crowds`)."""
        audience = self._topics.get(topic)
        if audience is None:
            return 0
        return len(audience.expires_at) - (0 if audience.crowds is None else len(audience.crowds))

    def subscribers(self, topic: bytes, now: float) -> Sequence[Address]:
        """Returns the addresses with a live lease on this topic, longest-standing first."""
        audience = self._topics.get(topic)
        if audience is None:
            return ()
        if now >= audience.live_until:
            # Renewals only move expiries back, so the tuple is right until the earliest expiry seen here.
            ends = audience.expires_at
            audience.live_until = min(ends.values())
            if audience.live_until > now:
                audience.live = tuple(ends)
            else:
                audience.live = tuple([address for address, at in ends.items() if at > now])
                audience.live_until = min([at for at in ends.values() if at > now], default=now)
        return audience.live

    def routes(self, now: float) -> Routes:
        """Returns the routes of all topics; they hold at this time alone."""
        routes = self._routes
        routes.now = now
        if now >= routes.until:
            first_end = self.next_expiry()
            routes.until = inf if first_end is None else first_end
            if now >= routes.until:
                return _RoutesNow(self, now)
        return routes

    def _route_of(self, topic: bytes, now: float) -> Route:
        count = self.audience_count(topic)
        return tuple(self.subscribers(topic, now)) if count <= LARGE else Many(self.paid_count(topic))

    def split_subscribers(self, topic: bytes, now: float) -> tuple[Sequence[Address], Sequence[Crowd]]:
        """Returns the subscribers that publishers pay for, and those in crowds."""
        live = self.subscribers(topic, now)
        crowds = self._topics[topic].crowds if live else None
        return (live, ()) if crowds is None else crowds.split(live)

    def live_count(self, topic: bytes, now: float) -> int:
        """Returns the number of live leases on a topic; if it is large, some that have just ended count."""
        count = self.audience_count(topic)
        return count if count > COUNTED_MAX else len(self.subscribers(topic, now))

    # --- Endings -------------------------------------------------------------------------------------

    def expire(self, now: float) -> list[Lease]:
        """Forgets leases that have expired, a bounded number of them, and returns these."""
        expired = self._established.pop_expired(now, EXPIRED_MAX)
        expired += self._new.pop_expired(now, EXPIRED_MAX - len(expired))
        for lease in expired:
            self._forget(lease)
        return expired

    def release(self, topic: bytes, address: Address, now: float) -> bool:
        """Forgets one lease, if it has expired and is not forgotten yet; returns whether it was so."""
        lease = Lease(topic, address)
        for leases in (self._new, self._established):
            if lease in leases and not leases.left_s(lease, now):
                leases.remove(lease)
                self._forget(lease)
                return True
        return False

    def next_expiry(self) -> float | None:
        """Returns when the first lease expires, on the clock of `now`; None if there is none."""
        new_at, established_at = self._new.next_expiry(), self._established.next_expiry()
        if new_at is None or established_at is None:
            return established_at if new_at is None else new_at
        return min(new_at, established_at)

    def _forget(self, lease: Lease) -> None:
        """Removes all that is kept about a lease, but for its place in the order of renewals."""
        topic, address = lease
        audience = self._topics[topic]
        del audience.expires_at[address]
        audience.live_until = 0.0
        self._routes.pop(topic, None)
        if audience.crowds is not None:
            audience.crowds.remove(address)
            if len(audience.expires_at) <= LARGE // 2:
                audience.crowds = None
        is_new = self._opened_at.pop(lease, None) is not None
        if is_new and self._is_watched(address):
            self._leases_on_probation.leave(lease, self._networks.path_of(address))
        if not audience.expires_at or audience.opener == address:
            self._hand_over(topic, audience)
        _count_down(self._count_of_address, address)
        for network in self._widest_network_of(address):
            _count_down(self._count_of_prefix, network)
            if not is_new:
                _count_down(self._established_of_prefix, network)
            if network in self._nearly_full_prefixes and self._load_of(network) < ROOM_AGAIN:
                self._nearly_full_prefixes.discard(network)
                if not self.is_nearly_full:
                    self._leases_on_probation.forget(network)
                    self._topics_on_probation.forget(network)
        self._forget_beyond_free(topic, address)
        if self.is_nearly_full and self.load < ROOM_AGAIN:
            self.is_nearly_full = False
            self._leases_on_probation.clear()
            self._topics_on_probation.clear()

    def _hand_over(self, topic: bytes, audience: _Audience) -> None:
        """Lets a topic, whose opener has gone, count as that of who subscribed to it last."""
        was_on_probation = self._is_watched(audience.opener) and self._topics_on_probation.leave(
            topic, self._networks.path_of(audience.opener)
        )
        self._count_topic(audience, -1)
        if not audience.expires_at:
            # A topic without leases goes at once: else subscribing to many would fill the memory.
            del self._topics[topic]
            self._established_topics -= audience.is_established
            return
        # The one that came first would be slow to find after many have gone.
        audience.opener = next(reversed(audience.expires_at))
        self._count_topic(audience, 1)
        if was_on_probation and self._is_watched(audience.opener):
            self._topics_on_probation.enter(topic, self._networks.path_of(audience.opener))

    def _count_topic(self, audience: _Audience, change: int) -> None:
        for network in self._widest_network_of(audience.opener):
            for counts in (self._topics_of_prefix, self._established_topics_of_prefix):
                if counts is self._topics_of_prefix or audience.is_established:
                    counts[network] += change
                    if not counts[network]:
                        del counts[network]

    def _forget_beyond_free(self, topic: bytes, address: Address) -> None:
        beyond = self._beyond_free.get(address)
        if beyond is None:
            return
        # Where one of the first few has gone, the next one takes its place.
        del beyond[topic if topic in beyond else next(iter(beyond))]
        if not beyond:
            del self._beyond_free[address]

    def _widest_network_of(self, address: Address) -> tuple[Network, ...]:
        return self._networks.of(address[0])[-1:]


def _count_down(counts: Counter[Key], key: Key) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
