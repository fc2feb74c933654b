"""Admits publishes: who may publish bare lines, and how much each may. PROTOCOL §4.2, §5.9, §7.2. Sans-IO."""

from collections import Counter
from functools import lru_cache

from kcast.pubsub import wire
from kcast.pubsub.bursts import publishes_by_topic, whole_topic
from kcast.pubsub.by_network import ByNetwork
from kcast.pubsub.drops import Drop
from kcast.pubsub.egress import Egress, Sender
from kcast.pubsub.endpoint import Address, Burst, Tap
from kcast.pubsub.expiring import ExpiringSet
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.rates import Demand, PublishRates
from kcast.pubsub.table import LeaseTable

Lines = dict[bytes, list[bytes]]
"""Published lines (without LF) by their topics."""

LEASES_OF_IP = 32  # an IP may hold a 32nd of all publish leases, a network a multiple of that ...
LEASES_OF_IP_MIN = 64  # ... but this number always
EXPIRED_MAX = 250  # publish leases, forgotten in one go: less than a millisecond
MADE_ROOM_MAX = 8  # ... and before one is opened, so that those which have ended are in nobody's way


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

    def take_vouched(self, publishes: Lines, source: Address, now: float) -> Demand | None:
        """Charges the source for publishes with a cookie; None if it may not publish this much now."""
        demand = self._demand_of(publishes)._replace(is_vouched=True)
        return self._take(source, demand, now)

    def take_bare(self, publishes: Lines, source: Address, now: float) -> Demand | None:
        """Charges the source for bare lines; None if it may not publish this much now."""
        return self._take(source, self._demand_of(publishes), now)

    def forward(self, publishes: Lines, demand: Demand, source: Address, now: float) -> None:
        """Forwards lines that were taken; an open server those that it may."""
        if self._egress.marks_copies:
            publishes = self._showable(publishes)
            demand = self._demand_of(publishes)._replace(is_vouched=demand.is_vouched)
        self._counts["messages_received"] += demand.lines
        if self._tap is not None:
            for topic, lines in publishes.items():
                if wire.is_topic(topic):
                    self._tap.burst(now, source, topic, lines)
        for topic in demand.unwanted:
            if not self._table.audience_count(topic):  # the datagram itself may have subscribed to it
                self._drop_unwanted(topic, len(publishes.pop(topic)))
        if publishes:
            self._egress.put(self._sender_of(source, demand), publishes, demand)

    def take_burst(self, burst: Burst, now: float) -> bool:
        """Takes and forwards a burst that is nothing but publishes, from a source with a publish lease.

        Returns False for others. They are to be looked at datagram by datagram.
        """
        data, segment_bytes, source, _ = burst
        if segment_bytes > DATAGRAM_BYTES_MAX:
            return False
        lines_max = self._limits.lines_per_datagram
        whole = whole_topic(data, segment_bytes, lines_max) if len(data) > segment_bytes else None
        publishes = None if whole is not None else publishes_by_topic(data, segment_bytes, lines_max)
        if whole is not None:
            topic, line_count = whole
            audience = self._table.paid_count(topic)
            demand = Demand(line_count, line_count * audience, len(data) * audience)
        elif publishes is not None:
            demand = self._demand_of(publishes)
        else:
            return False
        if len(data) > segment_bytes and self.rates.is_large(demand):
            return False  # one datagram may overdraw a rate, a burst may not
        if self._take(source, demand, now):
            if publishes is not None:
                self.forward(publishes, demand, source, now)
            else:
                self._forward_whole(burst, topic, demand, now)
        self._counts["datagrams_received"] += -(-len(data) // segment_bytes)
        return True

    def _forward_whole(self, burst: Burst, topic: bytes, demand: Demand, now: float) -> None:
        """Forwards a burst of one topic as it came (§4.3)."""
        data, segment_bytes, source, _ = burst
        self._counts["messages_received"] += demand.lines
        if self._tap is not None:
            self._tap.burst(now, source, topic, list(filter(None, data.split(b"\n"))))
        if demand.copies:
            self._egress.put_run(self._sender_of(source, demand), data, segment_bytes, topic, demand)
        else:
            self._drop_unwanted(topic, demand.lines)

    def _drop_unwanted(self, topic: bytes, line_count: int) -> None:
        # Topics in the table are canonical already; only unmatched ones need this check.
        self._drops[Drop.NO_SUBSCRIBER if wire.is_topic(topic) else Drop.TOPIC] += line_count

    def _showable(self, publishes: Lines) -> Lines:
        """Leaves out the lines that an open server cannot mark, or that could act on a terminal (§4.4)."""
        showable = {}
        for topic, lines in publishes.items():
            short = [line for line in lines if len(line) + len(b"\n\n") <= DATAGRAM_BYTES_MAX]
            clean = [line for line in short if not wire.has_control_byte(line)]
            if len(short) < len(lines):
                self._drops[Drop.OVERSIZE] += len(lines) - len(short)
            if len(clean) < len(short):
                self._drops[Drop.CONTROL_BYTE] += len(short) - len(clean)
            if clean:
                showable[topic] = clean
        return showable

    def _demand_of(self, publishes: Lines) -> Demand:
        line_count = copies = size_bytes = 0
        unwanted: list[bytes] = []
        for topic, lines in publishes.items():
            line_count += len(lines)
            audience = self._table.paid_count(topic)
            if audience:
                copies += len(lines) * audience
                size_bytes += audience * (len(lines[0]) if len(lines) == 1 else sum(map(len, lines)))
            else:
                unwanted.append(topic)
        return Demand(line_count, copies, size_bytes, unwanted=tuple(unwanted))

    def _take(self, source: Address, demand: Demand, now: float) -> Demand | None:
        if not self._egress.has_room(self._sender_of(source, demand)):
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
        return usual if not demand.is_vouched or self._egress.has_room(usual) else apart

    def _make_senders(self, source: Address) -> tuple[Sender, Sender]:
        (name, _), *wider = self._networks.shares_of(source)
        networks = tuple(share for share, _ in reversed(wider))
        party = networks[0] if networks else name
        return Sender(name, party, networks), Sender((name, "vouched"), party, networks)
