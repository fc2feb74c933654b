"""How often a client renews its leases at a server, whatever that says. Sans-IO. PROTOCOL §7.3, §7.4."""

from kcast.client.session.leases import Leases
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, RENEWAL_INTERVAL_S_MAX

ASK_INTERVAL_S = 5.0  # between questions to a server that never told its ttl

# Whoever says a short ttl has each lease renewed no more often than this; but a few, that fit into one
# datagram, as often as any ttl asks for, which is three times a second.
RENEWAL_INTERVAL_S_MIN = 3.0
DATAGRAM_INTERVAL_S_MIN = 1 / 3

# What a ttl counts at most for how long servers of a former list are kept.
TTL_S_BELIEVED = 600.0


def usual_s(ttl_s: float | None, renewals_per_ttl: float) -> float:
    """Returns the seconds between renewals of few leases; between questions where the ttl is not known."""
    if ttl_s is None:
        return ASK_INTERVAL_S
    return min(ttl_s / renewals_per_ttl, RENEWAL_INTERVAL_S_MAX)


def bounded_s(usual_s: float, leases: Leases) -> float:
    """Returns the seconds between renewals of these leases, where `usual_s` is what the ttl asks for.

    A ttl that is shorter than that does not keep them: they are asked for anew as often.
    """
    more = max(len(leases) // LINES_PER_DATAGRAM_MAX, leases.size_bytes // LINE_BYTES_MAX)
    return max(usual_s, min(RENEWAL_INTERVAL_S_MIN, more * DATAGRAM_INTERVAL_S_MIN))
