"""Asks the servers of a cluster, before a test, whether any of them is there."""

import select
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from kcast.client.cluster import Cluster
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address

_PING = wire.pad(wire.format_line(wire.Ping(b"locust")), 64)
_ROUND_S = 0.25
_RECEIVE_BYTES = 2048


def any_answers(cluster: Cluster, within_s: float) -> bool:
    """Pings all servers at all their addresses until one answers. False if none does within this time."""
    with ExitStack() as stack:
        asked: list[tuple[socket.socket, Sequence[Address]]] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            own = [
                address
                for server in cluster.servers
                for address in server.addresses
                if (":" in address[0]) == (family == socket.AF_INET6)
            ]
            if not own:
                continue
            with suppress(OSError):  # this machine lacks the family
                asked.append((stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)), own))
                asked[-1][0].setblocking(False)
        # By rounds, not by the clock: what came while this process was busy is read all the same.
        for _ in range(max(1, round(within_s / _ROUND_S))):
            for sock, addresses in asked:
                for address in addresses:
                    with suppress(OSError):  # no way to it
                        sock.sendto(_PING, address)
            ready, _, _ = select.select([sock for sock, _ in asked], [], [], _ROUND_S)
            if any(_has_pong(sock, addresses) for sock, addresses in asked if sock in ready):
                return True
    return False


def _has_pong(sock: socket.socket, addresses: Sequence[Address]) -> bool:
    """Whether one of the datagrams that have come is a pong from one of these addresses."""
    with suppress(OSError):  # no more have come
        while True:
            datagram, source = sock.recvfrom(_RECEIVE_BYTES)
            if source[:2] in addresses and any(
                isinstance(wire.parse_reply(line), wire.Pong) for line in wire.split_lines(datagram)[0]
            ):
                return True
    return False
