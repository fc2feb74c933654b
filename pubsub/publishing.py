"""Admits publishes: who may publish bare lines, and how much each may. PROTOCOL §4.2, §5.9, §7.2. Sans-IO."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import Generic, TypeVar

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.egress import Egress
from kcast.pubsub.endpoint import Address, Burst, Tap, datagram_count
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.networks import ByNetwork, Networks
from kcast.pubsub.queues import Sender
from kcast.pubsub.rates import Demand, PublishRates
from kcast.pubsub.router import PYTHON, Router
from kcast.pubsub.table import LeaseTable

LEASES_OF_IP = 32  # an IP may hold a 32nd of all publish leases, a network a multiple of that ...
LEASES_OF_IP_MIN = 64  # ... but this number always
EXPIRED_MAX = 250  # publish leases, forgotten in one go: less than a millisecond
MADE_ROOM_MAX = 8  # ... and before one is opened, so that those which have ended are in nobody's way

Key = TypeVar("Key", bound=Hashable)

_new = tuple.__new__  # makes a NamedTuple in half the time: without a Python call


class Publishing:
    """Hands to `egress` what may be published; counts in `counts` and `drops`, and tells `tap`.

    `leases` are the publish leases. Whoever knows of one can forge bare lines. That must not shut out the
    client that vouches, so `rates` tells the two kinds of lines apart.
    """

    def __init__(
        self,
        egress: Egress,
        table: LeaseTable,
        networks: Networks,
        limits: Limits,
        counts: Counter[str],
        drops: Counter[Drop],
        tap: Tap | None,
        router: Router = PYTHON,
    ) -> None:
        self.leases: ExpiringSet[Address] = ExpiringSet(table.ttl_s, limits.publishers)
        self.rates = PublishRates(limits, networks)
        self._leases_of: Counter[object] = Counter()
        self.sources = ByNetwork(networks)
        """The addresses that hold publish leases."""
        self._egress = egress
        self._table = table
        self._networks = networks
        self._limits = limits
        self._counts = counts
        self._drops = drops
        self._tap = tap
        self._survey = router.survey
        self._senders_of = lru_cache(8192)(self._make_senders)

    # --- Publish leases ------------------------------------------------------------------------------

    def open_lease(self, source: Address, now: float) -> bool:
        """Opens or renews a publish lease. Returns False if there are too many, or too much was published."""
        self.expire(now, MADE_ROOM_MAX)
        if self.rates.was_overdrawn(source, now):
            return False
        if source in self.leases:
            return self.leases.renew(source, now)
        shares = self._networks.shares_of(source)
        most = max(self._limits.publishers // LEASES_OF_IP, LEASES_OF_IP_MIN)
        if any(self._leases_of[share] >= most * factor for share, factor in shares):
            self._drops[Drop.PUBLISHERS] += 1
            return False
        if not self.leases.renew(source, now):
            self._drops[Drop.PUBLISHERS] += 1
            return False
        self._leases_of.update(share for share, _ in shares)
        self.sources.add(source)
        return True

    def expire(self, now: float, count_max: int = EXPIRED_MAX) -> None:
        """Forgets publish leases that have ended, a bounded number of them."""
        for source in self.leases.pop_expired(now, count_max):
            self.sources.remove(source)
            for share, _ in self._networks.shares_of(source):
                self._leases_of[share] -= 1
                if not self._leases_of[share]:
                    del self._leases_of[share]

    # --- Lines ---------------------------------------------------------------------------------------

    def take_vouched(self, lines: Sequence[bytes], source: Address, now: float) -> Demand | None:
        """Charges the source for publishes with a cookie; None if it may not publish this much now."""
        return self._take(source, self._demand_of(_joined(lines), True, now), now)

    def take_bare(self, lines: Sequence[bytes], source: Address, now: float) -> Demand | None:
        """Charges the source for bare lines; None if it may not publish this much now."""
        return self._take(source, self._demand_of(_joined(lines), False, now), now)

    def forward(
        self, lines: Sequence[bytes], demand: Demand, source: Address, now: float, *, is_stale: bool = False
    ) -> None:
        """Forwards what was taken of one datagram, lines without LF; an open server those that it may.

        The demand `is_stale` if the datagram itself may have subscribed to what it publishes.
        """
        if self._egress.marks_copies:
            lines = self._showable(lines)
        if lines:
            data = _joined(lines)
            if is_stale or len(lines) < demand.lines:
                demand = self._demand_of(data, demand.is_vouched, now)
            self._forward(data, len(data), demand, source, now)

    def take_burst(self, burst: Burst, now: float) -> bool:
        """Takes and forwards a burst that is nothing but publishes, from a source with a publish lease.

        Returns False for others. They are to be looked at datagram by datagram.
        """
        data, segment_bytes, source, _ = burst
        if not 0 < segment_bytes <= DATAGRAM_BYTES_MAX:
            return False
        surveyed = self._survey(data, segment_bytes, self._limits.lines_per_datagram, self._table.routes(now))
        if surveyed is None:
            return False
        demand = _new(Demand, (*surveyed, False))
        count = 1 if len(data) <= segment_bytes else datagram_count(len(data), segment_bytes)
        if count > 1 and self.rates.is_large(demand):
            return False  # one datagram may overdraw a rate, a burst may not
        if self._take(source, demand, now):
            self._forward(data, segment_bytes, demand, source, now)
        self._counts["datagrams_received"] += count
        return True

    def _forward(self, data: bytes, segment_bytes: int, demand: Demand, source: Address, now: float) -> None:
        self._counts["messages_received"] += demand.lines
        if self._tap is not None:
            for topic, lines in wire.by_topic(wire.split_lines(data)[0]).items():
                if wire.is_topic(topic):
                    self._tap.burst(now, source, topic, lines)
        if not demand.copies:
            for topic, lines in wire.by_topic(wire.split_lines(data)[0]).items():
                self._egress.drop_unwanted(topic, len(lines))
        elif demand.topic is not None:
            sender = self._sender_of(source, demand)
            self._egress.put_run(sender, data, segment_bytes, demand.topic, demand, now)
        else:
            self._egress.put(self._sender_of(source, demand), data, segment_bytes, demand, now)

    def _demand_of(self, data: bytes, is_vouched: bool, now: float) -> Demand:
        """Returns what the publishes of one datagram cause."""
        surveyed = self._survey(data, len(data), len(data), self._table.routes(now))
        assert surveyed is not None, "these are not only publishes"
        return Demand(*surveyed, is_vouched)

    def _showable(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Leaves out the lines that an open server cannot mark, or that could act on a terminal (§4.4)."""
        short = [line for line in lines if len(line) + len(b"\n\n") <= DATAGRAM_BYTES_MAX]
        clean = [line for line in short if not wire.has_control_byte(line)]
        if len(short) < len(lines):
            self._drops[Drop.OVERSIZE] += len(lines) - len(short)
        if len(clean) < len(short):
            self._drops[Drop.CONTROL_BYTE] += len(short) - len(clean)
        return clean

    def _take(self, source: Address, demand: Demand, now: float) -> Demand | None:
        if self._egress.is_full and not self._egress.has_room(self._sender_of(source, demand)):
            self._drops[Drop.BACKLOG] += demand.lines
            if not demand.is_vouched:
                self.rates.note_overdrawn(source, now)
            return None
        if self.rates.take(source, demand, now):
            return demand
        self._drops[Drop.PUBLISH_RATE] += demand.lines
        return None

    def _sender_of(self, source: Address, demand: Demand) -> Sender:
        """Returns as whose these lines wait. Where too much waits of bare lines, which somebody may have
        forged, those with a cookie wait apart."""
        usual, apart = self._senders_of(source)
        if not demand.is_vouched or not self._egress.is_full or self._egress.has_room(usual):
            return usual
        return apart

    def _make_senders(self, source: Address) -> tuple[Sender, Sender]:
        (name, _), *wider = self._networks.shares_of(source)
        networks = tuple(share for share, _ in reversed(wider))
        party = networks[0] if networks else name
        return Sender(name, party, networks), Sender((name, "vouched"), party, networks)


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


class ExpiringSet(Generic[Key]):
    """A set of at most `capacity` keys, each of which leaves `ttl_s` after its last renewal.

    Every key lives equally long from then on, so keys leave in the order of renewal: the oldest stands first,
    and no scan is needed.
    """

    def __init__(self, ttl_s: float, capacity: float = inf) -> None:
        self.ttl_s = ttl_s
        self.capacity = capacity
        self._expires_at: OrderedDict[Key, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._expires_at)

    def __contains__(self, key: Key) -> bool:
        return key in self._expires_at

    def renew(self, key: Key, now: float) -> bool:
        """Adds or renews the key. Returns False, and does nothing, if it is new and the set is full."""
        if key not in self._expires_at and len(self._expires_at) >= self.capacity:
            return False
        self._expires_at[key] = now + self.ttl_s
        self._expires_at.move_to_end(key)
        return True

    def has(self, key: Key, now: float) -> bool:
        """Whether the key is in the set, and has not expired."""
        return self._expires_at.get(key, now) > now

    def left_s(self, key: Key, now: float) -> float:
        """Returns the seconds until the key leaves; 0 if it is not in the set."""
        return max(0.0, self._expires_at.get(key, now) - now)

    def latest(self) -> Iterator[Key]:
        """Yields the keys, the one that was renewed last first."""
        return reversed(self._expires_at)

    def oldest(self) -> Key | None:
        """Returns the key that was renewed longest ago; None if the set is empty."""
        return next(iter(self._expires_at), None)

    def remove(self, key: Key) -> None:
        """Removes a key. Raises KeyError if it is not in the set."""
        del self._expires_at[key]

    def pop_expired(self, now: float, count_max: float = inf) -> list[Key]:
        """Removes and returns keys that have expired, the oldest first, `count_max` of them at most."""
        expired: list[Key] = []
        while self._expires_at and len(expired) < count_max:
            key, expires_at = next(iter(self._expires_at.items()))
            if expires_at > now:
                break
            del self._expires_at[key]
            expired.append(key)
        return expired

    def is_over(self, now: float) -> bool:
        """Whether all keys have expired."""
        last = next(reversed(self._expires_at.values()), None)
        return last is None or last <= now

    def next_expiry(self) -> float | None:
        """Returns when the first key leaves, on the clock of `now`; None if the set is empty."""
        return next(iter(self._expires_at.values()), None)
