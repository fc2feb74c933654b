"""The tables of leases: who has subscribed to which topic, and until when. PROTOCOL §7.1, §7.5, §7.10.

Every lease lives at most `ttl_s` from its last renewal, so leases expire in the order of renewal, and no scan
is needed. They stand in two segments: a new lease is on *probation*, and becomes *established* by a renewal
that comes half a renewal interval after it was opened, or later. A flood cannot push out established leases.
They fill at most three quarters of a table, and of what a network may have, so that there is always room that
newcomers can get: what is on probation is divided evenly among those who want it (`kcast.pubsub.probation`).
The same holds for topics: one is established with its first established lease. So is one that has many
leases, if there is room: to end them takes long.

A lease has one `Entry`, whatever it is found by:

    topic -----> Entry, or Audience: address -> Entry      to renew it, and to send copies segment ---> Entry
    <-> Entry <-> Entry                 in the order of renewal (`kcast.pubsub.linked_list`) address, network
    --> Entry, or how many they hold      limits and shares (`kcast.pubsub.holders`)

What a datagram brings, its topics, address and time, is kept once, however many leases have it. So a lease
takes some 180 bytes, and 530 if it has topic, address and network to itself (bench/memory.py).

This is the `ttl` table, which always promises `ttl_s`. `kcast.pubsub.fifo_table` has the other one.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import islice
from math import inf
from typing import NamedTuple

from kcast.pubsub.audience import LARGE, Audience, Entry, Excess
from kcast.pubsub.endpoint import Address
from kcast.pubsub.holders import Holders, Holdings
from kcast.pubsub.limits import (
    RENEWAL_INTERVAL_S_MAX,
    RENEWALS_PER_TTL,
    Limits,
)
from kcast.pubsub.linked_list import LinkedList
from kcast.pubsub.networks import Network, Networks, Path
from kcast.pubsub.probation import Probation
from kcast.pubsub.router import Many, Route, Routes

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
            self[self._table._topics[topic].topic] = route  # not one more object for each topic
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

    make_entry: type[Entry] = Entry

    def __init__(self, ttl_s: float, limits: Limits, networks: Networks | None = None) -> None:
        self.ttl_s = ttl_s
        self.limits = limits
        self.is_nearly_full = False
        """Whether there is so little room that leases have a price."""
        self.evicted: list[Lease] = []
        """Leases that were pushed out. Whoever reports them empties the list."""
        self._networks = networks or Networks()
        self.holders = Holders(self._networks, limits.leases)
        self._probation_s = min(ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX) / 2
        self._new: LinkedList[Entry] = LinkedList()
        self._established: LinkedList[Entry] = LinkedList()
        self._topics: dict[bytes, Entry | Audience] = {}
        self._routes = _Routes(self)
        self._established_topics = 0
        self._nearly_full_networks: set[Network] = set()
        # While there is little room: what was opened or renewed since, and is on probation.
        self._leases_on_probation: Probation[Entry] = Probation(self._path_of_lease)
        self._topics_on_probation: Probation[bytes] = Probation(self._path_of_topic)

    def __len__(self) -> int:
        return self._new.count + self._established.count

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
        holdings = self._holdings_of(address)
        return 0.0 if holdings is None else holdings.leases / self.limits.leases_per_prefix

    def promise_s(self, now: float) -> float:
        """Returns the seconds that a lease granted now is sure to live."""
        return self.ttl_s

    def is_over(self, now: float) -> bool:
        """Whether all leases have ended; some may not be forgotten yet."""
        newest = (self._new.newest, self._established.newest)
        return all(entry is None or entry.renewed_at + self.ttl_s <= now for entry in newest)

    def is_live(self, topic: bytes, address: Address, now: float) -> bool:
        """Whether this lease is live."""
        entry = self._find(topic, address)
        return entry is not None and entry.renewed_at + self.ttl_s > now

    def beyond_free(self, address: Address) -> Collection[bytes]:
        """Returns the topics of this address's leases but the first few that it was granted, of those it
        holds: the renewal of these never has a price (§7.9)."""
        return self.holders.beyond_free(address)

    def _find(self, topic: bytes, address: Address) -> Entry | None:
        audience = self._topics.get(topic)
        return None if audience is None else audience.find(address)

    # --- Renewing and opening ------------------------------------------------------------------------

    def renew(self, topic: bytes, address: Address, now: float) -> None:
        """Renews a live lease."""
        audience = self._topics[topic]
        entry = audience.find(address)
        assert entry is not None
        entry.renewed_at = now
        if entry.opened_at is None:
            self._established.put_again(entry)
        elif self._may_establish(entry, entry.opened_at, audience, now):
            self._establish(entry, audience)
        else:
            self._new.put_again(entry)
            if self._is_watched(entry.address):
                self._put_on_probation(entry, audience)

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Opens a new lease, or returns the limit that forbids it. Call `expire` before."""
        limit = self._without_room(topic, address, now)
        if limit is not None:
            return limit
        audience = self._topics.get(topic)
        if audience is None:
            entry = self.make_entry(topic, address, now)
        else:
            entry = self.make_entry(audience.topic, address, now, has_joined=True)
        self._new.put(entry)
        self._routes.pop(topic, None)
        self._routes.until = min(self._routes.until, now + self.ttl_s)
        self.holders.add(entry)
        if audience is None:
            audience = self._topics[topic] = entry
        else:
            audience = self._join(entry, audience)
        network = self.holders.network_of(address)
        if network is not None and self._load_of(network) >= NEARLY_FULL:
            self._nearly_full_networks.add(network)
        if not self.is_nearly_full:
            self.is_nearly_full = self.load >= NEARLY_FULL
        if self._is_watched(address):
            self._put_on_probation(entry, audience)
        return None

    def _join(self, entry: Entry, audience: Entry | Audience) -> Audience:
        """Adds a lease to the audience of its topic; returns what that is now."""
        if isinstance(audience, Entry):
            self.holders.shares_topic(audience)
            audience = self._topics[entry.topic] = Audience(audience)
        audience.add(entry, self._networks)
        has_many = audience.count > EVICTED_WITH_TOPIC_MAX
        if has_many and not audience.is_established and self._may_establish_topic(audience):
            self._establish_topic(audience)
        return audience

    def _may_establish(self, entry: Entry, opened_at: float, audience: Entry | Audience, now: float) -> bool:
        if now - opened_at < self._probation_s:
            return False
        if self._established.count + 1 > ESTABLISHED_MAX * self.limits.leases:
            return False
        holdings = self._holdings_of(entry.address)
        if holdings and holdings.established + 1 > ESTABLISHED_MAX * self.limits.leases_per_prefix:
            return False
        return audience.is_established or self._may_establish_topic(audience)

    def _may_establish_topic(self, audience: Entry | Audience) -> bool:
        if self._established_topics + 1 > ESTABLISHED_MAX * self.limits.topics:
            return False
        holdings = self._holdings_of(audience.opener)
        return not holdings or (
            holdings.established_topics + 1 <= ESTABLISHED_MAX * self.limits.topics_per_prefix
        )

    def _establish(self, entry: Entry, audience: Entry | Audience) -> None:
        self._leases_on_probation.leave(entry)
        if not audience.is_established:
            self._establish_topic(audience)
        self._new.remove(entry)
        entry.opened_at = None
        self._established.put(entry)
        self.holders.count_established(entry)

    def _establish_topic(self, audience: Entry | Audience) -> None:
        self._topics_on_probation.leave(audience.topic)
        if isinstance(audience, Audience):
            audience.is_established = True
        self._established_topics += 1
        self.holders.count_topic(audience.opener, 0, 1)

    # --- Making room ---------------------------------------------------------------------------------

    def _without_room(self, topic: bytes, address: Address, now: float) -> Limit | None:
        """Returns the limit that forbids a lease, if none of those on probation makes room for it."""
        limits = self.limits
        if self.holders.lease_count(address) >= limits.leases_per_address:
            return Limit.ADDRESS
        is_new_topic = topic not in self._topics
        holdings = self._holdings_of(address)
        if is_new_topic and holdings and holdings.topics >= limits.topics_per_prefix:
            if not self._evict_topic_for(address, now, of_its_network=True):
                return Limit.TOPICS
            holdings = self._holdings_of(address)
        has_leases = not holdings or holdings.leases < limits.leases_per_prefix
        if not has_leases and not self._evict_for(address, now, of_its_network=True):
            return Limit.PREFIX
        has_topics = len(self._topics) < limits.topics
        if is_new_topic and not has_topics and not self._evict_topic_for(address, now):
            return Limit.TOPICS
        return None if self._has_room(address, now) else Limit.FULL

    def _holdings_of(self, address: Address) -> Entry | Holdings | None:
        """Returns what the network of an address holds; None if nothing, or on loopback."""
        network = self.holders.network_of(address)
        return None if network is None else self.holders.holdings_of(network)

    def _is_watched(self, address: Address) -> bool:
        """Whether it is known what this address has on probation."""
        if self.is_nearly_full:
            return True
        if not self._nearly_full_networks:
            return False
        return self.holders.network_of(address) in self._nearly_full_networks

    def _load_of(self, network: Network) -> float:
        """The part of what a network may have that is taken, as `load`."""
        holdings = self.holders.holdings_of(network)
        if holdings is None:
            return 0.0
        limits = self.limits
        return max(holdings.leases / limits.leases_per_prefix, holdings.topics / limits.topics_per_prefix)

    def _put_on_probation(self, entry: Entry, audience: Entry | Audience) -> None:
        self._leases_on_probation.enter(entry)
        if not audience.is_established:
            self._topics_on_probation.enter(entry.topic)

    def _path_of_lease(self, entry: Entry) -> Path:
        return self._networks.path_of(entry.address)

    def _path_of_topic(self, topic: bytes) -> Path:
        return self._networks.path_of(self._topics[topic].opener)

    def _has_room(self, address: Address, now: float) -> bool:
        """Whether there is room for a lease of this address, perhaps since another has just made room."""
        return len(self) < self.limits.leases or self._evict_for(address, now)

    def _evict_for(self, address: Address, now: float, *, of_its_network: bool = False) -> bool:
        path = self._networks.path_of(address)
        entry = self._leases_on_probation.yielding_to(path, of_its_network=of_its_network)
        if entry is None:
            return False
        self._evict(entry, now)
        return True

    def _evict_topic_for(self, address: Address, now: float, *, of_its_network: bool = False) -> bool:
        path = self._networks.path_of(address)
        topic = self._topics_on_probation.yielding_to(path, of_its_network=of_its_network)
        if topic is None:
            return False
        # None of its leases is established, or the topic would be.
        audience = self._topics[topic]
        entries = [audience] if isinstance(audience, Entry) else audience.entries.values()
        for entry in list(islice(entries, EVICTED_WITH_TOPIC_MAX)):
            self._evict(entry, now)
        return topic not in self._topics

    def _evict(self, entry: Entry, now: float) -> None:
        self._forget(entry, now)
        self.evicted.append(Lease(entry.topic, entry.address))

    # --- Audiences -----------------------------------------------------------------------------------

    def audience_count(self, topic: bytes) -> int:
        """Returns the number of leases on a topic; it may include some that have just expired."""
        audience = self._topics.get(topic)
        return 0 if audience is None else audience.count

    def paid_count(self, topic: bytes) -> int:
        """Returns the number of leases on a topic that its publishers pay for (`kcast.pubsub.audience`)."""
        audience = self._topics.get(topic)
        return 0 if audience is None else audience.paid_count

    def subscribers(self, topic: bytes, now: float) -> Sequence[Address]:
        """Returns the addresses with a live lease on this topic, longest-standing first."""
        audience = self._topics.get(topic)
        return () if audience is None else audience.live(now, self.ttl_s)

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
        audience = self._topics.get(topic)
        if audience is None:
            return ()
        return audience.live(now, self.ttl_s) if audience.count <= LARGE else Many(audience.paid_count)

    def split_subscribers(self, topic: bytes, now: float) -> tuple[Sequence[Address], Sequence[Excess]]:
        """Returns the subscribers that publishers pay for, and the excess of each party."""
        live = self.subscribers(topic, now)
        excess = self._topics[topic].excess if live else None
        return (live, ()) if excess is None else excess.split(live)

    def live_count(self, topic: bytes, now: float) -> int:
        """Returns the number of live leases on a topic; if it is large, some that have just ended count."""
        count = self.audience_count(topic)
        return count if count > COUNTED_MAX else len(self.subscribers(topic, now))

    # --- Endings -------------------------------------------------------------------------------------

    def expire(self, now: float) -> list[Lease]:
        """Forgets leases that have expired, a bounded number of them, and returns these."""
        expired: list[Lease] = []
        for leases in (self._established, self._new):
            while len(expired) < EXPIRED_MAX:
                entry = leases.oldest
                if entry is None or entry.renewed_at + self.ttl_s > now:
                    break
                self._forget(entry, now)
                expired.append(Lease(entry.topic, entry.address))
        return expired

    def release(self, topic: bytes, address: Address, now: float) -> bool:
        """Forgets one lease, if it has expired and is not forgotten yet; returns whether it was so."""
        entry = self._find(topic, address)
        if entry is None or entry.renewed_at + self.ttl_s > now:
            return False
        self._forget(entry, now)
        return True

    def next_expiry(self) -> float | None:
        """Returns when the first lease expires, on the clock of `now`; None if there is none."""
        oldest = self._oldest()
        return None if oldest is None else oldest.renewed_at + self.ttl_s

    def _oldest(self) -> Entry | None:
        """Returns the lease that was renewed longest ago, of two at once the established one."""
        established, new = self._established.oldest, self._new.oldest
        if established is None or new is None:
            return new if established is None else established
        return new if new.renewed_at < established.renewed_at else established

    def _forget(self, entry: Entry, now: float) -> None:
        """Removes all that is kept about a lease."""
        topic, address, is_new = entry.topic, entry.address, entry.opened_at is not None
        (self._new if is_new else self._established).remove(entry)
        audience = self._topics[topic]
        self._routes.pop(topic, None)
        if isinstance(audience, Audience):
            audience.remove(entry, self.ttl_s)
        if is_new:
            self._leases_on_probation.leave(entry)
        if audience.opener == address:
            self._hand_over(topic, audience)
        self.holders.remove(entry, now)
        network = self.holders.network_of(address) if self._nearly_full_networks else None
        if network in self._nearly_full_networks and self._load_of(network) < ROOM_AGAIN:
            self._nearly_full_networks.discard(network)
            if not self.is_nearly_full:
                self._leases_on_probation.forget(network)
                self._topics_on_probation.forget(network)
        if self.is_nearly_full and self.load < ROOM_AGAIN:
            self.is_nearly_full = False
            self._leases_on_probation.clear()
            self._topics_on_probation.clear()

    def _hand_over(self, topic: bytes, audience: Entry | Audience) -> None:
        """Lets a topic, whose opener has gone, count as that of who subscribed to it last."""
        # Even if nobody watches its opener: one who is watched may have joined it.
        was_on_probation = self._topics_on_probation.leave(topic)
        self.holders.count_topic(audience.opener, -1, -audience.is_established)
        if isinstance(audience, Entry) or not audience.entries:
            # A topic without leases goes at once: else subscribing to many would fill the memory.
            del self._topics[topic]
            self._established_topics -= audience.is_established
            return
        # The one that came first would be slow to find after many have gone.
        audience.opener = next(reversed(audience.entries))
        self.holders.count_topic(audience.opener, 1, audience.is_established)
        if was_on_probation and self._is_watched(audience.opener):
            self._topics_on_probation.enter(topic)
