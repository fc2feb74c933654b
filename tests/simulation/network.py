"""Virtual time, and a network that does to datagrams what networks do. Every chance comes from one seed.

Loss, duplication and delay are drawn for each datagram; what one transmit sends together arrives together
unless it is reordered, so that the receiving host can join it into bursts as the kernel does. A partition
takes what is sent while it stands; what is on its way arrives.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import NamedTuple, Protocol

from kcast.pubsub.endpoint import Address, Transmit, datagrams
from tests.simulation.options import Options

REORDER_S = 0.3


def family_of(address: Address) -> int:
    return 6 if ":" in address[0] else 4


class Clock:
    """The events to come, in order of time; equal times in the order in which they were planned."""

    def __init__(self) -> None:
        self.time = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plans an action; one in the past happens now."""
        self._planned += 1
        heapq.heappush(self._events, (max(time, self.time), self._planned, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.time + delay_s, action)

    def run_until(self, time: float) -> None:
        """Does all that falls due until then."""
        while self._events and self._events[0][0] <= time:
            self.time, _, action = heapq.heappop(self._events)
            action()
        self.time = time


class Packet(NamedTuple):
    """A datagram on its way. `sender` is who really sent it, whatever it claims; None is an attacker."""

    data: bytes
    source: Address
    destination: Address
    sender: object


class Receiver(Protocol):
    """Something that an address can lead to."""

    name: str

    @property
    def is_up(self) -> bool: ...

    def arrive(self, packets: list[Packet]) -> None: ...

    def unreachable(self, address: Address) -> None: ...


class Network:
    """Carries datagrams between addresses. `fates` counts what became of them."""

    def __init__(self, options: Options, clock: Clock, rng: Random) -> None:
        self.clock = clock
        self.loss = options.loss
        self.duplicate = options.duplicate
        self.reorder = options.reorder
        self.fates: Counter[str] = Counter()
        self.in_flight = 0
        self.blocked: set[tuple[str, str] | tuple[str, str, int]] = set()
        """Pairs of hosts, from and to; with a family, what goes by it."""
        self.recent: list[Packet] = []
        self._uneven = options.uneven
        self._delay_s = options.delay_s
        self._unreachable = options.unreachable
        self._rng = rng
        self._receivers: dict[Address, Receiver] = {}
        self._legs: dict[tuple[str, str], tuple[float, float]] = {}
        self._digest = blake2b()

    @property
    def digest(self) -> str:
        """A hash of every datagram sent, with its time, source and destination."""
        return self._digest.hexdigest()

    def bind(self, address: Address, receiver: Receiver) -> None:
        self._receivers[address] = receiver

    def unbind(self, address: Address) -> None:
        """What is sent there from now on, or is on its way there, reaches nobody."""
        self._receivers.pop(address, None)

    def send(self, transmit: Transmit, source: Address, name: str, sender: object) -> None:
        """Sends to every destination; `name` is the sending host, `sender` stands in the packets."""
        for destination in transmit.destinations:
            delay_s = None
            together: list[Packet] = []
            for data in datagrams(transmit.data, transmit.segment_bytes):
                packet = Packet(data, source, destination, sender)
                self._note(packet)
                for _ in range(self._copies(packet, name)):
                    if delay_s is None or self._rng.random() < self.reorder:
                        self._carry(together, delay_s)
                        together, delay_s = [], self._draw_delay_s(name, destination)
                    together.append(packet)
            self._carry(together, delay_s)

    def _note(self, packet: Packet) -> None:
        self.fates["sent"] += 1
        self._digest.update(b"%r %r %r " % (self.clock.time, packet.source, packet.destination))
        self._digest.update(packet.data)
        if len(self.recent) < 256:
            self.recent.append(packet)
        else:
            self.recent[self._rng.randrange(256)] = packet

    def _copies(self, packet: Packet, name: str) -> int:
        """How many of this datagram arrive: usually one."""
        receiver = self._receivers.get(packet.destination)
        if receiver is not None and self._is_blocked(name, receiver.name, packet.destination):
            self.fates["partitioned"] += 1
            return 0
        loss, _ = self._leg(name, packet.destination)
        if loss and self._rng.random() < loss * self.loss:
            self.fates["lost"] += 1
            return 0
        if self.duplicate and self._rng.random() < self.duplicate:
            self.fates["duplicated"] += 1
            return 2
        return 1

    def _is_blocked(self, sender: str, receiver: str, destination: Address) -> bool:
        if not self.blocked:
            return False
        by_family = sender, receiver, family_of(destination)
        return (sender, receiver) in self.blocked or by_family in self.blocked

    def _leg(self, name: str, destination: Address) -> tuple[float, float]:
        """How lossy this direction between two hosts is, by which factor, and its delay."""
        receiver = self._receivers.get(destination)
        key = name, receiver.name if receiver else ""
        leg = self._legs.get(key)
        if leg is None:
            loss = self._rng.choice((0.0, 1.0, 1.0, 1.5)) if self._uneven else 1.0
            leg = self._legs[key] = loss, self._delay_s * self._rng.uniform(0.5, 2.0)
        return leg

    def _draw_delay_s(self, name: str, destination: Address) -> float:
        delay_s = self._leg(name, destination)[1] * self._rng.uniform(0.9, 1.2)
        if self._rng.random() < self.reorder:
            delay_s += self._rng.uniform(0.0, REORDER_S)
        return delay_s

    @property
    def delay_s_max(self) -> float:
        """No datagram is longer on its way."""
        return self._delay_s * 2.0 * 1.2 + (REORDER_S if self.reorder else 0.0)

    def _carry(self, packets: list[Packet], delay_s: float | None) -> None:
        if packets:
            assert delay_s is not None
            self.in_flight += len(packets)
            self.clock.after(delay_s, lambda: self._arrive(packets))

    def _arrive(self, packets: list[Packet]) -> None:
        self.in_flight -= len(packets)
        receiver = self._receivers.get(packets[0].destination)
        if receiver is None:
            self.fates["unbound"] += len(packets)
        elif receiver.is_up:
            receiver.arrive(packets)
        else:
            self.fates["host-down"] += len(packets)
            # Only to whom the source really leads, as a host that is down would answer it.
            sender = self._receivers.get(packets[0].source)
            if sender is not None and self._rng.random() < self._unreachable:
                address = packets[0].destination
                self.clock.after(self._delay_s, lambda: sender.unreachable(address))
