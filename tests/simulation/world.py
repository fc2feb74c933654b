"""Servers, clients, an attacker and the checkers, on one simulated network, stepped by virtual time."""

from collections.abc import Callable, Iterable
from random import Random
from typing import NoReturn

from kcast.client.cluster import Cluster, ServerEntry
from kcast.client.clusters.view import View
from kcast.client.core import ClientCore
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Endpoint, format_address
from kcast.pubsub.server import Server
from tests.simulation.attacker import Attacker
from tests.simulation.checker import Checker, InvariantViolation
from tests.simulation.checkers import CHECKERS, LeasedAgain
from tests.simulation.hostile import HostileServer
from tests.simulation.hosts import ClientHost, ServerHost
from tests.simulation.ledger import Boot, ClientTurn, Ledger, ServerTurn, is_answer, lines_of
from tests.simulation.network import Clock, Network, Packet
from tests.simulation.options import Options

ServerMaker = Callable[..., Server]
ClientMaker = Callable[..., ClientCore]
PathMaker = Callable[[Endpoint], Endpoint]


def _no_path(core: Endpoint) -> Endpoint:
    return core


class World:
    """All that a run has. `make_server` and `make_client` let a test put a broken core in, `make_path`
    something between clients' cores and their network.

    Whoever wants to know what clients are told adds to `watchers`.
    """

    def __init__(
        self,
        options: Options,
        *,
        make_server: ServerMaker = Server,
        make_client: ClientMaker = ClientCore,
        make_path: PathMaker = _no_path,
    ) -> None:
        self.options = options
        self.rng = Random(f"world {options.seed}")
        self.make_server = make_server
        self.make_client = make_client
        self.make_path = make_path
        self.clock = Clock()
        self.network = Network(options, self.clock, self.rng)
        self.ledger = Ledger(self.clock)
        self.calm_since: float | None = 0.0 if options.calm else None
        self.topics = [topic_name(number) for number in range(options.topics)]
        first_hostile = options.servers - options.hostile_servers
        self.servers = [
            (ServerHost if n < first_hostile else HostileServer)(self, f"s{n}", self._server_addresses(n))
            for n in range(options.servers)
        ]
        self.hostile = frozenset(server.name for server in self.servers if isinstance(server, HostileServer))
        self.server_at = {address: server for server in self.servers for address in server.addresses}
        self.name_of_server = {format_address(server.address): server.name for server in self.servers}
        self._entries = [
            ServerEntry(server.addresses, f"host{number // options.servers_per_host}")
            for number, server in enumerate(self.servers)
        ]
        self._addresses_given = 0
        self._clients_made = 0
        self._common_view = self._view(self._entries)
        self.clients: list[ClientHost] = []
        for _ in range(options.clients):
            self.add_client(*self.new_client_addresses())
        self._servers_of: dict[tuple[View, bytes], frozenset[Address]] = {}
        self.attacker = Attacker(self, [self.new_client_address(), self.new_client_address()])
        self.watchers: list[Callable[[ClientTurn], None]] = []
        self.checkers: list[Checker] = [checker(self) for checker in CHECKERS]

    def add_client(self, *addresses: Address) -> ClientHost:
        """One client more, at addresses that are not taken, one a family that it has."""
        view = self._own_view() if self.options.diverging else self._common_view
        client = ClientHost(self, f"c{self._clients_made}", addresses, view)
        self._clients_made += 1
        self.clients.append(client)
        return client

    def _server_addresses(self, number: int) -> tuple[Address, ...]:
        number, port = divmod(number, self.options.servers_per_host)
        hosts = {4: f"192.0.2.{number + 1}", 6: f"2001:db8::{number + 1:x}"}
        families = [4, 6] if self.options.dual else [6] if self.options.ipv6 else [4]
        if self.options.dual:
            self.rng.shuffle(families)
        return tuple([(hosts[family], 7400 + port) for family in families])

    def new_client_address(self, family: int | None = None) -> Address:
        """One that nobody has had before. Some share an IP, as behind one NAT."""
        self._addresses_given += 1
        number = self._addresses_given
        is_v6 = self.options.ipv6 if family is None else family == 6
        host = f"2001:db8:1::{number // 2:x}" if is_v6 else f"198.51.100.{number // 2 % 250}"
        return host, 20_000 + number

    def new_client_addresses(self) -> tuple[Address, ...]:
        """One of each family that a client has: where servers have both, some clients lack one."""
        if not self.options.dual:
            return (self.new_client_address(),)
        families = self.rng.choice(((4, 6), (4, 6), (4,), (6,)))
        return tuple([self.new_client_address(family) for family in families])

    def _view(self, entries: Iterable[ServerEntry]) -> View:
        return View(Cluster(tuple(entries), self.options.policy, name="lab", salt=b"sim", is_lab=True))

    def _own_view(self) -> View:
        """A view that lacks some servers, but not all."""
        entries = [entry for entry in self._entries if self.rng.random() < 0.8]
        return self._view(entries or self._entries[:1])

    # --- What checkers ask ---------------------------------------------------------------------------

    @property
    def is_calm(self) -> bool:
        return self.calm_since is not None

    def was_calm_since(self, time: float) -> bool:
        return self.calm_since is not None and self.calm_since <= time

    def server_addresses(self, host: ClientHost, topic: bytes) -> frozenset[Address]:
        """The addresses of a decoded topic's servers, in this client's view."""
        key = host.view, topic
        if key not in self._servers_of:
            servers = host.view.servers(topic)
            self._servers_of[key] = frozenset(address for entry in servers for address in entry.addresses)
        return self._servers_of[key]

    def servers_of(self, host: ClientHost, topic: bytes) -> frozenset[str]:
        """The names of a decoded topic's servers, in this client's view."""
        return frozenset(self.server_at[address].name for address in self.server_addresses(host, topic))

    def leased_at(self, host: ClientHost, topic: bytes) -> frozenset[str]:
        """The servers that hold a lease of one of this client's present addresses, by the ledger."""
        wire_topic = wire.encode_topic(topic)
        return frozenset(
            server.name
            for server in self.servers
            if server.is_up
            and any(server.boot.is_leased(address, wire_topic, server.now) for address in host.addresses)
        )

    def pushed_out_at(self, host: ClientHost, topic: bytes) -> frozenset[str]:
        """The servers that have ended such a lease to make room, which this client cannot know yet."""
        wire_topic = wire.encode_topic(topic)
        return frozenset(
            server.name
            for server in self.servers
            if any(
                server.boot.pushed_out.get((address, wire_topic), 0.0) > server.now
                for address in host.addresses
            )
        )

    def is_fully_leased(self, host: ClientHost, topic: bytes) -> bool:
        """Whether this client subscribes, and says that it does so everywhere; or nobody knows what that
        means, because some servers lie."""
        if not host.can_act or topic not in host.subscribed:
            return False
        if self.hostile & self.servers_of(host, topic):
            return True
        leased, wanted = host.core.lease_counts(topic)
        return leased == wanted

    def note_cookies(self, packet: Packet) -> None:
        """Something has come to an address, perhaps with a cookie in it, perhaps only by way of a replay."""
        server = self.server_at.get(packet.source)
        boot = packet.sender if isinstance(packet.sender, Boot) else server.boot if server else None
        if boot is not None and is_answer(packet.data):
            boot.cookie_received(packet.destination, lines_of(packet.data))

    # --- Steps ---------------------------------------------------------------------------------------

    def run_for(self, duration_s: float) -> None:
        self.run_until(self.clock.time + duration_s)

    def run_until(self, time: float) -> None:
        self.clock.run_until(time)

    def server_turn(self, turn: ServerTurn) -> None:
        self.ledger.server_turn(turn)
        for checker in self.checkers:
            checker.server_turn(turn)

    def server_ended(self, host: ServerHost) -> None:
        for checker in self.checkers:
            checker.server_ended(host, host.boot)

    def client_turn(self, turn: ClientTurn) -> None:
        self.ledger.client_turn(turn)
        for checker in self.checkers:
            checker.client_turn(turn)
        for watch in self.watchers:
            watch(turn)

    def finish(self) -> None:
        for checker in self.checkers:
            checker.finish()

    def checker(self, kind: type[Checker]) -> Checker:
        return next(checker for checker in self.checkers if isinstance(checker, kind))

    def heal(self) -> None:
        """Ends every fault: all is up, connected and running, and nothing is lost any more."""
        self.network.loss = 0.0
        self.network.blocked.clear()
        for server in self.servers:
            server.resume()
            if server.is_draining:
                server.crash()
            server.restart()
        for client in self.clients:
            client.resume()

    def check_leased_again(self) -> None:
        """Runs for as long as it may take until all leases stand, and checks that they do."""
        checker = self.checker(LeasedAgain)
        assert isinstance(checker, LeasedAgain)
        self.run_until(checker.due_at(self.clock.time))
        if self.options.is_roomy:
            checker.check()
        self.calm_since = self.clock.time

    def violate(self, checker: str, facts: str, cause: Exception | None = None) -> NoReturn:
        raise InvariantViolation(checker, self.options.seed, self.clock.time, facts) from cause


def topic_name(number: int) -> bytes:
    """Names of all sorts: plain, with a hash tag, UTF-8, with bytes that are escaped, and long."""
    kinds = (
        "room/%d",
        "{room}/%d",
        "weather/\N{LATIN SMALL LETTER O WITH STROKE}slo %d",
        "a%%b\n%d",
        "long/" * 45 + "%d",
    )
    return (kinds[number % len(kinds)] % number).encode()
