"""A server on loopback that answers each datagram as a test wants it to, in a thread."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from tests.support.serve_process import WAIT_S

COOKIE = b"c" * 32


@contextmanager
def fake_server(
    answer: Callable[[list[bytes]], list[bytes]], *, elsewhere: bool = False
) -> Iterator[Address]:
    """Answers the lines of each datagram with datagrams, from another port if told."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        sock.bind(("127.0.0.1", 0))

        def serve() -> None:
            while (received := sock.recvfrom(2048))[0]:
                data, client = received
                for datagram in answer(wire.split_lines(data)[0]):
                    (other if elsewhere else sock).sendto(datagram, client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield sock.getsockname()
        finally:
            sock.sendto(b"", sock.getsockname())
            thread.join(WAIT_S)


def scripted(
    *, lease: Callable[[bytes], bytes], publish: Callable[[bytes, bytes], list[bytes]]
) -> Callable[[list[bytes]], list[bytes]]:
    """Gives cookies and pongs; `lease` answers a nonce, `publish` a nonce and the line. A bare line comes
    back."""

    def answer(lines: list[bytes]) -> list[bytes]:
        request = wire.parse_request(lines[0])
        if isinstance(request, wire.Ask):
            return [wire.format_line(wire.Challenge(request.nonce, COOKIE, 0))]
        if isinstance(request, wire.Ping):
            return [wire.format_line(wire.Pong(request.nonce, 0))]
        if request is None:
            return [line + b"\n" for line in lines]
        if len(lines) > 1 and b" " in lines[1]:
            return publish(request.nonce, lines[1] + b"\n")
        return [lease(request.nonce)]

    return answer


def receipt(nonce: bytes) -> bytes:
    return wire.format_line(wire.Receipt(nonce, 60, COOKIE, 0))


def refusal(reason: str) -> Callable[[bytes], bytes]:
    return lambda nonce: wire.format_line(wire.Refusal(nonce, reason, None))
