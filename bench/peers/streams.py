"""Sessions with brokers over TCP."""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from bench.peers.session import READY_S, Arrivals, Failed, Poller, Session
from bench.peers.workloads import Ring, Workload, payload

SEND_BYTES_MAX = 256 * 1024  # per call, so that what arrives is not kept waiting


class Broker(Protocol):
    """A protocol of brokers: what is said, and what is heard. Publishes are never acknowledged.

    `question` is what the broker asks each client once, some seconds after it came, and `reply` the answer.
    Both are empty if it asks nothing.
    """

    question: bytes
    reply: bytes

    def publish(self, topic: bytes, payload: bytes) -> bytes:
        """Encodes a publish."""

    def copy(self, topic: bytes, payload: bytes) -> bytes:
        """Encodes a copy as a subscriber gets it."""

    def greetings(self, topics: Sequence[bytes]) -> list[bytes]:
        """Returns what a client with these subscriptions says. Each has an answer, which is awaited."""

    def answer(self, topics: Sequence[bytes], step: int) -> bytes:
        """Returns the answer to one of the greetings; its end, where its beginning varies."""


def connect(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address, timeout=READY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def greet(sock: socket.socket, broker: Broker, topics: Sequence[bytes]) -> None:
    """Makes a connection a publisher's, or with topics a subscriber's. Raises Failed."""
    for step, greeting in enumerate(broker.greetings(topics)):
        sock.sendall(greeting)
        heard, awaited = b"", broker.answer(topics, step)
        while not heard.endswith(awaited):
            try:
                data = sock.recv(65_536)
            except TimeoutError:
                raise Failed(f"no answer after {READY_S:g} s, only {heard[-200:]!r}") from None
            if not data:
                raise Failed(f"the connection was closed after {heard[-200:]!r}")
            heard += data


def await_question(sock: socket.socket, broker: Broker) -> None:
    """Answers what a broker asks, so that it does not come between the copies. Raises Failed."""
    try:
        heard = sock.recv(65_536)
    except TimeoutError:
        raise Failed(f"{broker.question!r} was awaited for {READY_S:g} s") from None
    if heard != broker.question:
        raise Failed(f"{broker.question!r} was awaited, and came {heard[:200]!r}")
    sock.sendall(broker.reply)


class Listener(Protocol):
    """Whom a subscriber tells what came, and that it can be of no more use."""

    arrivals: Arrivals

    def fail(self, why: str) -> None:
        """Notes that a connection has ended."""


class Subscriber:
    """Counts by length, since all copies are equally long. What of a time is cut off waits for the rest."""

    __slots__ = ("_arrivals", "_bytes", "_copy_bytes", "_cut", "_recv_into", "_session")

    def __init__(self, session: Listener, sock: socket.socket, copy_bytes: int) -> None:
        self._session = session
        self._recv_into = sock.recv_into
        self._arrivals = session.arrivals
        self._copy_bytes = copy_bytes
        self._bytes = 0
        self._cut = b""

    def take(self) -> None:
        arrivals: Arrivals = self._arrivals
        kept = len(self._cut)
        arrivals.buffer[:kept] = self._cut
        try:
            count = self._recv_into(arrivals.view[kept:])
        except OSError as error:
            self._session.fail(f"a subscriber's connection broke: {error}")
            return
        if not count:
            self._session.fail("a subscriber was cut off")
            return
        before = self._bytes
        self._bytes = after = before + count
        arrivals.copies += after // self._copy_bytes - before // self._copy_bytes
        at = arrivals.read_times(kept + count)
        self._cut = bytes(arrivals.view[at : kept + count]) if at >= 0 else b""


class StreamSession(Session):
    """Publisher and subscribers of a broker."""

    def __init__(
        self, workload: Workload, broker: Broker, address: tuple[str, int], stack: ExitStack, poller: Poller
    ) -> None:
        super().__init__(Ring(workload, broker.publish))
        self._poller = poller
        self._sent_bytes = 0
        copy_bytes = len(broker.copy(workload.topic(0), payload(workload.size_bytes)))
        self._descriptors: list[int] = []
        sockets = []
        for number in range(workload.subscriber_count):
            sockets.append(stack.enter_context(connect(address)))
            greet(sockets[-1], broker, workload.topics_of(number))
        self._publisher = stack.enter_context(connect(address))
        greet(self._publisher, broker, ())
        if broker.question:
            for sock in (*sockets, self._publisher):
                await_question(sock, broker)
        for sock in sockets:
            self._watch(sock, Subscriber(self, sock, copy_bytes).take)
        self._watch(self._publisher, self._hear)
        stack.callback(self._forget)

    def _watch(self, sock: socket.socket, take: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._poller.add(sock.fileno(), take)
        self._descriptors.append(sock.fileno())

    def _forget(self) -> None:
        while self._descriptors:
            self._poller.remove(self._descriptors.pop())

    def fail(self, why: str) -> None:
        """Notes that the session has ended, and looks at none of its connections any more."""
        self.broken = self.broken or why
        self._forget()

    def _hear(self) -> None:
        """What a broker says to a publisher is a complaint."""
        try:
            heard = self._publisher.recv(1000)
        except OSError as error:
            heard = str(error).encode()
        self.fail(f"the publisher was told {heard!r}" if heard else "the publisher was cut off")

    def send(self, until: int, due_us: Callable[[int], int]) -> None:
        size, ring_bytes = self.ring.message_bytes, len(self.ring.data)
        first = self._sent_bytes % ring_bytes
        last = min(first + until * size - self._sent_bytes, ring_bytes, first + SEND_BYTES_MAX)
        if last > first:
            # A message of which a part is on its way gets the same time again.
            start = self._sent_bytes // size
            self.ring.stamp(start, start + -(-last // size) - first // size, due_us)
            self._write(first, last)

    def settle(self) -> bool:
        size = self.ring.message_bytes
        if left := -self._sent_bytes % size:
            first = self._sent_bytes % len(self.ring.data)
            self._write(first, first + left)
        return not self._sent_bytes % size

    def _write(self, first: int, last: int) -> None:
        """Sends bytes of the ring, or as many as there is room for."""
        try:
            self._sent_bytes += self._publisher.send(self.ring.view[first:last])
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"the publisher's connection broke: {error}")
        self.position = self._sent_bytes // self.ring.message_bytes
