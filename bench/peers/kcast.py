"""The part of a client of kcast that the load has: a socket, and the handshake for leases."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from bench.peers.session import BUFFER_BYTES, READY_S, Failed
from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, LINES_PER_DATAGRAM_MAX
from kcast.pubsub.sockets import UDP_GRO, try_option

PORTS_PER_ADDRESS = 10_000  # some 28,000 are to be had
VOUCH_BYTES = 100  # at most, for the line that vouches for the others
ATTEMPTS = 3

Address = tuple[str, int]


def own_address(number: int) -> str:
    """Returns a loopback address (of 127.0.0.0/8) that is this process' own; `number` is below 250.

    At 127.0.0.1 a socket may get the port of one that was closed, with what others still send there: pings to
    a server that has ended, or copies for a subscriber that has.
    """
    return f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.{1 + number}"


def publish(topic: bytes, payload: bytes) -> bytes:
    """Encodes a publish; a copy is the same."""
    return b"%b %b\n" % (topic, payload)


def open_socket(number: int = 0) -> socket.socket:
    """Opens the socket of a subscriber. Ten thousand have one address, so that there are ports for all."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    try_option(sock, socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.bind((own_address(number // PORTS_PER_ADDRESS), 0))
    return sock


def greet(sock: socket.socket, server: Address, topics: Sequence[bytes] = ()) -> None:
    """Takes leases on these topics; without any, a publish lease. Raises Failed."""
    challenge = _answer(sock, b"ask", wire.request_datagram(wire.Ask(b"ask")), server)
    if not isinstance(challenge, wire.Challenge):
        raise Failed(f"no challenge but {challenge}")
    datagrams = in_datagrams(topics, DATAGRAM_BYTES_MAX - VOUCH_BYTES, LINES_PER_DATAGRAM_MAX - 1)
    for number, lines in enumerate(datagrams or [[]]):
        vouch = wire.Vouch(b"vouch%d" % number, challenge.cookie, None)
        receipt = _answer(sock, vouch.nonce, wire.request_datagram(vouch, lines), server)
        if not isinstance(receipt, wire.Receipt):
            raise Failed(f"no receipt for leases but {receipt}")


def subscribe_plainly(sock: socket.socket, server: Address, topics: Sequence[bytes]) -> None:
    """Subscribes at a server that wants no handshake, and gives no answer."""
    for lines in in_datagrams(topics, DATAGRAM_BYTES_MAX, LINES_PER_DATAGRAM_MAX):
        sock.sendto(b"".join(lines), server)


def in_datagrams(topics: Sequence[bytes], size_bytes_max: int, lines_max: int) -> list[list[bytes]]:
    """Returns the subscribe lines of equally long topics, as many of them together as one datagram takes."""
    if not topics:
        return []
    step = min(lines_max, size_bytes_max // (len(topics[0]) + 1))
    lines = [topic + b"\n" for topic in topics]
    return [lines[start : start + step] for start in range(0, len(lines), step)]


def _answer(sock: socket.socket, nonce: bytes, request: bytes, server: Address) -> wire.Reply | None:
    """Asks, again where an answer is late; returns the answer. Raises Failed."""
    sock.settimeout(READY_S / ATTEMPTS)
    for _ in range(ATTEMPTS):
        sock.sendto(request, server)
        with suppress(TimeoutError):
            # An answer to the request before may come late.
            while (reply := wire.parse_reply(sock.recv(65_536).split(b"\n")[0])) and reply.nonce != nonce:
                continue
            return reply
    raise Failed(f"no answer after {READY_S:g} s")
