"""Lets probes talk with servers: UDP sockets in one thread, without an event loop, which loads slowly."""

from collections.abc import Callable, Iterable
from math import inf
from random import SystemRandom
from selectors import EVENT_READ, DefaultSelector
from typing import Self

import click

from kcast.client.cli.probe import Probe
from kcast.client.clusters.cluster import Cluster, parse_address
from kcast.client.driving.resolver import look_up_all
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.udp import UdpPort, open_socket

_RNG = SystemRandom()
_OF_EARLIER = ("ECONNREFUSED", "EMSGSIZE")  # errors that tell of an earlier datagram, or of its length


class Probing:
    """Each probe has a socket; with `is_shared`, all of one IP version have one. Use it with `with`.

    Raises OSError where there is no socket for IPv4; without one for IPv6, its probes get a `problem`.
    """

    def __init__(self, probes: Iterable[Probe] = (), *, is_shared: bool = False) -> None:
        self._shared: dict[bool, UdpPort] | None = {} if is_shared else None
        self._port_of: dict[Probe, UdpPort] = {}
        self._probe_at: dict[tuple[UdpPort, Address | None], Probe] = {}  # None: all that comes there
        self._selector = DefaultSelector()
        for probe in probes:
            self.add(probe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for port in {port for port, _ in self._probe_at}:
            port.close()

    def add(self, probe: Probe) -> None:
        """Lets a probe take part, if it has an address."""
        if probe.address is None:
            return
        is_v6 = ":" in probe.address[0]
        port = None if self._shared is None else self._shared.get(is_v6)
        if port is None:
            try:
                port = UdpPort(open_socket("::" if is_v6 else "0.0.0.0", 0, report_unreachable=True))
            except OSError as error:
                if not is_v6:
                    raise
                probe.problem = f"not asked: no IPv6 here ({error.strerror})"
                return
            self.watch(port, self._receive)
        if self._shared is None:
            self._probe_at[port, None] = probe
        else:
            self._shared[is_v6] = port
        self._port_of[probe] = port
        self._probe_at[port, probe.address] = probe

    def move(self, probe: Probe, address: Address) -> None:
        """Asks at another address from now on, and awaits no answer of the old one."""
        if probe in self._port_of:
            del self._probe_at[self._port_of[probe], probe.address]
        probe.address, probe.problem = address, ""
        probe.awaited.clear()
        self.add(probe)

    def watch(self, what: UdpPort | int, callback: Callable[..., None]) -> None:
        """Calls back, with what there is to read, whenever there is something."""
        self._selector.register(what, EVENT_READ, callback)

    def send(self, probe: Probe, *data: bytes) -> None:
        """Sends datagrams."""
        port, address = self._port_of[probe], probe.address
        assert address is not None
        for datagram in data:
            before = port.send_errors.copy()
            port.send([Transmit(datagram, len(datagram), (address,))])
            for name in port.send_errors - before:
                probe.send_error = probe.send_error or name * (name not in _OF_EARLIER)

    def ping_all(self, *, asks: bool = False) -> None:
        """Pings at each address that can be asked; with `asks` also asks for price, head and version."""
        for probe in self._port_of:
            if asks:
                self.send(probe, probe.ask())
            self.send(probe, probe.ping(clock.now()))
            self._poll(0.0)  # so that no answer waits for the next pings

    def deal(
        self,
        probes: Iterable[Probe],
        until: float = inf,
        is_over: Callable[[Probe], bool] = lambda probe: False,
    ) -> None:
        """Lets each go through a client's dealings, which it has begun, until it is over or settled, or the
        time has come."""
        dealing, now = [probe for probe in probes if probe in self._port_of], clock.now()
        while dealing and now < until:
            for probe in dealing:
                self.send(probe, *probe.datagrams_to_send(clock.now()))
            self._poll(min(until, *(probe.next_timeout() for probe in dealing)) - clock.now())
            now = clock.now()
            for probe in dealing:
                probe.look(now)
            dealing = [probe for probe in dealing if not (is_over(probe) or probe.is_settled(now))]

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Takes what has come, and what comes until it is over, or the time has come."""
        left_s = until - clock.now()
        while not is_over():
            self._poll(left_s)
            if (left_s := until - clock.now()) <= 0:
                return

    def _poll(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            key.data(key.fileobj)

    def _receive(self, port: UdpPort) -> None:
        own = self._probe_at.get((port, None))
        for burst in port.receive():
            if probe := self._probe_at.get((port, burst.source)) or own:
                for datagram in datagrams(burst.data, burst.segment_bytes):
                    self.send(probe, *probe.take(datagram, burst.source, clock.now()))
        for address in port.unreachable():
            if probe := self._probe_at.get((port, address)):
                probe.close()
        if own:
            own.network_error = next((each for each in port.receive_errors if each not in _OF_EARLIER), "")


def probes_of(cluster: Cluster) -> list[Probe]:
    """Returns a probe of each address of each server; named servers are looked up, which may take seconds."""
    found = look_up_all([server.named for server in cluster.servers if server.named])
    probes = []
    for server in cluster.servers:
        if server.named is None:
            probes += [Probe(server.name, at, _RNG, format_address(at)) for at in server.addresses]
        elif several := found[server.named]:
            probes += [Probe(server.name, at, _RNG, f"{server.name} ({at[0]})") for at in several]
        else:
            probes.append(Probe(server.name, None, _RNG))
    return probes


def address_argument(ctx: click.Context, param: click.Parameter, value: str | None) -> Address | None:
    """Reads an argument IP:PORT, as click calls it."""
    try:
        return None if value is None else parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
