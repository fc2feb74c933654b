"""Pings servers, and measures how long their answers take: for `kcast ping` and `kcast top`."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kcast.client.clusters.cluster import Cluster
from kcast.client.driving.resolver import look_up_all
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.udp import UdpPort, open_socket

# Longer than today's pong: a server never answers at greater length than it was asked, and may have more to
# say in future.
PING_BYTES = 64
NO_ADDRESS = "down: the name leads to no address"
SPREAD_S = 0.0005  # between two servers, so that answers of a large cluster do not arrive all at once


@dataclass
class Target:
    """One address of a server, and the results of pinging it."""

    server: str
    address: Address | None  # None where the server's name does not resolve
    label: str = ""  # for people: the server, and which of its addresses
    sent: int = 0
    rtts_s: list[float] = field(default_factory=list)
    refused: bool = False  # the network says that nobody listens at this port
    unsent: str = ""  # the name of the error because of which a ping could not be sent
    problem: str = ""  # why it was not asked
    is_draining: bool = False
    work_bits: int | None = None  # its price of a new lease; None if it has not said
    head: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether it has answered at all."""
        return bool(self.rtts_s)

    @property
    def loss(self) -> float:
        """The share of pings without an answer."""
        return 1 - len(self.rtts_s) / self.sent if self.sent else 1.0

    @property
    def state(self) -> str:
        """Returns the state in words."""
        if self.is_up:
            return "up, about to stop" if self.is_draining else "up"
        if self.unsent:
            return f"down: cannot send ({self.unsent})"
        return self.problem or ("down: nobody listens" if self.refused else "down: no answer")


def targets_of(cluster: Cluster) -> list[Target]:
    """Returns each address of each server; named servers are looked up, which may take some seconds."""
    found = look_up_all([server.named for server in cluster.servers if server.named])
    targets = []
    for server in cluster.servers:
        if server.named is None:
            targets += [Target(server.name, at, format_address(at)) for at in server.addresses]
        elif several := found[server.named]:
            targets += [Target(server.name, at, f"{server.name} ({at[0]})") for at in several]
        else:
            targets.append(Target(server.name, None, server.name, problem=NO_ADDRESS))
    return targets


class Pinger:
    """Sends pings and takes the answers, with one socket for each address family. Use it with `with`."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._target_at = {target.address: target for target in targets if target.address}
        self._ports: dict[bool, UdpPort] = {}
        self._awaited: dict[bytes, tuple[Target, float]] = {}
        self._asked: dict[bytes, Target] = {}
        self._all_answered = asyncio.Event()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for port in self._ports.values():
            asyncio.get_running_loop().remove_reader(port.fileno())
            port.close()

    async def ping_all(self, *, asks: bool = False) -> None:
        """Pings each target that can be reached from here; with `asks` also asks for price and head."""
        for target in self._targets:
            if target.problem:
                continue
            if asks:
                self._ask(target)
            self._ping(target)
            if len(self._targets) > 1:
                await asyncio.sleep(SPREAD_S)

    def give_up(self, timeout_s: float) -> None:
        """Awaits no longer what was sent this long ago."""
        now = clock.now()
        self._awaited = {n: (t, at) for n, (t, at) in self._awaited.items() if now - at < timeout_s}

    def awaited(self) -> Counter[Address]:
        """Returns the number of pings to each address that may still be answered."""
        return Counter(target.address for target, _ in self._awaited.values() if target.address)

    def move(self, target: Target, address: Address) -> None:
        """Pings a target at another address from now on, and awaits no answer of the old one."""
        self._awaited = {n: (t, at) for n, (t, at) in self._awaited.items() if t is not target}
        if target.address is not None:
            del self._target_at[target.address]
        target.address, target.problem = address, ""
        self._target_at[address] = target
        self._open()

    async def wait(self, timeout_s: float) -> None:
        """Returns when every ping has been answered, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._awaited:
                    self._all_answered.clear()
                    await self._all_answered.wait()
        except TimeoutError:
            pass

    def _open(self) -> None:
        """Opens a socket for each address family of which there are targets, and none yet."""
        families = {_is_v6(target) for target in self._targets if target.address}
        for is_v6 in sorted(families - self._ports.keys()):
            try:
                sock = open_socket("::" if is_v6 else "0.0.0.0", 0, report_unreachable=True)
            except OSError as error:
                if not is_v6:
                    raise
                for target in filter(_is_v6, self._targets):
                    target.problem = f"not asked: no IPv6 here ({error.strerror})"
            else:
                self._ports[is_v6] = port = UdpPort(sock)
                asyncio.get_running_loop().add_reader(port.fileno(), self._receive, port)

    def _ping(self, target: Target) -> None:
        assert target.address is not None  # else it has a problem
        port = self._ports[_is_v6(target)]
        nonce = _new_nonce()
        ping = wire.pad(wire.format_line(wire.Ping(nonce)), PING_BYTES)
        target.sent += 1
        errors_before = port.send_errors.copy()
        sent_at = clock.now()
        port.send([Transmit(ping, len(ping), (target.address,))])
        error = next(iter(port.send_errors - errors_before), None)
        if error is None:
            self._awaited[nonce] = target, sent_at
        else:
            target.unsent = error

    def _ask(self, target: Target) -> None:
        """Asks once for a challenge, which tells price and head; its time is not measured."""
        nonce = _new_nonce()
        self._asked[nonce] = target
        request = wire.request_datagram(wire.Ask(nonce))
        assert target.address is not None
        self._ports[_is_v6(target)].send([Transmit(request, len(request), (target.address,))])

    def _receive(self, port: UdpPort) -> None:
        for burst in port.receive():
            for datagram in datagrams(burst.data, burst.segment_bytes):
                self._take(datagram, burst.source, clock.now())
        for address in port.unreachable():
            target = self._target_at.get(address)
            if target is not None:
                target.refused = True
                # A report does not say which ping it is about; others under way will fare no better.
                self._awaited = {n: (t, at) for n, (t, at) in self._awaited.items() if t is not target}
        if not self._awaited:
            self._all_answered.set()

    def _take(self, datagram: bytes, source: Address, now: float) -> None:
        for line in wire.split_lines(datagram)[0]:
            reply = wire.parse_reply(line)
            if isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                target, sent_at = self._awaited[reply.nonce]
                if source == target.address:
                    del self._awaited[reply.nonce]
                    target.rtts_s.append(now - sent_at)
                    target.is_draining = reply.attributes.get("drain") == "1"
            elif isinstance(reply, wire.Challenge) and reply.nonce in self._asked:
                target = self._asked[reply.nonce]
                if source == target.address:
                    del self._asked[reply.nonce]
                    target.work_bits = reply.bits
                    target.head = reply.attributes.get("head")


def _new_nonce() -> bytes:
    return secrets.token_urlsafe(12).encode()


def _is_v6(target: Target) -> bool:
    return target.address is not None and ":" in target.address[0]
