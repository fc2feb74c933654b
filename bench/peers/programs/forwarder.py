"""Twenty lines that forward: what one writes first in Python, on uvloop where it is installed.

It has no project to import, so that nothing but these lines costs anything.
"""

import asyncio
import socket
from collections import defaultdict
from typing import Any


class Forwarder(asyncio.DatagramProtocol):
    """Subscribes are lines without a space. A datagram with one is sent to all who have what is before it."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.subscribers: defaultdict[bytes, set[Any]] = defaultdict(set)

    def datagram_received(self, data: bytes, address: Any) -> None:
        topic, space, _ = data.partition(b" ")
        if not space:
            for line in data.split():
                self.subscribers[line].add(address)
            return
        for subscriber in self.subscribers[topic]:
            self.transport.sendto(data, subscriber)


async def serve() -> None:
    """Serves on any port, and tells which, until the process is ended."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # as large as those of kcast
        sock.setsockopt(socket.SOL_SOCKET, option, 4 * 1024 * 1024)
    sock.bind(("127.0.0.1", 0))
    await asyncio.get_running_loop().create_datagram_endpoint(Forwarder, sock=sock)
    print(f"forwarder: serving on 127.0.0.1:{sock.getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Runs it."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


if __name__ == "__main__":
    main()
