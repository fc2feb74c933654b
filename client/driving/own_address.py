"""Notices that this machine's own address has changed, so that leases are asked for at the new one at once.

The kernel is asked each second which address it would send from; that sends nothing.
"""

import socket
from collections.abc import Callable, Iterable
from math import inf

from kcast.client.session.whereabouts import family_of
from kcast.pubsub.endpoint import Address

LOOK_INTERVAL_S = 1.0
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def address_towards(server: Address) -> str | None:
    """Returns the address from which a datagram to this server would leave; None where there is no way."""
    try:  # there may be no descriptor left, too
        with socket.socket(_FAMILIES[family_of(server)], socket.SOCK_DGRAM) as probe:
            probe.connect(server)
            return str(probe.getsockname()[0])
    except OSError:
        return None


class OwnAddress:
    """The addresses that datagrams leave from, one of each IP version.

    `look_at` is when to look again, and `wake_at` the same where there is anything to look at, else infinite.
    """

    def __init__(self, towards: Callable[[Address], str | None] = address_towards) -> None:
        self.look_at = -inf
        self.wake_at = inf
        self._towards = towards
        self._known: dict[int, str] = {}

    def has_changed(self, servers: Iterable[Address], now: float) -> bool:
        """Looks, towards one of these servers of each version; returns whether any address is another one.

        Where there is no way for a while, the address before is remembered. That of loopback never changes.
        """
        self.look_at = now + LOOK_INTERVAL_S
        before, asked = self._known.copy(), dict[int, Address]()
        for server in servers:
            if not server[0].startswith("127.") and server[0] != "::1":
                asked.setdefault(family_of(server), server)
        self.wake_at = self.look_at if asked else inf
        for family, server in asked.items():
            if (found := self._towards(server)) is not None:
                self._known[family] = found
        return any(self._known[family] != address for family, address in before.items())
