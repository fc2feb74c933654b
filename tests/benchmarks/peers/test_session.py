"""What arrives at subscribers is counted, however it is cut."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest

from tests.benchmarks.peers.kcast import publish
from tests.benchmarks.peers.nats import Nats
from tests.benchmarks.peers.session import EVENTS_MAX, Arrivals, Poller
from tests.benchmarks.peers.streams import StreamSession, Subscriber
from tests.benchmarks.peers.workloads import Ring, Workload

WORKLOAD = Workload(4, 4, 1)


def filled(arrivals: Arrivals, data: bytes) -> int:
    arrivals.buffer[: len(data)] = data
    return len(data)


def stream(*, sampled: int = 1) -> bytes:
    """A ring of copies of NATS, all or some of them sampled, due at 0."""
    ring = Ring(WORKLOAD, Nats().copy)
    ring.sample(1 / sampled, Random(1))
    ring.stamp(0, ring.message_count, lambda _: 0)
    return bytes(ring.data)


def test_marks_are_counted_and_padding_is_not() -> None:
    arrivals = Arrivals()
    line = publish(b"t00001", b"." * 99 + b"!")
    arrivals.count_marks(filled(arrivals, line * 3 + b"\n" * 50 + line))
    assert arrivals.copies == 4


def test_a_latency_is_the_time_since_a_message_was_due() -> None:
    arrivals = Arrivals()
    arrivals.epoch_s -= 2.0
    line = publish(b"t00001", b"~%08x....!" % 500_000)
    assert arrivals.read_times(filled(arrivals, line)) == -1
    assert 1_500_000 <= arrivals.latencies_us[0] < 60_000_000


def test_a_time_that_is_cut_off_is_told() -> None:
    arrivals = Arrivals()
    line = publish(b"t00001", b"~%08x....!" % 7)
    cut = line.index(b"~") + 4
    assert arrivals.read_times(filled(arrivals, line + line[:cut])) == len(line) + line.index(b"~")
    assert len(arrivals.latencies_us) == 1


class Listener:
    """Stands for a session: a subscriber has failed if it says so."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.why = ""

    def fail(self, why: str) -> None:
        self.why = why


@pytest.fixture
def pair() -> "Iterator[tuple[socket.socket, socket.socket]]":
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.world
@pytest.mark.parametrize("seed", range(20))
def test_copies_of_a_stream_are_counted_however_it_is_cut(
    pair: tuple[socket.socket, socket.socket], seed: int
) -> None:
    ours, theirs = pair
    data, random, session = stream(), Random(seed), Listener()
    count = data.count(b"MSG ")
    subscriber = Subscriber(session, ours, len(data) // count)
    while data:
        piece = data[: random.randint(1, 300)]
        data = data[len(piece) :]
        theirs.send(piece)
        subscriber.take()
    assert session.arrivals.copies == count
    assert len(session.arrivals.latencies_us) == count
    assert not session.why


@pytest.mark.world
def test_a_subscriber_that_is_cut_off_says_so(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    session = Listener()
    Subscriber(session, ours, 100).take()
    assert session.why == "a subscriber was cut off"


class Reader:
    """The other end of a session's publisher: a broker of which only the reading is wanted."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.connection.close()

    def accept(self) -> None:
        self.connection, _ = self._listener.accept()
        self.connection.settimeout(5)


class Mute(Nats):
    """A protocol without greetings."""

    question = reply = b""

    def greetings(self, topics: object) -> list[bytes]:
        return []


@pytest.mark.world
def test_a_publisher_sends_each_message_once_and_completes_what_it_has_begun() -> None:
    with Reader() as reader, ExitStack() as stack:
        poller = Poller()
        stack.callback(poller.close)
        session = StreamSession(Workload(4, 0, 1), Mute(), reader.address, stack, poller)
        reader.accept()
        ring, heard = session.ring, b""
        wanted = 4 * ring.message_count + 3  # of the ring: several laps
        while session.position < wanted:
            session.send(wanted, lambda _: 0)
            reader.connection.setblocking(False)
            try:
                heard += reader.connection.recv(1_000_003)
            except BlockingIOError:
                continue
        while not session.settle():
            heard += reader.connection.recv(1_000_003)
        reader.connection.setblocking(True)
        while len(heard) < wanted * ring.message_bytes:
            heard += reader.connection.recv(1_000_003)
        assert session.position == wanted
        assert heard == (bytes(ring.data) * 5)[: len(heard)]
        assert len(heard) == wanted * ring.message_bytes
        assert not session.broken


@pytest.mark.world
def test_what_a_broker_says_to_its_publisher_is_a_complaint() -> None:
    with Reader() as reader, ExitStack() as stack:
        poller = Poller()
        stack.callback(poller.close)
        session = StreamSession(Workload(4, 0, 1), Mute(), reader.address, stack, poller)
        reader.accept()
        reader.connection.send(b"-ERR 'Slow Consumer'\r\n")
        poller.turn(5.0)
        assert "Slow Consumer" in session.broken
        assert not poller.turn(0.0)


def test_what_is_aside_waits_behind_a_few_of_the_others_at_most() -> None:
    """Much has arrived, and then something for one who is aside: it is taken in the same turn, and first."""
    with ExitStack() as stack:
        poller = Poller(aside=Poller())
        assert poller.aside is not None
        stack.callback(poller.close)
        order: list[str] = []

        def open_pair(name: str, of: Poller) -> socket.socket:
            ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
            of.add(ours.fileno(), lambda: order.append(name))
            return theirs

        for _ in range(2 * EVENTS_MAX):
            open_pair("other", poller).send(b"x")
        late = open_pair("aside", poller.aside)
        assert poller.turn(0.0)
        assert order == ["other"] * EVENTS_MAX
        late.send(b"x")
        assert poller.turn(0.0)
        assert order[EVENTS_MAX:] == ["aside"] + ["other"] * EVENTS_MAX
