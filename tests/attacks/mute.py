"""A mute server: takes leases and messages, and forwards nothing. Says on which port it is.

When it is ended by SIGTERM it says how many messages it has taken.
"""

import os
import signal
import socket
from types import FrameType

from kcast.pubsub import wire

TTL_S = 60
COOKIE = b"A" * 32


def main() -> None:
    """Serves until it is ended, or its parent is gone."""
    parent = os.getppid()
    taken = 0

    def end(number: int, frame: FrameType | None) -> None:
        print(taken, flush=True)
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
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
            _, publishes, _ = wire.sorted_lines(lines)
            taken += len(publishes)
            request = wire.parse_request(lines[0]) if lines else None
            if isinstance(request, wire.Ask):
                answer: wire.Reply = wire.Challenge(request.nonce, COOKIE, 0)
            elif isinstance(request, wire.Vouch):
                answer = wire.Receipt(request.nonce, TTL_S, COOKIE, 0)
            elif isinstance(request, wire.Ping):
                answer = wire.Pong(request.nonce, TTL_S)
            else:
                continue
            sock.sendto(wire.format_line(answer), client)


if __name__ == "__main__":
    main()
