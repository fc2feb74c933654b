"""Sessions with kcast: as its clients speak, with leases, a publish lease, packed lines and batched calls."""

import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, LINES_PER_DATAGRAM_MAX
from tests.benchmarks.peers.session import BUFFER_BYTES, READY_S, Failed, Poller, Session
from tests.benchmarks.peers.workloads import Ring, Workload

UDP_SEGMENT, UDP_GRO = 103, 104
SEGMENTS_MAX = 64  # per call, in older kernels
CALL_BYTES_MAX = 65_507
CALLS_MAX = 4  # at a time, so that what arrives is not kept waiting
RECEIVE_CALLS_MAX = 16  # of one subscriber at a time
PORTS_PER_ADDRESS = 10_000  # some 28,000 are to be had


def publish(topic: bytes, payload: bytes) -> bytes:
    """Encodes a publish; a copy is the same."""
    return b"%b %b\n" % (topic, payload)


def open_socket(number: int = 0) -> socket.socket:
    """Opens the socket of a subscriber; ten thousand have one address, so that there are ports for all."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.bind((f"127.0.0.{1 + number // PORTS_PER_ADDRESS}", 0))
    return sock


def greet(sock: socket.socket, server: tuple[str, int], topics: Sequence[bytes] = ()) -> None:
    """Takes leases on these topics; without any, a publish lease. Raises Failed."""
    challenge = _answer(sock, wire.request_datagram(wire.Ask(b"ask")), server)
    if not isinstance(challenge, wire.Challenge):
        raise Failed(f"no challenge but {challenge}")
    vouch = wire.Vouch(b"vouch", challenge.cookie, None)
    line_bytes = 1 + max(map(len, topics), default=0)
    step = min(LINES_PER_DATAGRAM_MAX - 1, (DATAGRAM_BYTES_MAX - 100) // line_bytes)
    for start in range(0, max(1, len(topics)), step):
        lines = [topic + b"\n" for topic in topics[start : start + step]]
        receipt = _answer(sock, wire.request_datagram(vouch, lines), server)
        if not isinstance(receipt, wire.Receipt):
            raise Failed(f"no receipt for leases but {receipt}")


def _answer(sock: socket.socket, request: bytes, server: tuple[str, int]) -> wire.Reply | None:
    sock.sendto(request, server)
    if not select.select((sock,), (), (), READY_S)[0]:
        raise Failed(f"no answer after {READY_S:g} s")
    return wire.parse_reply(sock.recv(65_536).split(b"\n")[0])


class _Subscriber:
    """Counts by marks, since datagrams may be padded."""

    __slots__ = ("_arrivals", "_recv_into")

    def __init__(self, session: Session, sock: socket.socket) -> None:
        self._arrivals = session.arrivals
        self._recv_into = sock.recv_into

    def take(self) -> None:
        arrivals = self._arrivals
        for _ in range(RECEIVE_CALLS_MAX):
            try:
                count = self._recv_into(arrivals.buffer)
            except OSError:
                return  # nothing is left
            arrivals.count_marks(count)
            arrivals.read_times(count)
            if count <= DATAGRAM_BYTES_MAX:
                return  # where one waits, there are seldom more


class DatagramSession(Session):
    """Publisher and subscribers of a server of ours."""

    def __init__(
        self, workload: Workload, server: tuple[str, int], stack: ExitStack, poller: Poller
    ) -> None:
        super().__init__(Ring(workload, publish))
        size = self.ring.message_bytes
        lines = min(LINES_PER_DATAGRAM_MAX, DATAGRAM_BYTES_MAX // size)
        self._control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", lines * size))]
        self._call_messages = lines * min(SEGMENTS_MAX, CALL_BYTES_MAX // (lines * size))
        self._server = server
        for number in range(workload.subscriber_count):
            sock = stack.enter_context(open_socket(number))
            greet(sock, server, workload.topics_of(number))
            sock.setblocking(False)
            poller.add(sock.fileno(), _Subscriber(self, sock).take)
            stack.callback(poller.remove, sock.fileno())
        self._publisher = stack.enter_context(open_socket())
        greet(self._publisher, server)
        self._publisher.setblocking(False)

    def send(self, until: int, due_us: Callable[[int], int]) -> None:
        ring, size = self.ring, self.ring.message_bytes
        for _ in range(CALLS_MAX):
            first = self.position % ring.message_count
            count = min(until - self.position, ring.message_count - first, self._call_messages)
            if count <= 0:
                return
            ring.stamp(self.position, self.position + count, due_us)
            # What there is no room for is lost, as on any network.
            self.position += count
            try:
                self._publisher.sendmsg(
                    (ring.view[first * size : (first + count) * size],), self._control, 0, self._server
                )
            except OSError:
                continue

    def settle(self) -> bool:
        return True
