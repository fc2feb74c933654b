"""A client core and a server that forwards only for credit, a round trip apart, in virtual time. §7.7."""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.server import Server
from tests.support.server_core import answer, handshake, send

SERVER: Address = ("192.0.2.1", 7400)
SUBSCRIBER: Address = ("198.51.100.1", 1000)
PUBLISHER: Address = ("203.0.113.9", 1000)
START = 1000.0


class CreditServer:
    """A server, with one publisher that holds a publish lease there.

    `sent` and `dropped` have the time of each copy for the client, `asked` that of each of its datagrams and
    how that begins. With `told`, it tells of that much credit, or of none with "".
    """

    def __init__(self, ttl_s: int = 60, told: str | None = None) -> None:
        self.sent: list[float] = []
        self.dropped: list[float] = []
        self.asked: list[tuple[float, bytes]] = []
        self._told = told
        self._core = Server(secret=bytes(32), ttl_s=ttl_s)
        self._vouch(START)

    def _vouch(self, now: float) -> None:
        """Lets the publisher open its publish lease, or renew it."""
        vouch = wire.Vouch(b"p", handshake(self._core, PUBLISHER, now), None)
        assert answer(self._core, wire.request_datagram(vouch), PUBLISHER, now)

    def answer(self, datagram: bytes, now: float) -> bytes:
        """Takes a datagram of the client; returns the answer."""
        self.asked.append((now, datagram[:2]))
        self._core.handle_timeout(now)
        self._vouch(now)
        ((_, data),) = send(self._core, datagram, SUBSCRIBER, now)
        receipt = wire.parse_reply(wire.split_lines(data)[0][0])
        if self._told is None or not isinstance(receipt, wire.Receipt):
            return data
        attributes = {"credit": self._told} if self._told else {}
        return wire.format_line(receipt._replace(attributes=attributes))

    def forwards(self, datagram: bytes, now: float) -> bool:
        """Takes what somebody publishes; returns whether it goes to the client."""
        copies = [each for each in send(self._core, datagram, PUBLISHER, now) if each[0] == SUBSCRIBER]
        (self.sent if copies else self.dropped).append(now)
        return bool(copies)


class CreditLine:
    """The two of them. `loses` says which datagrams of the client get lost, by number."""

    def __init__(self, rtt_s: float, server: CreditServer) -> None:
        self.now = START
        self.server = server
        self.loses: Callable[[int], bool] = lambda number: False
        self.got: list[bytes] = []
        self._rtt_s = rtt_s
        self._asked = 0
        self._order = count()
        self._coming: list[tuple[float, int, bool, bytes]] = []  # at, order, to the client, datagram
        self.client = ClientCore(lab([SERVER], Policy(1, 1, 1)), Random(1))
        self.client.subscribe(b"t", self.now)
        self.turn()

    def publish(self, size_bytes: int) -> None:
        """Lets somebody publish a line so long."""
        line = (b"t %d " % next(self._order)).ljust(size_bytes - 1, b".") + b"\n"
        if self.server.forwards(line, self.now):
            self._send(True, line)

    def run_until(self, end: float) -> None:
        while True:
            due = self.client.next_timeout()
            arrives = self._coming[0][0] if self._coming else None
            at = min((each for each in (due, arrives) if each is not None), default=None)
            if at is None or at > end:
                break
            self.now = max(self.now, at)
            while self._coming and self._coming[0][0] <= self.now:
                _, _, is_for_client, datagram = heapq.heappop(self._coming)
                if is_for_client:
                    self.client.receive(Burst(datagram, len(datagram), SERVER), self.now)
                else:
                    self._send(True, self.server.answer(datagram, self.now))
            self.turn()
        self.now = end

    def turn(self) -> None:
        self.client.handle_timeout(self.now)
        for transmit in self.client.flush(self.now):
            for datagram in datagrams(transmit.data, transmit.segment_bytes):
                self._asked += 1
                if not self.loses(self._asked):
                    self._send(False, datagram)
        self.client.events()

    def _send(self, is_for_client: bool, datagram: bytes) -> None:
        at = self.now + self._rtt_s / 2
        heapq.heappush(self._coming, (at, next(self._order), is_for_client, datagram))
