"""One party with leases of many ports, in a process of its own, which publishes to all of them.

    python -m tests.attacks.ports HOST:PORT --source 127.9.9.9 --ports 5000 --rate 20 --bytes 10 --seconds 5

Says `ready` when the leases stand. Publishes for that time whenever a line comes on standard input, and reads
nothing of what it is sent.
"""

import argparse
import os
import select
import socket
import sys
import time
from collections.abc import Iterable

from kcast.pubsub import wire

TOPIC = b"many-ports"
_BATCH = 200
_AT_ONCE = 12  # a server answers few strangers in a turn that brings more
_AGAIN_S = 0.1
_WAIT_S = 3.0


def leased(server: tuple[str, int], source: str, count: int, topic: bytes = TOPIC) -> list[socket.socket]:
    """Opens sockets, each with a lease; those that got none are left out."""
    sockets: list[socket.socket] = []
    while len(sockets) < count:
        batch = []
        for _ in range(min(_BATCH, count - len(sockets))):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.bind((source, 0))
            sock.connect(server)
            sock.setblocking(False)
            batch.append(sock)
        cookies = _answers(batch, {sock: wire.request_datagram(wire.Ask(b"ask")) for sock in batch})
        requests = {
            sock: wire.request_datagram(wire.Vouch(b"vouch", reply.cookie, None), [topic + b"\n"])
            for sock, reply in cookies.items()
            if isinstance(reply, wire.Challenge)
        }
        _answers(batch, requests)
        sockets += batch
    return sockets


def _answers(
    sockets: Iterable[socket.socket], requests: dict[socket.socket, bytes]
) -> dict[socket.socket, wire.Reply | None]:
    """Sends requests, a few at a time, and again what is not answered; returns the answers."""
    answers: dict[socket.socket, wire.Reply | None] = {}
    waiting = [sock for sock in sockets if sock in requests]
    for start in range(0, len(waiting), _AT_ONCE):
        some = {sock.fileno(): sock for sock in waiting[start : start + _AT_ONCE]}
        poll = select.poll()
        for descriptor in some:
            poll.register(descriptor, select.POLLIN)
        until = time.monotonic() + _WAIT_S
        while some and time.monotonic() < until:
            for sock in some.values():
                sock.send(requests[sock])
            again_at = time.monotonic() + _AGAIN_S
            while some and (left_s := again_at - time.monotonic()) > 0:
                for descriptor, _ in poll.poll(1000 * left_s):
                    poll.unregister(descriptor)
                    sock = some.pop(descriptor)
                    answers[sock] = wire.parse_reply(sock.recv(65_536).split(b"\n")[0])
    return answers


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.ports")
    parser.add_argument("server")
    parser.add_argument("--source", required=True)
    parser.add_argument("--ports", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--bytes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.0)
    given = parser.parse_args()
    host, _, port = given.server.rpartition(":")
    sockets = leased((host, int(port)), given.source, given.ports)
    publisher = leased((host, int(port)), given.source, 1, b"other")[0]
    cookie = _answers([publisher], {publisher: wire.request_datagram(wire.Ask(b"ask"))})[publisher]
    assert isinstance(cookie, wire.Challenge)
    vouch = wire.Vouch(b"vouch", cookie.cookie, None)
    _answers([publisher], {publisher: wire.request_datagram(vouch)})
    os.nice(10)
    print("ready", flush=True)
    line = (TOPIC + b" ").ljust(given.bytes - 1, b".") + b"\n"
    while sys.stdin.readline():
        began = time.monotonic()
        for number in range(int(given.rate * given.seconds)):
            time.sleep(max(0.0, began + number / given.rate - time.monotonic()))
            publisher.send(line)
    del sockets  # until then they are open


if __name__ == "__main__":
    main()
