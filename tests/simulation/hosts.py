"""A core on a machine: the turn that its driver makes, and what can befall it.

A turn is what every driver does: receive all that has arrived, `handle_timeout` if it is due, send what
`flush` returns. Each machine has a clock of its own, which began at some other moment than its neighbours'.
A stopped machine keeps what arrives, within the bound of its socket's buffer, and takes all of it later.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kcast.client.clusters import views
from kcast.client.clusters.view import View
from kcast.client.core import ClientCore
from kcast.client.messages.guard_and_writer import Guard, Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.gaps import GapTracker
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, Endpoint, Transmit, datagrams
from kcast.pubsub.server import Server
from tests.simulation.ledger import Boot, ClientTurn, ServerTurn
from tests.simulation.network import Packet, family_of
from tests.simulation.taps import TapRecord
from tests.support.routers import ROUTERS

if TYPE_CHECKING:
    from tests.simulation.world import World

BUFFER_DATAGRAMS = 512
SEGMENTS_MAX = 64
SPINS_MAX = 50
SLICE_S = 0.001
RETURN_SLACK_S = 1.5
START_UNIX_S = 1_800_000_000.0
_ROUTERS = list(ROUTERS.values())  # of servers by turns: none must make a difference


class Host(ABC):
    """What servers and clients have in common: an address, a clock, a buffer and turns."""

    core: Endpoint

    @property
    def endpoint(self) -> Endpoint:
        """What its driver turns: the core, or what stands before it."""
        return self.core

    def __init__(self, world: "World", name: str, addresses: tuple[Address, ...]) -> None:
        self.world = world
        self.name = name
        self.addresses = addresses
        self.is_up = True
        self.is_paused = False
        self.clock_offset_s = round(world.rng.uniform(0, 100_000), 3)
        self._buffer: deque[Packet] = deque()
        self._is_turn_planned = False
        self._timer_at = math.inf
        self._spins = 0
        for address in addresses:
            world.network.bind(address, self)

    @property
    def address(self) -> Address:
        """The first of its addresses, of which there is at most one a family."""
        return self.addresses[0]

    @property
    def now(self) -> float:
        """This machine's own clock."""
        return self.world.clock.time + self.clock_offset_s

    def arrive(self, packets: list[Packet]) -> None:
        room = BUFFER_DATAGRAMS - len(self._buffer)
        self.world.network.fates["overflow"] += max(0, len(packets) - room)
        self._buffer.extend(packets[: max(0, room)])
        if not self._is_turn_planned and not self.is_paused:
            self._is_turn_planned = True
            # A process wakes a little later, so that now and then a turn has more than one arrival.
            self.world.clock.after(self.world.rng.choice((0.0, 0.0001, 0.002)), self._wake)

    @abstractmethod
    def unreachable(self, address: Address) -> None:
        """The network says that nobody listens at `address`."""

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            if self.is_up:
                self.turn()

    def crash(self) -> None:
        self.is_up, self.is_paused = False, False
        self.world.network.fates["host-down"] += len(self._buffer)
        self._buffer.clear()

    def _wake(self) -> None:
        self._is_turn_planned = False
        if self.is_up and not self.is_paused and self._buffer:
            self.turn()

    def _timer(self, at: float) -> None:
        if at == self._timer_at and self.is_up and not self.is_paused:
            self._timer_at = math.inf
            self.turn()

    def turn(self) -> None:
        """One turn of the driver, seen by the checkers."""
        packets = list(self._buffer)
        self._buffer.clear()
        self.world.network.fates["handed-over"] += len(packets)
        now = self.now
        transmits: list[Transmit] = []
        try:
            for burst in self._join(packets):
                self.endpoint.receive(burst, now)
            due_at = self.endpoint.next_timeout()
            is_early = self.world.rng.random() < 0.02
            if is_early or (due_at is not None and due_at <= now):
                self.endpoint.handle_timeout(now)
            transmits = self.endpoint.flush(now)
            due_at = self.endpoint.next_timeout()
        except Exception as error:
            facts = f"{self.name} raised {error!r} on {[packet.data for packet in packets]}"
            self.world.violate("no-exception", facts, error)
        self._show(packets, now, transmits)
        for transmit in transmits:
            for source in self.addresses:
                # What goes to an address of a family comes from the one of that family.
                to = [each for each in transmit.destinations if family_of(each) == family_of(source)]
                self.world.network.send(transmit._replace(destinations=to), source, self.name, self._tag())
        self._arm(due_at)

    def _join(self, packets: list[Packet]) -> Iterator[Burst]:
        """Datagrams as the kernel hands them over: now and then a run of equal ones from one peer at once."""
        rng, joined = self.world.rng, self.world.options.joined
        run: list[Packet] = []
        for packet in packets:
            is_next = (
                run
                and len(run) < SEGMENTS_MAX
                and packet.source == run[0].source
                and 0 < len(packet.data) <= len(run[0].data) == len(run[-1].data)
                and rng.random() < joined
            )
            if run and not is_next:
                yield _burst(run)
                run = []
            run.append(packet)
        if run:
            yield _burst(run)

    def _arm(self, due_at: float | None) -> None:
        if due_at is None:
            self._timer_at = math.inf
            return
        time = self.world.clock.time
        at = due_at - self.clock_offset_s
        while at + self.clock_offset_s < due_at:
            at = math.nextafter(at, math.inf)  # or rounding would wake it for nothing, again and again
        self._spins = self._spins + 1 if at <= time else 0
        if self._spins > SPINS_MAX:
            self.world.violate("no-spinning", f"{self.name} wants to be called at once, {SPINS_MAX} times")
        if at != self._timer_at:
            self._timer_at = at
            self.world.clock.at(at, lambda: self._timer(at))

    def _tag(self) -> object:
        return self

    @abstractmethod
    def _show(self, packets: list[Packet], now: float, transmits: list[Transmit]) -> None:
        """Shows a turn to the checkers."""


def _burst(run: list[Packet]) -> Burst:
    return Burst(b"".join([packet.data for packet in run]), len(run[0].data), run[0].source)


def sent_datagrams(transmits: list[Transmit]) -> list[tuple[Address, bytes]]:
    """Each datagram of these transmits, with where it goes."""
    return [
        (destination, data)
        for transmit in transmits
        for destination in transmit.destinations
        for data in datagrams(transmit.data, transmit.segment_bytes)
    ]


class ServerHost(Host):
    """A server; each of its lives has a secret of its own, and begins with empty tables."""

    core: Server

    def __init__(self, world: "World", name: str, addresses: tuple[Address, ...]) -> None:
        super().__init__(world, name, addresses)
        self.drained_since: float | None = None  # on its own clock: when it was last told to end
        self._back_at: float | None = None
        self.knew: set[Address] = set()
        """Who had a cookie of one of its earlier lives."""
        self._restart_after_s: float | None = None
        self._start()

    def unreachable(self, address: Address) -> None:
        """A server asks for no such reports: leases end by themselves."""

    def _start(self) -> None:
        options = self.world.options
        tap = TapRecord()
        self.boot = Boot(self.name, self.address, options, tap)
        self.core = self.world.make_server(
            secret=self.world.rng.randbytes(32),
            ttl_s=options.ttl_s,
            table=options.table,
            limits=options.limits,
            work_bits=options.work_bits,
            head=options.head,
            own_addresses=frozenset(self.addresses),
            router=_ROUTERS[int(self.name[1:]) % len(_ROUTERS)],
            tap=tap,
        )
        self._timer_at = math.inf

    @property
    def is_draining(self) -> bool:
        return self.is_up and self.boot.draining_since is not None

    def restart(self) -> None:
        """Comes up again, if it is down, knowing nothing."""
        if not self.is_up:
            self.is_up = True
            self._back_at = self.now
            self.knew.update(self.boot.received)
            self._start()

    @property
    def is_restarting(self) -> bool:
        """Whether it drains, or is down after that, or has not been back for as long as subscribers need."""
        if self.drained_since is None:
            return False
        if self._back_at is None or self._back_at < self.drained_since:
            return True
        options = self.world.options
        back_s = options.renewal_interval_s + options.minting_s + RETURN_SLACK_S
        return self.now < self._back_at + back_s

    def drain(self, restart_after_s: float | None = None) -> None:
        """SIGTERM: it ends when it has drained, and may come up again some time after that."""
        if self.is_up and not self.is_paused and not self.is_draining:
            self._restart_after_s = restart_after_s
            self.drained_since = self.boot.draining_since = self.now
            self.core.start_drain(self.now)
            self.turn()

    def turn(self) -> None:
        super().turn()
        if self.is_draining and self.core.is_drained(self.now):
            self.world.server_ended(self)
            self.crash()
            if self._restart_after_s is not None:
                self.world.clock.after(self._restart_after_s, self.restart)

    def _tag(self) -> object:
        return self.boot

    def _show(self, packets: list[Packet], now: float, transmits: list[Transmit]) -> None:
        self.world.server_turn(ServerTurn(self, self.boot, now, packets, sent_datagrams(transmits)))


class ClientHost(Host):
    """A client with its application, behind a NAT that may move it to another address."""

    core: ClientCore

    def __init__(self, world: "World", name: str, addresses: tuple[Address, ...], view: View) -> None:
        super().__init__(world, name, addresses)
        options = world.options
        self.view = view
        # By turns in native code and in Python: that must make no difference.
        is_native = len(world.clients) % 2 == 0
        self.copies = CopyFilter(window_count=options.window_count, is_native=is_native)
        self.gaps = GapTracker(publishers_max=options.publishers_max)
        self.core = world.make_client(
            view.cluster,
            Random(world.rng.getrandbits(64)),
            avoid_dead=options.avoid_dead,
            families=frozenset(map(family_of, addresses)),
            copies=self.copies,
            gaps=self.gaps,
        )
        self.core.sessions.spending.try_s = options.try_s
        self._path = world.make_path(self.core)
        self._views: list[View] = []  # beside its own, those of changes that are not over yet
        self.subscribed: dict[bytes, float] = {}  # decoded topic -> since when, in virtual time
        self._believed: dict[bytes, frozenset[Address]] = {}
        self._asked: frozenset[Address | None] = frozenset()
        self._is_slice_planned = False
        self.seqs: dict[bytes, int] = {}
        self.together: dict[int, tuple[float, int]] = {}  # when, and how many messages, by handle

    @property
    def endpoint(self) -> Endpoint:
        return self._path

    @property
    def can_act(self) -> bool:
        return self.is_up and not self.is_paused

    def believed(self, wire_topic: bytes) -> frozenset[Address]:
        """The servers that it takes copies of this topic from: none, if it does not subscribe.

        A server with two addresses is one, and asked at one of them at a time. Copies that come by a lease
        that the client had by way of the other are not taken.
        """
        believed = self._believed.get(wire_topic, frozenset())
        return believed & self._asked if self.world.options.dual else believed

    def subscribe(self, topic: bytes, guard: Guard | None = None) -> None:
        if self.can_act and topic not in self.subscribed:
            self.subscribed[topic] = self.world.clock.time
            self._believed[wire.encode_topic(topic)] = self.world.server_addresses(self, topic)
            self.core.subscribe(topic, self.now, guard=guard)
            self.turn()

    def set_wall_clock(self, error_s: float) -> None:
        """Sets its wall clock, which is wrong by this much (positive: fast)."""
        self.core.clock_offset_s = START_UNIX_S + error_s - self.clock_offset_s

    def adopt(self, view: View, from_unix_s: float | None = None) -> None:
        """Reads a changed list, which holds at once, or from a time on by its own wall clock. For a while it
        takes copies from servers of either view."""
        wait_s, until_s = 0.0, views.OVERLAP_S
        if from_unix_s is not None:
            wait_s = from_unix_s - (self.now + self.core.clock_offset_s)
            late_s = wait_s + views.LATE_S + 2 * self.world.options.ttl_s
            until_s = late_s if wait_s > 0 else max(until_s, late_s)
        both = [self.view, view]
        self._views += both
        self.core.adopt(view.cluster, self.now, from_unix_s)
        if wait_s <= 0:
            self._go_by(view)
        else:
            self.world.clock.after(wait_s, partial(self._go_by, view))
        self._believe()
        self.turn()
        self.world.clock.after(max(0.0, until_s), partial(self._end_overlap, both))

    def may_hold(self, several: Iterable[View]) -> None:
        """Takes copies from servers of these views too, from now on."""
        self._views += several
        self._believe()

    def _go_by(self, view: View) -> None:
        self.view = view

    def _believe(self) -> None:
        for topic in self.subscribed:
            servers = (server for view in (self.view, *self._views) for server in view.servers(topic))
            addresses = (address for server in servers for address in server.addresses)
            self._believed[wire.encode_topic(topic)] = frozenset(addresses)

    def _end_overlap(self, both: list[View]) -> None:
        for view in both:
            self._views.remove(view)
        self._believe()
        self.turn()

    def unsubscribe(self, topic: bytes) -> None:
        if self.can_act and topic in self.subscribed:
            del self.subscribed[topic], self._believed[wire.encode_topic(topic)]
            self.core.unsubscribe(topic)
            self.turn()

    def publish(
        self, topic: bytes, payloads: list[bytes], *, repeat: int = 1, confirm: bool = True, raw: bool = False
    ) -> None:
        """Publishes all of them in one turn."""
        if not self.can_act:
            return
        for payload in payloads:
            self.world.ledger.publish(self, topic, payload, confirm=confirm, raw=raw)
            self.core.publish(topic, payload, self.now, repeat=repeat, confirm=confirm, raw=raw)
        self.turn()

    def publish_many(
        self, topic: bytes, payloads: list[bytes], *, confirm: bool = True, raw: bool = False
    ) -> None:
        """Publishes all of them together."""
        if not self.can_act:
            return
        for payload in payloads:
            self.world.ledger.publish(self, topic, payload, confirm=confirm, raw=raw)
        handle = self.core.publish_many(topic, payloads, self.now, confirm=confirm, raw=raw)
        self.together[handle] = self.world.clock.time, len(payloads)
        self.turn()

    def turn(self) -> None:
        if self.world.options.dual:  # else it makes no difference
            self._asked = frozenset(session.address for session in self.core.sessions.all())
        super().turn()
        if self.core.is_minting and not self._is_slice_planned:
            self._is_slice_planned = True
            self.world.clock.after(SLICE_S, self._slice)

    def _slice(self) -> None:
        """A millisecond of looking for a stamp is over; a turn comes after each."""
        self._is_slice_planned = False
        if self.can_act and self.core.is_minting:
            self.core.work(self.world.options.tries_per_ms, self.now)
            self.turn()

    def rebind(self, address: Address) -> None:
        """The NAT gives it another address of a family; the old one leads nowhere from now on."""
        old = next(each for each in self.addresses if family_of(each) == family_of(address))
        self.world.network.unbind(old)
        self.addresses = tuple([address if each == old else each for each in self.addresses])
        self.world.network.bind(address, self)

    def unreachable(self, address: Address) -> None:
        if self.can_act:
            self.core.handle_unreachable(address, self.now)
            self.turn()

    def _note_cookies(self, packet: Packet) -> None:
        """Takes note of what came. A replay may come from one family to the address of the other: a client
        goes by the source, and answers from its address of that family."""
        to = (each for each in self.addresses if family_of(each) == family_of(packet.source))
        if family_of(packet.destination) != family_of(packet.source):
            packet = packet._replace(destination=next(to, packet.destination))
        self.world.note_cookies(packet)

    def _show(self, packets: list[Packet], now: float, transmits: list[Transmit]) -> None:
        for packet in packets:
            self._note_cookies(packet)
        events: list[Told] = self.core.events()
        self.world.client_turn(ClientTurn(self, now, packets, sent_datagrams(transmits), events))
