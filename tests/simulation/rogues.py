"""Clients that want what is not theirs, beside honest ones. What they publish counts as an attacker's.

Each has an address of its own in a network of its own, gets its cookies by the rules, and then breaks some.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from tests.simulation.attacker import fitting, token
from tests.simulation.crowd import Flood, Greedy, addresses
from tests.simulation.ledger import Boot, lines_of
from tests.simulation.network import Packet

if TYPE_CHECKING:
    from tests.simulation.world import World

COOKIE_S = 100.0
LINES = 10


class Rogue(ABC):
    """Acts every `every_s`, towards each server of which it has a cookie."""

    is_up = True
    every_s = 1.0

    def __init__(self, world: "World", address: Address) -> None:
        self.world = world
        self.name = f"rogue-{address[0]}"
        self.address = address
        self.rng = Random(f"{self.name} {world.options.seed}")
        self.cookies: dict[Address, tuple[bytes, float]] = {}
        world.network.bind(address, self)
        world.clock.after(self.rng.uniform(0, 3 * self.every_s), self._turn)

    def unreachable(self, address: Address) -> None:  # noqa: B027
        """Does not matter to it."""

    def arrive(self, packets: list[Packet]) -> None:
        self.world.network.fates["handed-over"] += len(packets)
        for packet in packets:
            self.world.note_cookies(packet)
            for line in lines_of(packet.data) if isinstance(packet.sender, Boot) else ():
                reply = wire.parse_reply(line)
                if isinstance(reply, wire.Challenge | wire.Receipt):
                    self.cookies[packet.source] = reply.cookie, self.world.clock.time

    def _turn(self) -> None:
        for server in self.world.servers:
            cookie, since = self.cookies.get(server.address, (b"", -COOKIE_S))
            if self.world.clock.time - since >= COOKIE_S:
                self.send(wire.request_datagram(wire.Ask(token(self.rng, 11))), server.address)
            else:
                self.act(server.address, cookie)
        self.world.clock.after(self.every_s * self.rng.uniform(0.5, 1.5), self._turn)

    @abstractmethod
    def act(self, server: Address, cookie: bytes) -> None:
        """Does wrong to this server."""

    def vouch(self, cookie: bytes, lines: list[bytes]) -> bytes:
        return wire.request_datagram(wire.Vouch(token(self.rng, 11), cookie, None), fitting(lines))

    def send(self, data: bytes, server: Address) -> None:
        self.world.ledger.forge(data)
        self.world.network.send(Transmit(data, len(data), (server,)), self.address, self.name, None)

    def topic(self) -> bytes:
        return wire.encode_topic(self.rng.choice(self.world.topics))


class Overpublisher(Rogue):
    """Publishes far more than it may where rates are limited, and much elsewhere; also without a cookie."""

    every_s = 0.3

    def act(self, server: Address, cookie: bytes) -> None:
        topic, size = self.topic(), self.rng.choice((10, 60))
        lines = [b"%b too-much-%b\n" % (topic, token(self.rng, size)) for _ in range(LINES)]
        is_bare = self.rng.random() < 0.5
        self.send(b"".join(fitting(lines)) if is_bare else self.vouch(cookie, lines), server)


class CreditStealer(Rogue):
    """Subscribes, reads nothing, and shows the same cookie again and again so that copies go on."""

    def __init__(self, world: "World", address: Address) -> None:
        super().__init__(world, address)
        self._renewals: dict[Address, bytes] = {}

    def act(self, server: Address, cookie: bytes) -> None:
        if server not in self._renewals:
            self._renewals[server] = self.vouch(cookie, [self.topic() + b"\n" for _ in range(LINES)])
        self.send(self._renewals[server], server)


class Liar(Rogue):
    """Shows cookies of other servers or of nobody, stamps that are none, and nonces of others."""

    def act(self, server: Address, cookie: bytes) -> None:
        others = [shown for shown, _ in self.cookies.values()]
        shown = self.rng.choice((cookie, token(self.rng, 32), self.rng.choice(others)))
        nonces = [packet.data.split(b" ")[1] for packet in self.world.network.recent if b"%+ " in packet.data]
        nonce = self.rng.choice(nonces) if nonces else token(self.rng, 11)
        if wire.parse_request(b"%? " + nonce) is None:
            nonce = token(self.rng, 11)
        lines = [self.topic() + b"\n", self.topic() + b" a lie\n"]
        self.send(wire.request_datagram(wire.Vouch(nonce, shown, token(self.rng, 9)), lines), server)


class Replayer(Rogue):
    """Sends again what it saw go by, from wherever that came."""

    def act(self, server: Address, cookie: bytes) -> None:
        if self.rng.random() < 0.3:
            self.world.attacker.replay()


def _greedy(world: "World", address: Address) -> None:
    Greedy(world, list(islice(addresses(address[0].rpartition(".")[0] + "."), 3)), 30, 2.0)


def _flood(world: "World", address: Address) -> None:
    Flood(world, 10, world.options.fault_s)


ROGUES: dict[str, Callable[["World", Address], object]] = {
    "overpublisher": Overpublisher,
    "credit stealer": CreditStealer,
    "liar": Liar,
    "replayer": Replayer,
    "greedy": _greedy,
    "flood": _flood,
}


def let_come(world: "World") -> None:
    """Plans the coming of those that a world's settings name."""
    for number, name in enumerate(world.options.rogues):
        address = f"203.0.{114 + number}.1", 31_000
        world.clock.after(1.0 + number, partial(_come, world, name, address))


def _come(world: "World", name: str, address: Address) -> None:
    ROGUES[name](world, address)
