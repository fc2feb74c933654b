"""Sessions over UDP: with kcast, as its clients speak, and with programs that just forward lines."""

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

from bench.peers.kcast import Address, greet, open_socket, publish, subscribe_plainly
from bench.peers.session import Poller, Session
from bench.peers.workloads import Ring, Workload
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.sockets import UDP_SEGMENT

SEGMENTS_MAX = 64  # per call, in older kernels
CALL_BYTES_MAX = 65_507
CALLS_MAX = 4  # at a time, so that what arrives is not kept waiting
RECEIVE_CALLS_MAX = 16  # of one subscriber at a time
SINGLES_MAX = 32  # at a time


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
                return  # where one datagram waits, there are seldom more


class DatagramSession(Session):
    """A publisher that packs lines into datagrams, and datagrams into calls, and all subscribers.

    With `takes_leases` the server is kcast's; else it wants no handshake.
    """

    def __init__(
        self, workload: Workload, server: Address, stack: ExitStack, poller: Poller, *, takes_leases: bool
    ) -> None:
        super().__init__(Ring(workload, publish))
        self._server = server
        for number in range(workload.subscriber_count):
            sock = stack.enter_context(open_socket(number))
            (greet if takes_leases else subscribe_plainly)(sock, server, workload.topics_of(number))
            sock.setblocking(False)
            poller.add(sock.fileno(), _Subscriber(self, sock).take)
            stack.callback(poller.remove, sock.fileno())
        self._publishers = [
            stack.enter_context(open_socket()) for _ in range(workload.single_publishers or 1)
        ]
        for publisher in self._publishers:
            if takes_leases:
                greet(publisher, server)
            publisher.connect(server)
            publisher.setblocking(False)
        size = self.ring.message_bytes
        lines = min(workload.lines_max, DATAGRAM_BYTES_MAX // size)
        self.control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", lines * size))]
        self._call_messages = lines * min(SEGMENTS_MAX, CALL_BYTES_MAX // (lines * size))

    def send(self, until: int, due_us: Callable[[int], int]) -> None:
        ring, size, publisher = self.ring, self.ring.message_bytes, self._publishers[0]
        for _ in range(CALLS_MAX):
            first = self.position % ring.message_count
            count = min(until - self.position, ring.message_count - first, self._call_messages)
            if count <= 0:
                return
            ring.stamp(self.position, self.position + count, due_us)
            # What there is no room for is lost, as on any network.
            self.position += count
            try:
                publisher.sendmsg((ring.view[first * size : (first + count) * size],), self.control)
            except OSError:
                continue

    def settle(self) -> bool:
        return True


class SingleSession(DatagramSession):
    """One or more publishers that take turns, with a datagram for each message.

    Loopback joins only datagrams that left in one call (UDP_SEGMENT), and no two messages in a row go to one
    subscriber if there are many topics: so nothing can be batched on the way in or out.
    """

    def __init__(
        self, workload: Workload, server: Address, stack: ExitStack, poller: Poller, *, takes_leases: bool
    ) -> None:
        super().__init__(workload, server, stack, poller, takes_leases=takes_leases)
        size, view = self.ring.message_bytes, self.ring.view
        self._messages = [view[at : at + size] for at in range(0, len(view), size)]
        self._sends = [publisher.send for publisher in self._publishers]

    def send(self, until: int, due_us: Callable[[int], int]) -> None:
        stop = min(until, self.position + SINGLES_MAX)
        self.ring.stamp(self.position, stop, due_us)
        messages, sends = self._messages, self._sends
        for number in range(self.position, stop):
            try:
                sends[number % len(sends)](messages[number % len(messages)])
            except OSError:
                continue
        self.position = stop


def open_session(
    workload: Workload, server: Address, stack: ExitStack, poller: Poller, *, takes_leases: bool
) -> Session:
    """Opens the session that suits the workload. Raises Failed."""
    kind = SingleSession if workload.single_publishers else DatagramSession
    return kind(workload, server, stack, poller, takes_leases=takes_leases)
