"""What `process_host` and `lab_host` have in common: requests, server options, sockets.

A host is a program that runs servers for its owner, another process. It reads requests from standard input
and answers each, one JSON object per line; `hosted_servers` is the owner's side. When its input ends, the
owner has ended, and the host ends too.
"""

import errno
import json
import os
import resource
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import click

from kcast.client.cli.usage import one_line
from kcast.loadtest.clusters.server_names import server_key, tap_path
from kcast.pubsub.endpoint import Burst, Transmit, datagram_count
from kcast.pubsub.inlet import BURSTS_MAX
from kcast.pubsub.listen import ListenError, is_taken, open_ports
from kcast.pubsub.log import Log
from kcast.pubsub.process import ServeSettings
from kcast.pubsub.serve import PORT_DEFAULT, Given, parse
from kcast.pubsub.udp import UdpPort

_PORT_MIN = 10_000
_PORT_TRIES = 1000
_OWN_FILES = 100  # files that a host has open beside those of its servers
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

Handlers = Mapping[str, Callable[..., Any]]


# --- Isolation ---------------------------------------------------------------------------------------


Flags = bytearray | mmap
"""One byte per server: not 0 if it is isolated. If several processes use it, it is shared memory."""


class IsolatablePort(UdpPort):
    """A port that receives and sends nothing while its flag is set; `cut_off` counts the datagrams lost so.

    What arrives meanwhile is read and dropped, so that it does not arrive later.
    """

    def __init__(self, sock: socket.socket, flags: Flags, index: int) -> None:
        super().__init__(sock)
        self.cut_off = 0  # datagrams
        self._flags = flags
        self._index = index

    def receive(self, bursts_max: int = BURSTS_MAX) -> list[Burst]:
        """Receives like any port; returns nothing while isolated."""
        bursts = super().receive(bursts_max)
        if self._flags[self._index]:
            self.cut_off += sum(datagram_count(len(burst.data), burst.segment_bytes) for burst in bursts)
            return []
        return bursts

    def send(self, transmits: Iterable[Transmit]) -> None:
        """Sends like any port; sends nothing while isolated."""
        if self._flags[self._index]:
            self.cut_off += sum(
                datagram_count(len(data), segment_bytes) * len(destinations)
                for data, segment_bytes, destinations, _ in transmits
            )
        else:
            super().send(transmits)


def count_cut_off(ports: Sequence[UdpPort]) -> int:
    """Returns the number of datagrams that isolation has kept from passing these ports."""
    return sum(port.cut_off for port in ports if isinstance(port, IsolatablePort))


# --- Servers -----------------------------------------------------------------------------------------


class Refused(Exception):
    """A request cannot be met; the message is for the user who runs the load test."""


class ServerState(NamedTuple):
    """The state of a server, as its host reports it. `lives` counts how often it was started."""

    is_running: bool
    port: int
    process_id: int | None
    lives: int


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of a host's servers."""

    count: int
    given: Given
    tap_dir: str | None

    @classmethod
    def of(cls, count: int, options: list[str], tap_dir: str | None) -> "HostOptions":
        """Parses options of `kcast serve`.

        Raises Refused for options that are unknown, or that the cluster sets itself.
        """
        try:
            given = parse(options)
        except click.UsageError as error:
            raise Refused(f"the servers' options: {one_line(error)}") from None
        except click.exceptions.Exit:
            raise Refused("the servers' options: one of them runs no server") from None
        own = ("--workers", "--count", "--tap", "--port")
        if (given.workers, given.count, given.tap, given.port) != (None, None, None, PORT_DEFAULT):
            raise Refused(f"the servers' options: {', '.join(own)} are not for the servers of a cluster")
        return cls(count, given, tap_dir)

    def settings(self, index: int, life: int) -> ServeSettings:
        """Returns the settings of a server's life, counted from 1."""
        tap = None if self.tap_dir is None else str(tap_path(Path(self.tap_dir), index, life))
        return replace(self.given.settings(), tap=tap)

    def open_sockets(self, index: int, port: int, flags: Flags) -> list[UdpPort]:
        """Opens a server's sockets, on any free port for `port` 0. Raises ListenError."""

        def open_at(port: int) -> list[UdpPort]:
            return open_ports(
                self.given.hosts,
                port,
                receive_buffer_bytes=self.given.receive_buffer,
                make=lambda sock: IsolatablePort(sock, flags, index),
            )

        if port:
            try:
                return open_at(port)
            except ListenError as error:
                if not is_taken(error):
                    raise
                raise ListenError("its port is in use: another program took it; try again") from error
        # Not a port that the system gives out: a client could get it while the server is down.
        lasting = range(_PORT_MIN, _ephemeral_port_min())
        for _ in range(_PORT_TRIES if len(lasting) > 1000 else 0):
            try:
                return open_at(secrets.choice(lasting))
            except ListenError as error:
                if not is_taken(error):
                    raise
        return open_at(0)


def _ephemeral_port_min() -> int:
    try:
        return int(_EPHEMERAL.read_text("ascii").split()[0])
    except (OSError, ValueError):
        return 32_768


class HostedServer(ABC):
    """A server that a host runs. It keeps its number, key and port in all its lives."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.key = server_key(index)
        self.port = 0  # 0 until it has started once
        self.lives = 0
        self.process_id: int | None = None  # None while it does not run
        self.is_stalled = False

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.process_id is not None

    @abstractmethod
    def stall(self) -> None:
        """Halts it, if it runs."""

    @abstractmethod
    def resume(self) -> None:
        """Lets it continue, if it is stalled."""

    def failure(self, what: str) -> Refused:
        """Returns the error that it did not start."""
        where = f" (port {self.port})" if self.port else ""
        return Refused(f"{self.key}{where} did not start: {what}")


ServerT = TypeVar("ServerT", bound=HostedServer)


class Host(Generic[ServerT]):
    """The requests that both hosts carry out alike. Changes are answered with the state of all servers."""

    verbs: tuple[str, ...] = (
        *("open", "states", "start", "kill", "stop"),
        *("stall", "resume", "isolate", "rejoin"),
    )

    def __init__(self) -> None:
        self.servers: list[ServerT] = []
        self.flags: Flags = bytearray()

    @property
    def handlers(self) -> Handlers:
        """What carries out each request."""
        return {verb: getattr(self, verb) for verb in self.verbs}

    def states(self) -> list[ServerState]:
        """Returns the state of all servers."""
        return [ServerState(s.is_running, s.port, s.process_id, s.lives) for s in self.servers]

    def stall(self, servers: list[int]) -> list[ServerState]:
        """Halts servers."""
        for index in servers:
            self.servers[index].stall()
        return self.states()

    def resume(self, servers: list[int]) -> list[ServerState]:
        """Lets stalled servers continue."""
        for index in servers:
            self.servers[index].resume()
        return self.states()

    def isolate(self, servers: list[int]) -> None:
        """Cuts servers off from the network."""
        for index in servers:
            self.flags[index] = 1

    def rejoin(self, servers: list[int]) -> None:
        """Ends the isolation of servers."""
        for index in servers:
            self.flags[index] = 0


def allow_files(count: int) -> None:
    """Raises this process's limit of open files to `count` and some. Raises Refused if it must not."""
    wanted = count + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Refused(f"these servers need {wanted} open files, {hard} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def take_replies_output() -> BinaryIO:
    """Returns standard output, for replies only; from now on anything printed goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return replies


def answer(line: bytes, handlers: Handlers) -> bytes:
    """Carries out a request, and returns the reply."""
    request = json.loads(line)
    reply: dict[str, Any] = {"id": request.pop("id")}
    try:
        reply["value"] = handlers[request.pop("do")](**request)
    except Refused as error:
        reply["refused"] = str(error)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reply["refused"] = f"the servers' host: {error.strerror or error}"
    return json.dumps(reply).encode() + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, also into a pipe that takes only a part at a time."""
    while data:
        data = data[os.write(descriptor, data) :]


def say_cut_off(ports: Sequence[UdpPort], log: Log) -> None:
    """Logs how many datagrams a server's isolation has dropped, if any."""
    count = count_cut_off(ports)
    if count:
        log.info("isolated", f"cut off while isolated: {count} datagrams", datagrams=count)
