"""The price of leases: it follows the load of the table, and the share that a network has of it. Sans-IO.

PROTOCOL §5.11, §7.9. While there is room, a new lease costs what the operator asks, usually nothing, and
renewals are free. In a table that is nearly full a new lease costs 8 to 14 bits, the more the fuller it is,
and up to 4 more for networks that hold much. So does keeping what an address holds above its first few
leases. So a flood pays for the room that it takes, again and again; when it ends, prices fall by themselves.

What was quoted stands in the cookie, and holds while the cookie does: a stamp that was found in time is never
too little, and nothing needs to be kept about anybody.
"""

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import WORK_DATAGRAM_BITS
from kcast.pubsub.stamp import Quote
from kcast.pubsub.table import NEARLY_FULL, LeaseTable

LOAD_BITS_MIN = 8
LOAD_BITS_MAX = 14
SHARE_BITS_MAX = WORK_DATAGRAM_BITS - LOAD_BITS_MAX


class Price:
    """Quotes prices for the leases of `table`; a new one costs `least_bits` at least."""

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
