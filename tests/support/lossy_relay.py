"""A relay process before each server, which loses datagrams by known chances and tells nobody.

    python -m tests.support.lossy_relay CLUSTER --loss-in 0.02 --loss-out 0.02 [--in-a-row 4] [--seed 1]

It reads a cluster file, listens on a port of its own for each server, and prints the cluster file of these
ports. Each client has a socket of its own towards each server. Losses of a leg, which is one client's way to
or from one server, are independent, or come in runs that end when nothing passed for a while.
"""

import argparse
import random
import selectors
import socket
import time
from dataclasses import replace
from pathlib import Path

from kcast.client.cluster import ServerEntry, format_cluster, load
from kcast.pubsub.endpoint import Address

RUN_ENDS_S = 1.0
_BURST = 64
_BYTES_MAX = 65_536


class Chain:
    """Loses a share of what passes; `in_a_row` of them on average."""

    def __init__(self, share: float, in_a_row: float, rng: random.Random) -> None:
        self._rng = rng
        self._share = share
        self._goes_on = 1 - 1 / in_a_row if in_a_row > 1 else share
        self._begins = share / (1 - share) * (1 - self._goes_on) if share < 1 else 1.0
        self._is_lost = rng.random() < share
        self._last = 0.0

    def loses(self) -> bool:
        """Says whether the next one is lost."""
        now = time.monotonic()
        if now - self._last > RUN_ENDS_S:
            self._is_lost = self._rng.random() < self._share
            self._last = now
            return self._is_lost
        self._last = now
        self._is_lost = self._rng.random() < (self._goes_on if self._is_lost else self._begins)
        return self._is_lost


class Relay:
    """The relay before one server."""

    def __init__(
        self, server: Address, options: argparse.Namespace, selector: selectors.BaseSelector
    ) -> None:
        self._server, self._options, self._selector = server, options, selector
        self._front = self._socket()
        self._front.bind(("127.0.0.1", 0))
        self.address: Address = self._front.getsockname()
        self._clients: dict[Address, tuple[socket.socket, Chain]] = {}
        selector.register(self._front, selectors.EVENT_READ, self._from_clients)

    def _socket(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.setblocking(False)
        return made

    def _chain(self, what: str, share: float, client: Address) -> Chain:
        seed = f"{self._options.seed}/{what}/{self._server}/{client}"
        return Chain(share, self._options.in_a_row, random.Random(seed))

    def _from_clients(self) -> None:
        for _ in range(_BURST):
            try:
                data, client = self._front.recvfrom(_BYTES_MAX)
            except BlockingIOError:
                return
            back, leg = self._clients.get(client) or self._meet(client)
            if not leg.loses():
                back.send(data)

    def _meet(self, client: Address) -> tuple[socket.socket, Chain]:
        back, leg_out = self._socket(), self._chain("out", self._options.loss_out, client)
        back.connect(self._server)
        if self._options.ports is not None:
            with self._options.ports.open("a") as ports:
                print(back.getsockname()[1], client[1], file=ports)

        def from_server() -> None:
            for _ in range(_BURST):
                try:
                    data = back.recv(_BYTES_MAX)
                except (BlockingIOError, ConnectionRefusedError):
                    return
                if not leg_out.loses():
                    self._front.sendto(data, client)

        self._selector.register(back, selectors.EVENT_READ, from_server)
        self._clients[client] = back, self._chain("in", self._options.loss_in, client)
        return self._clients[client]


def main() -> None:
    """Relays until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cluster", type=Path)
    parser.add_argument("--loss-in", type=float, default=0.0)
    parser.add_argument("--loss-out", type=float, default=0.0)
    parser.add_argument("--in-a-row", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ports", type=Path, help="a file for ports towards servers, and those of clients")
    options = parser.parse_args()
    cluster = load(options.cluster)
    selector = selectors.DefaultSelector()
    relays = [Relay(server.addresses[0], options, selector) for server in cluster.servers]
    entries = tuple(
        ServerEntry((relay.address,), server.key)
        for relay, server in zip(relays, cluster.servers, strict=True)
    )
    print(format_cluster(replace(cluster, servers=entries)), end="", flush=True)
    while True:
        for key, _ in selector.select():
            key.data()


if __name__ == "__main__":
    main()
