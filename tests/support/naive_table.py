"""The tables of leases in the plainest way: lists that are gone through again and again. PROTOCOL §7."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import inf

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import Limits
from kcast.pubsub.networks import Networks, Path
from kcast.pubsub.table import Lease, Limit

NETWORKS = Networks()


class NaiveProbation:
    """Things in the order in which they came, and when each party's count last changed."""

    def __init__(self) -> None:
        self.things: list[tuple[object, Path]] = []
        self._changed: dict[Path, int] = {}
        self._changes = 0

    def enter(self, thing: object, path: Path) -> None:
        if (thing, path) not in self.things:
            self.things.append((thing, path))
            self._touch(path)

    def leave(self, thing: object, path: Path) -> bool:
        if (thing, path) not in self.things:
            return False
        self.things.remove((thing, path))
        self._touch(path)
        return True

    def clear(self) -> None:
        self.things.clear()

    def forget(self, network: object) -> None:
        self.things = [(thing, path) for thing, path in self.things if path[0] != network]

    def yielding_to(self, path: Path, *, of_its_network: bool = False) -> object | None:
        """What the fattest loses, among the widest parties at which it holds two more than the asker."""
        for depth in range(int(of_its_network), len(path)):
            counts = self._counts(path[:depth])
            if max(counts.values(), default=0) > counts[path[: depth + 1]] + 1:
                return self._latest(path[:depth])
        return None

    def _touch(self, path: Path) -> None:
        self._changes += 1
        for depth in range(len(path)):
            self._changed[path[: depth + 1]] = self._changes

    def _counts(self, within: Path) -> Counter[Path]:
        depth = len(within)
        return Counter(path[: depth + 1] for _, path in self.things if path[:depth] == within)

    def _latest(self, within: Path) -> object:
        while not any(path == within for _, path in self.things):
            counts = self._counts(within)
            within = max(counts, key=lambda path: (counts[path], self._changed[path]))
        return [thing for thing, path in self.things if path == within][-1]


@dataclass
class Row:
    """A lease that stands."""

    lease: Lease
    renewed_at: float
    opened_at: float
    is_established: bool = False
    is_free: bool = True


class NaiveTable:
    """The `ttl` table: leases, renewed longest ago first."""

    def __init__(self, ttl_s: float, limits: Limits) -> None:
        self.ttl_s, self.limits = ttl_s, limits
        self.rows: list[Row] = []
        self.opened: list[Lease] = []  # in this order
        self.opener: dict[bytes, Address] = {}
        self.established_topics: set[bytes] = set()
        self.evicted: list[Lease] = []
        self.is_nearly_full = False
        self.nearly_full_networks: set[object] = set()
        self.leases_on_probation, self.topics_on_probation = NaiveProbation(), NaiveProbation()

    def row(self, lease: Lease) -> Row | None:
        return next((row for row in self.rows if row.lease == lease), None)

    def is_live(self, lease: Lease, now: float) -> bool:
        row = self.row(lease)
        return row is not None and row.renewed_at + self.ttl_s > now

    def live_by_topic(self, now: float) -> defaultdict[bytes, list[Address]]:
        """Returns who has a lease that is live."""
        live = defaultdict[bytes, list[Address]](list)
        for row in self.rows:
            if row.renewed_at + self.ttl_s > now:
                live[row.lease.topic].append(row.lease.address)
        return live

    @property
    def load(self) -> float:
        return max(len(self.rows) / self.limits.leases, len(self.opener) / self.limits.topics)

    def network_of(self, address: Address) -> object | None:
        path = NETWORKS.path_of(address)
        return path[0] if len(path) > 1 else None

    def leases_of(self, network: object) -> list[Row]:
        return [row for row in self.rows if self.network_of(row.lease.address) == network]

    def topics_of(self, network: object) -> set[bytes]:
        return {topic for topic, opener in self.opener.items() if self.network_of(opener) == network}

    def load_of(self, network: object) -> float:
        limits = self.limits
        leases, topics = len(self.leases_of(network)), len(self.topics_of(network))
        return max(leases / limits.leases_per_prefix, topics / limits.topics_per_prefix)

    def is_watched(self, address: Address) -> bool:
        return self.is_nearly_full or self.network_of(address) in self.nearly_full_networks

    def may_establish_topic(self, topic: bytes) -> bool:
        network = self.network_of(self.opener[topic])
        theirs = len(self.topics_of(network) & self.established_topics)
        return len(self.established_topics) + 1 <= 0.75 * self.limits.topics and (
            network is None or theirs + 1 <= 0.75 * self.limits.topics_per_prefix
        )

    def promise_s(self, now: float) -> float:
        return self.ttl_s

    def renew(self, lease: Lease, now: float) -> None:
        row = self.row(lease)
        assert row is not None
        self.rows.remove(row)
        self.rows.append(row)
        row.renewed_at = now
        if row.is_established:
            return
        established = sum(row.is_established for row in self.rows)
        is_old = now - row.opened_at >= min(self.ttl_s / 3, 25.0) / 2
        network = self.network_of(lease.address)
        theirs = sum(each.is_established for each in self.leases_of(network))
        if (
            is_old
            and established + 1 <= 0.75 * self.limits.leases
            and (network is None or theirs + 1 <= 0.75 * self.limits.leases_per_prefix)
            and (lease.topic in self.established_topics or self.may_establish_topic(lease.topic))
        ):
            row.is_established = True
            self.leases_on_probation.leave(lease, NETWORKS.path_of(lease.address))
            self.established_topics.add(lease.topic)
            self.topics_on_probation.leave(lease.topic, NETWORKS.path_of(self.opener[lease.topic]))
        elif self.is_watched(lease.address):
            self._put_on_probation(lease)

    def _put_on_probation(self, lease: Lease) -> None:
        self.leases_on_probation.enter(lease, NETWORKS.path_of(lease.address))
        if lease.topic not in self.established_topics:
            self.topics_on_probation.enter(lease.topic, NETWORKS.path_of(self.opener[lease.topic]))

    def open(self, lease: Lease, now: float) -> Limit | None:
        limits, path = self.limits, NETWORKS.path_of(lease.address)
        own = [row for row in self.rows if row.lease.address == lease.address]
        if len(own) >= limits.leases_per_address:
            return Limit.ADDRESS
        network, is_new = self.network_of(lease.address), lease.topic not in self.opener
        if network is not None:
            has_topics = len(self.topics_of(network)) < limits.topics_per_prefix
            if is_new and not has_topics and not self.evict_topic_for(path, of_its_network=True):
                return Limit.TOPICS
            if len(self.leases_of(network)) >= limits.leases_per_prefix:
                yielding = self.leases_on_probation.yielding_to(path, of_its_network=True)
                if yielding is None:
                    return Limit.PREFIX
                assert isinstance(yielding, Lease)
                self._evict(yielding)
        if is_new and len(self.opener) >= limits.topics and not self.evict_topic_for(path):
            return Limit.TOPICS
        if not self.has_room(lease.address, now):
            return Limit.FULL
        self.opener.setdefault(lease.topic, lease.address)
        own = [row for row in self.rows if row.lease.address == lease.address]
        self.rows.append(Row(lease, now, now, is_free=len(own) < 8))
        self.opened.append(lease)
        has_many = sum(its.topic == lease.topic for its in self.opened) > 16
        if has_many and lease.topic not in self.established_topics and self.may_establish_topic(lease.topic):
            self.established_topics.add(lease.topic)
            self.topics_on_probation.leave(lease.topic, NETWORKS.path_of(self.opener[lease.topic]))
        if network is not None and self.load_of(network) >= 0.75:
            self.nearly_full_networks.add(network)
        self.is_nearly_full |= self.load >= 0.75
        if self.is_watched(lease.address):
            self._put_on_probation(lease)
        return None

    def evict_topic_for(self, path: Path, *, of_its_network: bool = False) -> bool:
        topic = self.topics_on_probation.yielding_to(path, of_its_network=of_its_network)
        if topic is None:
            return False
        for other in [its for its in self.opened if its.topic == topic][:16]:
            self._evict(other)
        return topic not in self.opener

    def has_room(self, address: Address, now: float) -> bool:
        if len(self.rows) < self.limits.leases:
            return True
        lease = self.leases_on_probation.yielding_to(NETWORKS.path_of(address))
        if lease is None:
            return False
        assert isinstance(lease, Lease)
        self._evict(lease)
        return True

    def _evict(self, lease: Lease) -> None:
        self.evicted.append(lease)
        self.forget(lease)

    def forget(self, lease: Lease) -> None:
        row = self.row(lease)
        assert row is not None
        self.rows.remove(row)
        self.opened.remove(lease)
        self.leases_on_probation.leave(lease, NETWORKS.path_of(lease.address))
        opener, topic = self.opener[lease.topic], lease.topic
        heirs = [other.address for other in self.opened if other.topic == topic]
        if not heirs or opener == lease.address:
            was_on_it = self.topics_on_probation.leave(topic, NETWORKS.path_of(opener))
            if heirs:
                self.opener[topic] = heirs[-1]
                if was_on_it and self.is_watched(heirs[-1]):
                    self.topics_on_probation.enter(topic, NETWORKS.path_of(heirs[-1]))
            else:
                del self.opener[topic]
                self.established_topics.discard(topic)
        if row.is_free:
            others = [self.row(other) for other in self.opened if other.address == lease.address]
            next((other for other in others if other and not other.is_free), row).is_free = True
        network = self.network_of(lease.address)
        if network in self.nearly_full_networks and self.load_of(network) < 0.7:
            self.nearly_full_networks.remove(network)
            if not self.is_nearly_full:
                self.leases_on_probation.forget(network)
                self.topics_on_probation.forget(network)
        if self.is_nearly_full and self.load < 0.7:
            self.is_nearly_full = False
            self.leases_on_probation.clear()
            self.topics_on_probation.clear()

    def expire(self, now: float) -> list[Lease]:
        rows = [row for row in self.rows if row.renewed_at + self.ttl_s <= now]
        # Those that are established go first.
        gone = [row.lease for row in sorted(rows, key=lambda row: not row.is_established)]
        for lease in gone:
            self.forget(lease)
        return gone


class NaiveFifo(NaiveTable):
    """The `fifo` table: what each lease was promised, and an estimate of how long leases stay."""

    def __init__(self, ttl_s: float, limits: Limits) -> None:
        super().__init__(ttl_s, limits)
        self.promised_until: dict[Lease, float] = {}
        self.estimate_s, self.estimated_at = inf, 0.0

    def promise_s(self, now: float) -> float:
        half_s = (self.estimate_s + now - self.estimated_at) / 2
        return min(self.ttl_s, max(10.0, half_s))

    def renew(self, lease: Lease, now: float) -> None:
        super().renew(lease, now)
        self.promised_until[lease] = max(self.promised_until[lease], now + self.promise_s(now))

    def open(self, lease: Lease, now: float) -> Limit | None:
        limit = super().open(lease, now)
        if limit is None:
            self.promised_until[lease] = now + self.promise_s(now)
        return limit

    def has_room(self, address: Address, now: float) -> bool:
        if len(self.rows) < self.limits.leases:
            return True
        # Of several that were renewed at once, the established ones go first.
        row = min(self.rows, key=lambda row: (row.renewed_at, not row.is_established))
        oldest, at = row.lease, row.renewed_at
        if now - at > 1.5 * min((self.promised_until[oldest] - at) / 3, 25.0):  # it has missed a renewal
            self.estimate_s = min(self.estimate_s + now - self.estimated_at, now - at)
            self.estimated_at = now
        if self.promised_until[oldest] > now:
            return super().has_room(address, now)
        self._evict(oldest)
        return True

    def forget(self, lease: Lease) -> None:
        super().forget(lease)
        del self.promised_until[lease]
