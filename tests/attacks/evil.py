"""An evil server: sells leases of a second for 22 bits of work, and keeps none. Says on which port it is.

With `all` it asks no work, and gives clients something of each kind to complain of: it ends and refuses
leases, forgets cookies, is about to stop, is silent, and sends gaps of publishers that it makes up.
"""

import os
import socket
import sys
import time

from kcast.pubsub import wire

PRICE_BITS = 22
COOKIE = b"A" * 32


def seller(request: wire.Request | None) -> wire.Reply | None:
    """Returns what one that sells answers."""
    match request:
        case wire.Ask(nonce):
            return wire.Challenge(nonce, COOKIE, PRICE_BITS)
        case wire.Vouch(nonce) if request.stamp is not None:
            return wire.Receipt(nonce, 1, COOKIE, PRICE_BITS)
        case wire.Vouch(nonce):
            return wire.Refusal(nonce, "work", 1, {"bits": str(PRICE_BITS)})
        case wire.Ping(nonce):
            return wire.Pong(nonce, 0)
    return None


class Nuisance:
    """Answers each request otherwise than the one before, and is silent for 8 of 20 s."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._count = 0
        self._forged_at = 0.0

    def answer(self, request: wire.Request | None) -> wire.Reply | None:
        """Returns what it answers."""
        if request is None or (time.monotonic() - self._began) % 20 > 12:
            return None
        self._count += 1
        cookie = b"%032d" % self._count
        drain = {"drain": "1"} if self._count % 2 else {}
        if isinstance(request, wire.Ask):
            return wire.Challenge(request.nonce, cookie, 0, drain)
        if isinstance(request, wire.Ping):
            return wire.Pong(request.nonce, 0)
        turn = self._count // 2 % 3
        if turn == 0:
            return wire.Refusal(request.nonce, "full", 1)
        if turn == 1:
            return wire.Challenge(request.nonce, cookie, 0)
        return wire.Receipt(request.nonce, 1, cookie, 0, drain)

    def gaps(self) -> list[bytes]:
        """Returns lines to send now: once a second each of 20 publishers has a gap, and one before that is
        filled."""
        now = time.monotonic()
        if now < self._forged_at + 1:
            return []
        self._forged_at = now
        first = 10 * int(now - self._began)
        numbers = (first - 8, *range(first + 1, first + 10, 4), *range(first + 10, first + 14))
        return [
            b"".join(b"t %%@%043d.%d x\n" % (publisher, max(1, number)) for number in numbers)
            for publisher in range(20)
        ]


def main(kind: str) -> None:
    """Serves until its parent is gone."""
    parent = os.getppid()
    nuisance = Nuisance()
    answer = nuisance.answer if kind == "all" else seller
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(1)
        print(sock.getsockname()[1], flush=True)
        client = None
        while os.getppid() == parent:
            if kind == "all" and client is not None:
                for forged in nuisance.gaps():
                    sock.sendto(forged, client)
            try:
                data, client = sock.recvfrom(65_536)
            except TimeoutError:
                continue
            lines, _ = wire.split_lines(data)
            reply = answer(wire.parse_request(lines[0]) if lines else None)
            if reply is not None:
                sock.sendto(wire.format_line(reply), client)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sells")
