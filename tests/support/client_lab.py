"""A client core and several server cores, with a clock moved by hand."""

from random import Random
from typing import Any

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Published
from kcast.client.messages.guard_and_writer import Told
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.server import Server
from tests.support.server_core import SteadyServer, flushed, sent

START = 1000.0
PUB: Address = ("198.51.100.1", 1)
SUB: Address = ("198.51.100.2", 1)
FEW_PUBLISH = Policy(5, 3, 5)
ALL = Policy(5, 5, 5)


class Lab:
    """Servers and clients without a network: what is sent arrives at once, or never."""

    def __init__(self, policy: Policy = FEW_PUBLISH, hosts: int = 5, **options: Any) -> None:
        self.now = START
        self.options = options
        self.boots = 0
        self.servers: dict[Address, Server] = {}
        self.down: set[Address] = set()
        self.clients: dict[Address, ClientCore] = {}
        self.cluster = lab([(f"192.0.2.{host}", 7400) for host in range(1, hosts + 1)], policy)
        self.sent: list[tuple[Address, bytes]] = []
        for server in self.cluster.servers:
            self.restart(server.addresses[0])

    def restart(self, address: Address) -> None:
        self.boots += 1
        self.servers[address] = SteadyServer(secret=self.boots.to_bytes(32, "big"), **self.options)

    def client(self, address: Address = PUB, seed: int = 1, **options: Any) -> ClientCore:
        self.clients[address] = ClientCore(self.cluster, Random(seed), **options)
        return self.clients[address]

    def turn(self) -> None:
        """What is due now, until all are quiet."""
        busy = True
        while busy:
            busy = False
            for address, client in self.clients.items():
                client.handle_timeout(self.now)
                for to, datagram in sent(client.flush(self.now)):
                    busy = True
                    self.sent.append((to, datagram))
                    if to not in self.down:
                        self.servers[to].receive(Burst(datagram, len(datagram), address), self.now)
            for server_address, server in self.servers.items():
                for to, datagram in sent(flushed(server, self.now)):
                    if to in self.clients and server_address not in self.down:
                        self.clients[to].receive(Burst(datagram, len(datagram), server_address), self.now)

    def run(self, for_s: float) -> None:
        end = self.now + for_s
        self.turn()
        while True:
            times = [at for client in self.clients.values() if (at := client.next_timeout()) is not None]
            if not times or min(times) > end:
                break
            self.now = max(self.now, min(times))
            self.turn()
        self.now = end
        for server in self.servers.values():
            server.handle_timeout(self.now)

    def published(self, client: ClientCore, wait_s: float = 30.0, **options: Any) -> Published:
        """One publish, and what became of it."""
        handle = client.publish(b"t", b"x", self.now, **options)
        self.run(wait_s)
        (outcome,) = [e for e in client.events() if isinstance(e, Published) and e.handle == handle]
        return outcome

    def lines(self) -> list[tuple[Address, bytes]]:
        """The publish lines sent so far, in order, with where they went."""
        found = [(to, line) for to, data in self.sent for line in wire.split_lines(data)[0] if b" %@" in line]
        self.sent.clear()
        return found


def of_kind(events: list[Told], *kinds: type) -> list[Told]:
    return [event for event in events if isinstance(event, kinds)]
