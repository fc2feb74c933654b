"""pubsub/sending.py on real sockets: what leaves by which, what arrives where, who is set aside."""

import errno
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from kcast.pubsub import sending
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.neighbours import Neighbours
from kcast.pubsub.sending import Outlets, open_sender
from kcast.pubsub.set_aside import FORGET_S, TRIAL_S_MIN
from kcast.pubsub.sockets import SOCKETS_VARIABLE, read_memory
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.namespaces import Namespace, need_namespaces
from tests.support.serve_process import NEEDS_IPV6, PROGRAM

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems send by one socket"),
]

WAIT_S = 5.0
NOBODY = Neighbours(frozenset(), frozenset())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def count_of(bursts: Sequence[Burst]) -> int:
    """Datagrams."""
    return sum(1 for each in bursts for _ in datagrams(each.data, each.segment_bytes))


def open_port(stack: ExitStack, host: str = "127.0.0.1", port: int = 0, **options: Any) -> UdpPort:
    opened = stack.enter_context(UdpPort(open_socket(host, port, **options)))
    assert opened.open_outlets()
    return opened


def senders(port: UdpPort) -> Sequence[socket.socket]:
    assert port._outlets is not None
    outlets = port._outlets
    return [each._socket for each in (outlets._answers, outlets._copies, outlets._doubtful)]


def peer(stack: ExitStack, host: str = "127.0.0.1") -> socket.socket:
    sock = stack.enter_context(open_socket(host, 0))
    sock.settimeout(WAIT_S)
    return sock


def address_of(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return host, port


# --- What arrives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "peers"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1", "127.0.0.9"]),
        pytest.param("::1", ["::1"], marks=NEEDS_IPV6),
        pytest.param("::", ["::1", "127.0.0.1"], marks=NEEDS_IPV6),
    ],
)
def test_all_that_arrives_is_the_ports_own(stack: ExitStack, host: str, peers: list[str]) -> None:
    """From thousands of sources: a kernel that spread them would give the senders two thirds."""
    port = open_port(stack, host, receive_buffer_bytes=16_000_000)
    expected = arrived = 0
    for where in peers:
        family = socket.AF_INET6 if ":" in where else socket.AF_INET
        for number in range(3000):
            with socket.socket(family, socket.SOCK_DGRAM) as source:
                source.sendto(b"%d" % number, (where, port.address[1]))
            expected += 1
            if number % 16 == 0:
                arrived += count_of(port.receive())
    while arrived < expected and select.select([port], [], [], WAIT_S)[0]:
        arrived += count_of(port.receive())
    assert arrived == expected
    assert not select.select(senders(port), [], [], 0)[0]
    # Nor did the filter have to drop anything: all was led to the right one.
    assert [memory.overflow_count for each in senders(port) if (memory := read_memory(each))] == [0, 0, 0]


def test_a_broadcast_waits_in_no_sender(stack: ExitStack) -> None:
    """Every socket of a port gets one, whatever the program of the group says."""
    need_namespaces()
    here, there = stack.enter_context(Namespace()), stack.enter_context(Namespace())
    here.link("a", there, "b")
    here.add("a", "192.0.2.1/24")
    there.add("b", "192.0.2.2/24")
    port = here.call(lambda: open_port(stack, "0.0.0.0"))
    source = there.call(lambda: peer(stack, "192.0.2.2"))
    source.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for _ in range(100):
        source.sendto(b"x", ("192.0.2.255", port.address[1]))
    arrived = 0
    while arrived < 100 and select.select([port], [], [], WAIT_S)[0]:
        arrived += count_of(port.receive())
    assert arrived == 100
    assert not select.select(senders(port), [], [], 0)[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", pytest.param("::", marks=NEEDS_IPV6)])
def test_the_port_is_taken_for_all_others(stack: ExitStack, host: str) -> None:
    port = open_port(stack, host)
    for other in (host, "127.0.0.1"):
        with pytest.raises(OSError) as caught:
            open_socket(other, port.address[1])
        assert caught.value.errno == errno.EADDRINUSE


def test_the_port_is_taken_for_another_server_of_the_same_user(stack: ExitStack) -> None:
    port = open_port(stack)
    done = subprocess.run(
        (*PROGRAM, "--port", str(port.address[1])), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        f" kcast serve: 127.0.0.1:{port.address[1]} is in use; "
        + "stop the other server, which may drain for half a minute, or give --port\n"
    )


def test_another_program_of_the_same_user_may_join_and_gets_nothing(stack: ExitStack) -> None:
    port = open_port(stack)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as joined:
        joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        joined.bind(port.address)
        for number in range(200):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
                source.sendto(b"%d" % number, port.address)
            assert [burst.data for burst in port.receive()] == [b"%d" % number]
        assert not select.select([joined], [], [], 0)[0]


# --- What leaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_answer", [True, False])
@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6), pytest.param("::", marks=NEEDS_IPV6)]
)
def test_all_leaves_from_the_ports_address(stack: ExitStack, host: str, is_answer: bool) -> None:
    port = open_port(stack, host)
    near = peer(stack, "127.0.0.1" if host == "::" else host)
    port.send([Transmit(b"one", 3, [address_of(near)], not is_answer)])
    assert near.recvfrom(10)[0] == b"one"
    port.send([Transmit(b"aabbc", 2, [address_of(near)], not is_answer)])
    heard = [near.recvfrom(10) for _ in range(3)]
    assert [data for data, _ in heard] == [b"aa", b"bb", b"c"]
    expected = ("127.0.0.1" if host == "::" else host), port.address[1]
    assert {source[:2] for _, source in heard} == {expected}


def test_where_all_is_portable_one_socket_sends(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKETS_VARIABLE, "portable")
    port, near = stack.enter_context(UdpPort(open_socket("127.0.0.1", 0))), peer(stack)
    assert not port.open_outlets()
    port.send([Transmit(b"copy", 4, [address_of(near)]), Transmit(b"answer", 6, [address_of(near)], 0)])
    assert [near.recv(10), near.recv(10)] == [b"copy", b"answer"]


# --- Who is set aside --------------------------------------------------------------------------------


class Bench:
    """Outlets on loopback. The clock, how much waits and who does not answer are the test's to say."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.asked_at: list[float] = []
        self.ask_s = 0.0
        self.neighbours: Neighbours | None = NOBODY
        self.waiting_bytes = 0
        self.errors: Counter[str] = Counter()
        self.opened = 0
        self._main = stack.enter_context(open_socket("127.0.0.1", 0))
        self.outlets = Outlets(self._open, self.errors, clock=lambda: self.now, ask=self._ask)
        stack.callback(self.outlets.close)
        monkeypatch.setattr("kcast.pubsub.sending.read_memory", self._read_memory)

    def _open(self) -> socket.socket:
        self.opened += 1
        return open_sender(self._main, 65_536)

    def _ask(self) -> Neighbours | None:
        self.asked_at.append(self.now)
        self.now += self.ask_s
        return self.neighbours

    def _read_memory(self, sock: socket.socket) -> Any:
        memory = read_memory(sock)
        assert memory is not None
        return memory._replace(sending_bytes=self.waiting_bytes, sending_bytes_max=1_000_000)

    def send(
        self, *to: Address, data: bytes = b"x", segment_bytes: int = 1200, is_answer: bool = False
    ) -> None:
        self.outlets.send([Transmit(data, segment_bytes, to, not is_answer)])


@pytest.fixture
def bench(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(stack, monkeypatch)


def heard(sock: socket.socket) -> int:
    """How many datagrams wait."""
    count = 0
    while select.select([sock], [], [], 0)[0]:
        sock.recv(2000)
        count += 1
    return count


@pytest.mark.parametrize("is_answer", [True, False])
def test_under_pressure_the_silent_are_set_aside(stack: ExitStack, bench: Bench, is_answer: bool) -> None:
    near, silent = peer(stack), peer(stack, "127.0.0.2")
    bench.waiting_bytes = 300_000
    bench.neighbours = Neighbours(frozenset(), frozenset({"127.0.0.2"}))
    both = address_of(silent), address_of(near)
    bench.send(*both, is_answer=is_answer)
    assert bench.asked_at == [100.0]
    assert (heard(near), heard(silent)) == (1, 0)
    assert bench.errors == {"unresolved": 1}
    for _ in range(100):
        bench.now += 0.1
        bench.send(*both, is_answer=is_answer)
    assert heard(near) == 100
    assert 15 <= heard(silent) <= 25, "two trials a second"


def test_of_a_run_one_datagram_is_a_trial(stack: ExitStack, bench: Bench) -> None:
    silent = peer(stack, "127.0.0.2")
    bench.waiting_bytes = 300_000
    bench.neighbours = Neighbours(frozenset(), frozenset({"127.0.0.2"}))
    bench.send(address_of(silent))
    bench.now += 1
    bench.send(address_of(silent), data=b"aabbc", segment_bytes=2)
    assert silent.recv(10) == b"aa"
    assert bench.errors == {"unresolved": 1 + 2}


def test_who_answers_again_is_back_within_moments(stack: ExitStack, bench: Bench) -> None:
    silent = peer(stack, "127.0.0.2")
    bench.waiting_bytes = 300_000
    bench.neighbours = Neighbours(frozenset(), frozenset({"127.0.0.2"}))
    bench.send(address_of(silent))
    bench.waiting_bytes = 0
    bench.neighbours = Neighbours(frozenset({"127.0.0.2"}), frozenset())
    for _ in range(20):
        bench.now += 0.01
        bench.send(address_of(silent))
    assert heard(silent) >= 10
    assert bench.outlets.aside_count == 0


def test_asking_takes_a_fiftieth_of_the_time_at_most(stack: ExitStack, bench: Bench) -> None:
    near = peer(stack)
    bench.waiting_bytes, bench.ask_s = 300_000, 0.01
    began = bench.now
    while bench.now < began + 20:
        bench.now += 0.01
        bench.send(*[address_of(near)] * 30, data=bytes(1000))
        heard(near)
    assert 30 <= len(bench.asked_at) <= 47  # 20 s / 50 / 0.01 s, and 0.05 s in one go


def test_a_buffer_that_the_silent_have_filled_is_left_behind(stack: ExitStack, bench: Bench) -> None:
    near = peer(stack)
    bench.waiting_bytes = 300_000
    outlets = bench.outlets
    before, answers = outlets._copies._socket, outlets._answers._socket
    bench.send(address_of(near))
    assert outlets._copies._socket is before, "nobody is silent, so it is the network that is slow"
    bench.now += 1
    bench.neighbours = Neighbours(frozenset(), frozenset({"127.0.0.2"}))
    bench.send(*[address_of(near)] * 30)
    assert before.fileno() == -1
    assert outlets._answers._socket is answers
    bench.now += 1
    opened = bench.opened
    bench.send(*[address_of(near)] * 30)
    assert bench.opened == opened, "nobody new is silent"
    assert heard(near) == 61


def test_a_kernel_that_does_not_tell_sets_nobody_aside(stack: ExitStack, bench: Bench) -> None:
    near = peer(stack)
    bench.waiting_bytes, bench.neighbours = 300_000, None
    for _ in range(10):
        bench.now += 1
        bench.send(*[address_of(near)] * 30, data=bytes(1000))
    assert heard(near) == 300
    assert len(bench.asked_at) >= 10
    assert bench.outlets.aside_count == 0


@pytest.mark.parametrize("is_answer", [True, False])
def test_a_refused_destination_is_set_aside_alone(stack: ExitStack, bench: Bench, is_answer: bool) -> None:
    near = peer(stack)
    to = ("127.0.0.1", 0), address_of(near)  # no system sends to port 0
    calls = 1000
    for _ in range(calls):
        bench.now += 0.01
        bench.send(*to, is_answer=is_answer)
        near.recv(10)
    assert bench.errors["refused"] + bench.errors["EINVAL"] == calls
    assert 10 <= bench.errors["EINVAL"] <= 30, "two trials a second"
    assert bench.asked_at == []


@pytest.mark.parametrize("why", ["refused", "unresolved"])
def test_who_is_set_aside_makes_no_copy_for_others_cost_more(
    stack: ExitStack, bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Any stranger can be: his source need only be port 0. Copies for the others leave in calls for many."""
    near = peer(stack)
    away: Address = ("127.0.0.1", 0) if why == "refused" else ("127.0.0.2", 7)
    bench.send(address_of(near))  # so that it is known how much may be sent
    if why == "refused":
        bench.send(away, is_answer=True)
    else:
        bench.outlets._set_aside.learn((), [away[0]], bench.now)
    assert bench.outlets.aside_count == 1
    copies, calls = bench.outlets._copies, list[list[int]]()
    send_all = copies.send_all

    def counted(transmits: list[Transmit]) -> None:
        calls.append([len(each.destinations) for each in transmits])
        send_all(transmits)

    monkeypatch.setattr(copies, "send_all", counted)
    monkeypatch.setattr(copies, "send", None)
    copy = Transmit(b"x", 1, (address_of(near),))
    for _ in range(2):
        bench.outlets.send([copy] * 20)
        bench.outlets.send([Transmit(b"answer", 6, (away,), 0)])  # nor when it is sent something
    bench.outlets.send([copy, copy._replace(destinations=(away, address_of(near))), copy])
    assert calls == [[1] * 20, [1] * 20, [1] * 3]
    assert heard(near) == 1 + 20 + 20 + 3
    assert bench.errors[why] == 3


def test_who_is_sent_nothing_more_is_no_longer_aside(stack: ExitStack, bench: Bench) -> None:
    near = peer(stack)
    bench.send(("127.0.0.1", 0), is_answer=True)
    bench.now += FORGET_S - 1
    bench.send(address_of(near))
    assert bench.outlets.aside_count == 1
    bench.now += 2 + TRIAL_S_MIN
    bench.send(address_of(near))
    assert bench.outlets.aside_count == 0


def test_a_trial_that_works_ends_it(stack: ExitStack, bench: Bench) -> None:
    near = peer(stack)
    bench.outlets._refused(address_of(near))
    for _ in range(10):
        bench.now += 0.01
        bench.send(address_of(near))
    assert bench.errors == {"refused": 4}
    assert heard(near) == 6
    assert bench.outlets.aside_count == 0


# --- Neighbours that are gone ------------------------------------------------------------------------


class Link(NamedTuple):
    port: UdpPort
    there: Namespace
    living: socket.socket


@pytest.fixture
def link(stack: ExitStack) -> Link:
    """A port on a link with one who answers, 192.0.2.2, and nobody else. Its buffers are small."""
    need_namespaces()
    here, there = stack.enter_context(Namespace()), stack.enter_context(Namespace())
    here.link("a", there, "b")
    here.add("a", "192.0.2.1/24")
    there.add("b", "192.0.2.2/24")
    port = here.call(lambda: open_port(stack, "192.0.2.1", send_buffer_bytes=212_992))
    assert port._outlets is not None
    opening, asking = port._outlets._open_socket, port._outlets._ask
    port._outlets._open_socket = lambda: here.call(opening)
    port._outlets._ask = lambda: here.call(asking)
    return Link(port, there, there.call(lambda: peer(stack, "192.0.2.2")))


GONE = [(f"192.0.2.{number}", 7400) for number in range(10, 110)]


def test_the_gone_cost_the_living_nothing(link: Link) -> None:
    port, _, living = link
    arrived = 0
    for _ in range(2000):
        port.send([Transmit(bytes(1000), 1000, [*GONE[:50], address_of(living), *GONE[50:]])])
        arrived += heard(living)
    living.settimeout(0.2)
    arrived += heard(living)
    assert arrived >= 0.999 * 2000
    assert port.send_errors["unresolved"] > 150_000


def test_copies_cost_answers_nothing_even_where_nobody_can_be_asked(link: Link) -> None:
    port, _, living = link
    assert port._outlets is not None
    port._outlets._ask = lambda: None
    for _ in range(100):
        port.send([Transmit(bytes(1000), 1000, GONE)])
        port.send([Transmit(b"answer", 6, [address_of(living)], 0)])
        assert living.recv(10) == b"answer"
    assert port.send_errors["EAGAIN"] > 5000


def test_who_comes_back_gets_everything_soon(stack: ExitStack, link: Link) -> None:
    port, there, _ = link
    returns = GONE[0]

    def send_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            port.send([Transmit(bytes(1000), 1000, GONE)])
            time.sleep(0.01)

    send_for(0.5)
    assert port._outlets is not None
    assert port._outlets.aside_count == len(GONE)
    there.add("b", f"{returns[0]}/24")
    back = there.call(lambda: stack.enter_context(open_socket(*returns)))
    deadline = time.monotonic() + WAIT_S
    while port._outlets.aside_count == len(GONE):
        assert time.monotonic() < deadline, "it was not found again"
        send_for(0.05)
    heard(back)
    sent_before = port.send_errors["unresolved"]
    send_for(0.2)
    rounds = (port.send_errors["unresolved"] - sent_before) // (len(GONE) - 1)
    assert heard(back) >= rounds


def test_where_senders_cannot_be_opened_nobody_else_joins_the_port(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SO_ATTACH_REUSEPORT_CBPF", 9999)  # as where the system has none of this
    port = stack.enter_context(UdpPort(open_socket("127.0.0.1", 0)))
    assert not port.open_outlets()
    other = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    with pytest.raises(OSError, match="in use"):
        other.bind(port.address)
