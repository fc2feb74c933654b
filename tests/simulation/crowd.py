"""What scenarios of many clients need: who comes and goes, who wants too much, and what clients were told."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kcast.client.events import LeaseRefused, LeasesChanged, Outcome, Published
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from tests.simulation.attacker import fitting, token
from tests.simulation.ledger import Boot, ClientTurn, lines_of
from tests.simulation.network import Packet

if TYPE_CHECKING:
    from tests.simulation.hosts import ClientHost
    from tests.simulation.world import World

COOKIE_S = 100.0  # how long a greedy client uses a cookie


def addresses(prefix: str, port: int = 30_000) -> Iterator[Address]:
    """Address after address within one network, an IPv4 /24 or an IPv6 /48, by what they begin with."""
    while True:
        for number in range(1, 255):
            yield f"{prefix}{number:{'x' if ':' in prefix else 'd'}}", port
        port += 1


def scattered_addresses(first: int = 18, port: int = 30_000) -> Iterator[Address]:
    """Address after address, each in a /24 of its own."""
    number = 0
    while True:
        yield f"198.{first + number // 65_536 % 100}.{number // 256 % 256}.{number % 256}", port
        number += 256


class Witness:
    """What the clients of a world were told about their leases and publishes."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.leased: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        self.fewer: list[tuple[float, str, bytes, int, int]] = []
        """Whenever a client came to hold fewer leases: time, client, topic, before, after."""
        self.refusals: Counter[str] = Counter()
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.outcomes: defaultdict[str, Counter[Outcome]] = defaultdict(Counter)
        world.watchers.append(self._watch)

    def _watch(self, turn: ClientTurn) -> None:
        name = turn.host.name
        for event in turn.events:
            if isinstance(event, LeasesChanged):
                before = self.leased[name][event.topic]
                if event.leased < before:
                    self.fewer.append((self.world.clock.time, name, event.topic, before, event.leased))
                self.leased[name][event.topic] = event.leased
            elif isinstance(event, LeaseRefused):
                self.refusals[event.reason] += 1
                self.refused[name][event.reason] += 1
            elif isinstance(event, Published):
                self.outcomes[name].update(event.servers.values())

    def fewer_of(self, clients: "list[ClientHost]") -> list[tuple[float, str, bytes, int, int]]:
        names = {client.name for client in clients}
        return [loss for loss in self.fewer if loss[1] in names]

    def total(self, clients: "list[ClientHost]") -> int:
        """How many leases these clients believe that they hold."""
        return sum(self.leased[client.name].total() for client in clients)


class Churn:
    """Clients that come, subscribe to one topic, and go without a word, each after a random time."""

    def __init__(self, world: "World", life_s: float) -> None:
        self.world = world
        self.life_s = life_s
        self.came = 0
        self._rng = Random(f"churn {world.options.seed}")
        self._addresses = scattered_addresses()

    def fill_up(self, count: int) -> None:
        """Lets clients come until there are so many."""
        while len(self.world.clients) < count:
            client = self.world.add_client(next(self._addresses))
            client.subscribe(self.world.topics[self.came % len(self.world.topics)])
            self.came += 1
            self.world.clock.after(self._rng.expovariate(1 / self.life_s), partial(self._go, client))

    def _go(self, client: "ClientHost") -> None:
        client.crash()
        self.world.clients.remove(client)


class Greedy:
    """Someone who plays by the rules of the handshake, at many addresses, and wants far more than its share.

    At each address it asks each server for as many leases of made-up topics as fit in a datagram, again and
    again and whatever the answer; it pays for none where they have a price.
    """

    is_up = True

    def __init__(
        self,
        world: "World",
        at: list[Address],
        topics_each: int,
        every_s: float,
        *,
        has_own_topics: bool = False,
    ) -> None:
        self.world = world
        self.name = f"greedy-{at[0][0]}"
        self.every_s = every_s
        self.is_greedy = True
        self.refused: Counter[str] = Counter()
        self._rng = Random(f"greedy {at[0]}")
        self._cookies: dict[tuple[Address, Address], tuple[bytes, float]] = {}
        whose = at[0][0].encode() if has_own_topics else b""
        self._topics = [b"greedy-%b%d\n" % (whose, number) for number in range(topics_each)]
        for address in at:
            world.network.bind(address, self)
            world.clock.after(self._rng.uniform(0, every_s), partial(self._act, address))

    @property
    def leases(self) -> int:
        """How many leases it holds, at all its addresses."""
        return sum(
            topic.startswith(b"greedy-") and (address, server.address) in self._cookies
            for server in self.world.servers
            for address, topic in server.boot.promised.live(server.now)
        )

    def unreachable(self, address: Address) -> None:
        """Does not matter to it."""

    def arrive(self, packets: list[Packet]) -> None:
        self.world.network.fates["handed-over"] += len(packets)
        for packet in packets:
            self.world.note_cookies(packet)
            for line in lines_of(packet.data) if isinstance(packet.sender, Boot) else ():
                reply = wire.parse_reply(line)
                if isinstance(reply, wire.Challenge | wire.Receipt):
                    key = packet.destination, packet.source
                    self._cookies[key] = reply.cookie, self.world.clock.time
                elif isinstance(reply, wire.Refusal):
                    self.refused[reply.reason] += 1

    def _act(self, address: Address) -> None:
        if not self.is_greedy:
            return
        for server in self.world.servers:
            cookie, since = self._cookies.get((address, server.address), (b"", -COOKIE_S))
            if self.world.clock.time - since >= COOKIE_S:
                request = wire.request_datagram(wire.Ask(token(self._rng, 11)))
            else:
                count = min(len(self._topics), self.world.options.limits.lines_per_datagram - 1)
                vouch = wire.Vouch(token(self._rng, 11), cookie, None)
                request = wire.request_datagram(vouch, fitting(self._rng.sample(self._topics, count)))
            transmit = Transmit(request, len(request), (server.address,))
            self.world.network.send(transmit, address, self.name, None)
        self.world.clock.after(self.every_s * self._rng.uniform(0.5, 1.5), partial(self._act, address))


class Flood:
    """Asks each server for cookies, so many times a second, from addresses that are not its own."""

    def __init__(self, world: "World", per_s: int, lasts_s: float) -> None:
        self.world = world
        self.sent = 0
        self._rng = Random("flood")
        self._until = world.clock.time + lasts_s
        self._every_s = 1 / per_s
        self._act()

    def _act(self) -> None:
        if self.world.clock.time >= self._until:
            return
        for server in self.world.servers:
            source = f"192.168.{self._rng.randrange(256)}.{self._rng.randrange(1, 255)}", 53
            request = wire.request_datagram(wire.Ask(token(self._rng, 11)))
            transmit = Transmit(request, len(request), (server.address,))
            self.world.network.send(transmit, source, "flood", None)
            self.sent += 1
        self.world.clock.after(self._every_s, self._act)
