"""An evil server: sells leases of a second for 22 bits of work, and keeps none. Says on which port it is."""

import os
import socket

from kcast.pubsub import wire

PRICE_BITS = 22


def main() -> None:
    """Serves until its parent is gone."""
    parent = os.getppid()
    cookie = b"A" * 32
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(1)
        print(sock.getsockname()[1], flush=True)
        while os.getppid() == parent:
            try:
                data, client = sock.recvfrom(65_536)
            except TimeoutError:
                continue
            lines, _ = wire.split_lines(data)
            request = wire.parse_request(lines[0]) if lines else None
            if isinstance(request, wire.Ask):
                answer: wire.Reply = wire.Challenge(request.nonce, cookie, PRICE_BITS)
            elif isinstance(request, wire.Vouch) and request.stamp is not None:
                answer = wire.Receipt(request.nonce, 1, cookie, PRICE_BITS)
            elif isinstance(request, wire.Vouch):
                answer = wire.Refusal(request.nonce, "work", 1, {"bits": str(PRICE_BITS)})
            elif isinstance(request, wire.Ping):
                answer = wire.Pong(request.nonce, 0)
            else:
                continue
            sock.sendto(wire.format_line(answer), client)


if __name__ == "__main__":
    main()
