"""A bare loop: takes bursts from the kernel, and sends as many copies as a server would.

    python bare.py MESSAGE_BYTES FAN_OUT

It is no server: it deals out what came by length, so each subscriber gets the right number of messages, but
not those of its topics. So it shows what a server's calls cost in Python when routing costs nothing. A burst
without a space subscribes whoever sent it.
"""

import socket
import struct
import sys

UDP_SEGMENT, UDP_GRO = 103, 104
BURSTS_MAX = 32  # before it sends, as many as kcast takes
DATAGRAM_BYTES_MAX, LINES_MAX = 1200, 64
CALL_BYTES_MAX, SEGMENTS_MAX = 65_507, 64
BUFFER_BYTES = 4 * 1024 * 1024

Address = tuple[str, int]


def deal(copies: int, subscribers: int) -> list[int]:
    """Returns how many copies go to one subscriber after the other, as evenly as can be.

    >>> deal(7, 3), deal(2, 3)
    ([3, 2, 2], [1, 1])
    """
    some = min(copies, subscribers)
    if not some:
        return []
    each, more = divmod(copies, some)
    return [each + 1] * more + [each] * (some - more)


def open_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


class Loop:
    """Its subscribers, and what it has taken in."""

    def __init__(self, message_bytes: int, fan_out: int) -> None:
        self._message_bytes, self._fan_out = message_bytes, fan_out
        datagram_bytes = message_bytes * min(LINES_MAX, DATAGRAM_BYTES_MAX // message_bytes)
        self._call_bytes = datagram_bytes * min(SEGMENTS_MAX, CALL_BYTES_MAX // datagram_bytes)
        self.control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", datagram_bytes))]
        self._socket = open_socket()
        self._buffer = bytearray(BURSTS_MAX * 65_536)
        self._view = memoryview(self._buffer)
        self._subscribers: list[Address] = []
        self._cursor = 0
        print(f"bare loop: serving on 127.0.0.1:{self._socket.getsockname()[1]}", flush=True)

    def receive(self) -> int:
        """Waits for a burst, and takes those that wait behind it; returns the length of all."""
        filled = 0
        for flags in (0, *(socket.MSG_DONTWAIT,) * (BURSTS_MAX - 1)):
            try:
                count, source = self._socket.recvfrom_into(self._view[filled:], 65_536, flags)
            except BlockingIOError:
                break
            if self._buffer.find(b" ", filled, filled + min(count, DATAGRAM_BYTES_MAX)) >= 0:
                filled += count
            elif source not in self._subscribers:
                self._subscribers.append(source)
        return filled

    def forward(self, filled: int) -> None:
        """Sends as many copies as the messages in the buffer ask for."""
        for count in deal(filled // self._message_bytes * self._fan_out, len(self._subscribers)):
            address = self._subscribers[self._cursor % len(self._subscribers)]
            self._cursor += 1
            end = count * self._message_bytes
            for start in range(0, end, self._call_bytes):
                piece = self._view[start : min(start + self._call_bytes, end)]
                self._socket.sendmsg((piece,), self.control, 0, address)


def main() -> None:
    """Forwards until the process is ended."""
    loop = Loop(*map(int, sys.argv[1:]))
    while True:
        loop.forward(loop.receive())


if __name__ == "__main__":
    main()
