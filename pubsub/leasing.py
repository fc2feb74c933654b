"""Gives leases: renews those that stand, opens new ones if price and limits allow. PROTOCOL §5.8, §5.11."""

from collections import Counter
from collections.abc import Sequence

from kcast.pubsub import stamp, wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, LeaseChange, Tap
from kcast.pubsub.table import LeaseTable


class Leasing:
    """Asks `table` for leases on behalf of clients; counts in `counts` and `drops`, and tells `tap`.

    `work_bits` is the price of a new lease. No new ones are given while `is_draining`.
    """

    def __init__(
        self, table: LeaseTable, work_bits: int, counts: Counter[str], drops: Counter[Drop], tap: Tap | None
    ) -> None:
        self.table = table
        self.work_bits = work_bits
        self.is_draining = False
        self._counts = counts
        self._drops = drops
        self._tap = tap

    def ask(
        self, topics: Sequence[bytes], vouch: wire.Vouch | None, source: Address, now: float
    ) -> tuple[int, str]:
        """Renews and opens leases. Returns the bitmap of refused topics, and the first reason.

        Without a vouch, as from sources that an open server is open to, leases have no price.
        """
        if not topics:
            return 0, ""
        self.expire(now)
        live = {topic for topic in topics if self.table.is_live(topic, source, now)}
        # Live leases come first: else a full fifo table could push them out for the new ones beside them.
        for topic in topics:
            if topic in live:
                self.table.renew(topic, source, now)
                self._counts["leases_renewed"] += 1
        new = {topic for topic in topics if topic not in live and wire.is_topic(topic)}
        may_open = self._may_open(topics, len(new), vouch) if new else None
        refused, reason = 0, ""
        for index, topic in enumerate(topics):
            if topic in live:
                continue
            drop = (may_open or self._open(topic, source, now)) if topic in new else Drop.TOPIC
            if drop is None:
                live.add(topic)
            else:
                self._drops[drop] += 1
                refused, reason = refused | 1 << index, reason or drop.value
        return refused, reason

    def expire(self, now: float) -> None:
        """Forgets leases that have expired."""
        for lease in self.table.expire(now):
            self._counts["leases_expired"] += 1
            if self._tap is not None:
                self._tap.lease(now, LeaseChange.EXPIRED, *lease)

    def _may_open(self, topics: Sequence[bytes], new_count: int, vouch: wire.Vouch | None) -> Drop | None:
        """Returns why this datagram may open no new lease at all; None if it may."""
        if self.is_draining:
            return Drop.DRAIN
        price_bits = stamp.price_bits(self.work_bits, new_count)
        if not price_bits or vouch is None:
            return None
        if vouch.stamp is not None and stamp.is_valid(vouch.stamp, vouch.cookie, topics, price_bits):
            return None
        return Drop.WORK

    def _open(self, topic: bytes, source: Address, now: float) -> Drop | None:
        limit = self.table.open(topic, source, now)
        for evicted in self.table.evicted:
            self._counts["leases_evicted"] += 1
            if self._tap is not None:
                self._tap.lease(now, LeaseChange.EVICTED, *evicted)
        self.table.evicted.clear()
        if limit is not None:
            return Drop(limit.value)
        self._counts["leases_opened"] += 1
        if self._tap is not None:
            self._tap.lease(now, LeaseChange.OPENED, topic, source)
        return None
