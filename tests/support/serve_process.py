"""Real `kcast serve` processes on loopback, and plain sockets that speak to them, for tests."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import REQUEST_BYTES_MIN
from tests.support.machine import has_ipv6

WAIT_S = 10.0
PROGRAM = (sys.executable, "-c", "from kcast.pubsub.serve import command; command()")

Serve = Callable[..., "subprocess.Popen[str]"]


NEEDS_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@contextmanager
def serving() -> Iterator[Serve]:
    """Starts servers, on any free port unless told; all are ended, whatever happens."""
    with ExitStack() as stack:

        def start(*options: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                (*PROGRAM, *(() if "--port" in options else ("--port", "0")), *options),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(end, process)
            return process

        yield start


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=WAIT_S)


def next_line(process: "subprocess.Popen[str]") -> str:
    """The next line on standard output, or what went wrong."""
    assert process.stdout is not None
    line = _read_line(process.stdout.fileno())
    if not line:
        pytest.fail(f"the server ended: {process.communicate(timeout=WAIT_S)[1]}")
    return line


def next_complaint(process: "subprocess.Popen[str]") -> str:
    """The next line on standard error; nothing at its end."""
    assert process.stderr is not None
    return _read_line(process.stderr.fileno())


def _read_line(descriptor: int) -> str:
    """Byte by byte, so that nothing is left in a buffer of Python's, where `select` would not see it."""
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([descriptor], [], [], WAIT_S)[0], f"nothing came for {WAIT_S:g} s after {line!r}"
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line.decode()


def served_addresses(process: "subprocess.Popen[str]") -> list[Address]:
    line = next_line(process)
    said = f"kcast: {json.loads(line)['text']}\n" if line.startswith("{") else line
    match = re.fullmatch(r"kcast: serving on (.+) \(ttl \d+ s, routing in [^\n]+\)\n", said)
    assert match, line
    parts = [each.rpartition(":") for each in match[1].split(" and ")]
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def served_address(process: "subprocess.Popen[str]") -> Address:
    (address,) = served_addresses(process)
    return address


def stop(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> str:
    """Ends a server as its user would; what it said on standard error."""
    process.send_signal(number)
    rest, complaints = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, complaints
    assert rest == ""
    return complaints


class Peer:
    """A plain UDP socket with one server."""

    def __init__(self, server: Address, source: Address | None = None) -> None:
        self.server = server
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in server[0] else socket.AF_INET, socket.SOCK_DGRAM
        )
        self._socket.settimeout(WAIT_S)
        if source is not None:
            self._socket.bind(source)
        self._socket.connect(server)
        self._copies: deque[bytes] = deque()  # that came before an answer

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def say(self, datagram: bytes) -> None:
        self._socket.send(datagram)

    def hear(self) -> bytes:
        return self._copies.popleft() if self._copies else self._socket.recv(65_536)

    def has_heard(self) -> bool:
        """Whether something waits to be heard."""
        return bool(self._copies or select.select([self._socket], [], [], 0)[0])

    def _hear_answer(self) -> bytes:
        while not wire.is_control(datagram := self._socket.recv(65_536)):
            self._copies.append(datagram)
        return datagram

    def ping(self) -> None:
        """Returns when the server has done all that was said before."""
        self.say(b"%~ sync".ljust(REQUEST_BYTES_MIN, b"\n"))
        assert self._hear_answer().startswith(b"%: sync ")

    def ask(self) -> wire.Challenge:
        """A handshake's first half."""
        self.say(wire.request_datagram(wire.Ask(b"ask")))
        (reply,) = self._replies()
        assert isinstance(reply, wire.Challenge)
        return reply

    def vouch(self, *lines: bytes) -> list[wire.Reply]:
        """Says lines (without LF) with a fresh cookie; the answer."""
        vouch = wire.Vouch(b"vouch", self.ask().cookie, None)
        self.say(wire.request_datagram(vouch, [line + b"\n" for line in lines]))
        return self._replies()

    def _replies(self) -> list[wire.Reply]:
        replies = [wire.parse_reply(line) for line in self._hear_answer().split(b"\n") if line]
        assert None not in replies
        return [reply for reply in replies if reply is not None]
