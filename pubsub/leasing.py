"""Gives leases: renews those that stand, opens new ones if price and limits allow; and says what they cost.
Sans-IO.

PROTOCOL §5.8, §5.11, §7.9.
"""

from collections import Counter
from collections.abc import Sequence

from kcast.pubsub import stamp, wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, LeaseChange, Tap
from kcast.pubsub.limits import WORK_DATAGRAM_BITS
from kcast.pubsub.stamp import Quote
from kcast.pubsub.table import NEARLY_FULL, Lease, LeaseTable

LOAD_BITS_MIN = 8
LOAD_BITS_MAX = 14
SHARE_BITS_MAX = WORK_DATAGRAM_BITS - LOAD_BITS_MAX

_COUNT_OF = {change: f"leases_{change.value}" for change in LeaseChange}


class Leasing:
    """Asks `table` for leases on behalf of clients; counts in `counts` and `drops`, and tells `tap`.

    No new leases are given while `is_draining`.
    """

    def __init__(
        self, table: LeaseTable, counts: Counter[str], drops: Counter[Drop], tap: Tap | None
    ) -> None:
        self.table = table
        self.is_draining = False
        self._counts = counts
        self._drops = drops
        self._tap = tap

    def ask(
        self,
        topics: Sequence[bytes],
        vouch: wire.Vouch | None,
        quote: Quote,
        source: Address,
        now: float,
    ) -> tuple[int, str]:
        """Renews and opens leases. Returns the bitmap of refused topics, and the first reason. Call `expire`
        before.

        `quote` is what the cookie of the vouch says. Without a vouch, as from sources that an open server is
        open to, leases have no price.
        """
        if not topics:
            return 0, ""
        live = {topic for topic in topics if self.table.is_live(topic, source, now)}
        new = {topic for topic in topics if topic not in live and wire.is_topic(topic)}
        beyond_free = self.table.beyond_free(source)
        dear = {topic for topic in live if topic in beyond_free}
        new_count = 0 if self.is_draining else len(new)
        is_paid = vouch is None or self._pays(vouch, topics, quote.due_bits(new_count, len(dear)))
        if not is_paid and quote.is_keeping_dear:
            live -= dear  # they live on until their ttl ends
        # Live leases come first: else a full table could push them out for the new ones beside them.
        for topic in topics:
            if topic in live:
                self.table.renew(topic, source, now)
                self._counts["leases_renewed"] += 1
        refused, reason = 0, ""
        for index, topic in enumerate(topics):
            if topic in live:
                continue
            drop = self._refuses(topic in new, topic in dear, is_paid) or self._open(topic, source, now)
            if drop is None:
                live.add(topic)
            else:
                self._drops[drop] += 1
                refused, reason = refused | 1 << index, reason or drop.value
        return refused, reason

    def _pays(self, vouch: wire.Vouch, topics: Sequence[bytes], due_bits: int) -> bool:
        if not due_bits:
            return True
        return vouch.stamp is not None and stamp.is_valid(vouch.stamp, vouch.cookie, topics, due_bits)

    def _refuses(self, is_new: bool, is_dear: bool, is_paid: bool) -> Drop | None:
        """Returns why a lease that is not renewed is not opened either, whatever the table says."""
        if is_dear:
            return Drop.WORK
        if not is_new:
            return Drop.TOPIC
        if self.is_draining:
            return Drop.DRAIN
        return None if is_paid else Drop.WORK

    def expire(self, now: float) -> None:
        """Forgets leases that have expired, a bounded number of them."""
        self._tell(LeaseChange.EXPIRED, self.table.expire(now), now)

    def _open(self, topic: bytes, source: Address, now: float) -> Drop | None:
        if self.table.release(topic, source, now):
            self._tell(LeaseChange.EXPIRED, [Lease(topic, source)], now)
        limit = self.table.open(topic, source, now)
        if self.table.evicted:
            self._tell(LeaseChange.EVICTED, self.table.evicted, now)
            self.table.evicted.clear()
        if limit is not None:
            return Drop(limit.value)
        self._tell(LeaseChange.OPENED, [Lease(topic, source)], now)
        return None

    def _tell(self, change: LeaseChange, leases: Sequence[Lease], now: float) -> None:
        if not leases:
            return
        self._counts[_COUNT_OF[change]] += len(leases)
        if self._tap is not None:
            for lease in leases:
                self._tap.lease(now, change, *lease)


class Price:
    """Quotes prices for the leases of `table`; a new one costs `least_bits` at least.

    While there is room, a new lease costs what the operator asks, usually nothing, and renewals are free. In
    a table that is nearly full a new lease costs 8 to 14 bits, the more the fuller it is, and up to 4 more
    for networks that hold much. So does keeping what an address holds above its first few leases. So a flood
    pays for the room that it takes, again and again; when it ends, prices fall by themselves.

    What was quoted stands in the cookie, and holds while the cookie does: a stamp that was found in time is
    never too little, and nothing needs to be kept about anybody.
    """

    def __init__(self, least_bits: int, table: LeaseTable) -> None:
        self.least_bits = least_bits
        self._table = table

    def quote(self, address: Address, now: float) -> Quote:
        """Returns what leases cost this address from now on.

        To forget leases takes long, and anybody may ask. So after a pause in which all have ended nothing has
        a price; where only some have, it is a little high until they are forgotten, a moment later.
        """
        table = self._table
        if not table.is_nearly_full or table.is_over(now):
            return Quote(self.least_bits)
        bits = max(self.least_bits, bits_of(table.load, table.share_of(address)))
        return Quote(bits, bool(table.beyond_free(address)))


def bits_of(load: float, share: float) -> int:
    """Returns the price of a lease in a table that is nearly full, for a network that has this share."""
    rise = max(0.0, min(1.0, (load - NEARLY_FULL) / (1 - NEARLY_FULL)))
    bits = LOAD_BITS_MIN + int(rise * (LOAD_BITS_MAX - LOAD_BITS_MIN))
    return bits + int(min(1.0, share) * SHARE_BITS_MAX)
