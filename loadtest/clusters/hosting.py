"""What the two hosts, programs that run servers for an owner, have in common: requests, options, sockets.

A host gets a request a line on standard input, and answers each with a line: JSON objects, of which
`kcast.loadtest.clusters.hosted` has the other end. The end of its input is the end of its owner, and so its
own.
"""

import errno
import json
import os
import resource
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from kcast.loadtest.clusters.gate import Flags, Gate, cut_off
from kcast.pubsub.listen import ListenError, is_taken, open_ports
from kcast.pubsub.log import Log
from kcast.pubsub.process import ServeSettings
from kcast.pubsub.serve import PORT_DEFAULT, Given, parse
from kcast.pubsub.udp import UdpPort

_PORT_MIN = 10_000
_PORT_TRIES = 1000
_OWN_FILES = 100  # what a host has open beside its servers'
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

Handlers = Mapping[str, Callable[..., Any]]


class Refused(Exception):
    """A request that cannot be met; the message is for whoever runs the load test."""


class ServerState(NamedTuple):
    """A server as its host tells of it. `lives` counts how often it was started."""

    is_running: bool
    port: int
    process_id: int | None
    lives: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What the servers of a host are to be like."""

    count: int
    given: Given
    tap_dir: str | None

    @classmethod
    def of(cls, count: int, options: list[str], tap_dir: str | None) -> "Plan":
        """Raises Refused for options that `kcast serve` does not take, or that are the cluster's own."""
        try:
            given = parse(options)
        except click.ClickException as error:
            raise Refused(f"the servers' options: {error.format_message()}") from None
        except click.exceptions.Exit:
            raise Refused("the servers' options: one of them runs no server") from None
        own = ("--workers", "--count", "--tap", "--port")
        if (given.workers, given.count, given.tap, given.port) != (None, None, None, PORT_DEFAULT):
            raise Refused(f"the servers' options: {', '.join(own)} are not for the servers of a cluster")
        return cls(count, given, tap_dir)

    def settings(self, index: int, life: int) -> ServeSettings:
        """Those of a server's life, counted from 1."""
        tap = None if self.tap_dir is None else str(tap_path(Path(self.tap_dir), index, life))
        return replace(self.given.settings(), tap=tap)

    def open_gates(self, index: int, port: int, flags: Flags) -> list[UdpPort]:
        """A server's sockets; on any free port for 0. Raises ListenError."""

        def open_at(port: int) -> list[UdpPort]:
            return open_ports(
                self.given.hosts,
                port,
                receive_buffer_bytes=self.given.receive_buffer,
                make=lambda sock: Gate(sock, flags, index),
            )

        if port:
            try:
                return open_at(port)
            except ListenError as error:
                if not is_taken(error):
                    raise
                raise ListenError("its port is in use: another program took it; try again") from error
        # Not one of those that the system gives out: a client could get it while the server is down.
        lasting = range(_PORT_MIN, _ephemeral_port_min())
        for _ in range(_PORT_TRIES if len(lasting) > 1000 else 0):
            try:
                return open_at(secrets.choice(lasting))
            except ListenError as error:
                if not is_taken(error):
                    raise
        return open_at(0)


def server_key(index: int) -> str:
    """The key on the ring of the server with this number."""
    return f"server-{index + 1}"


def tap_path(folder: Path, index: int, life: int) -> Path:
    """The tap of a server's life, counted from 1: each has a file of its own."""
    return folder / f"{server_key(index)}-{life}.tap"


def _ephemeral_port_min() -> int:
    try:
        return int(_EPHEMERAL.read_text("ascii").split()[0])
    except (OSError, ValueError):
        return 32_768


def allow_files(count: int) -> None:
    """Lets this process have so many files open beside its own. Raises Refused where the system does not."""
    wanted = count + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Refused(f"so many servers need {wanted} open files, {hard} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def take_replies_output() -> BinaryIO:
    """What was standard output, for replies alone: whatever else is printed goes where errors go."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return replies


def answer(line: bytes, handlers: Handlers) -> bytes:
    """Does what a request asks for; the reply."""
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
    """Writes it whole, into a pipe say."""
    while data:
        data = data[os.write(descriptor, data) :]


def say_cut_off(ports: Sequence[UdpPort], log: Log) -> None:
    """Says what a server's isolation has cost, if it has cost anything."""
    count = cut_off(ports)
    if count:
        log.info("isolated", f"cut off while isolated: {count} datagrams", datagrams=count)
