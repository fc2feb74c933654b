"""pubsub/udp.py on real loopback sockets."""

import asyncio
import errno
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

from kcast.pubsub import inlet, udp
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.inlet import BURSTS_MAX
from kcast.pubsub.outlet import CALL_BYTES_MAX, SEGMENTS_MAX
from kcast.pubsub.sockets import SOCKETS_VARIABLE, Memory
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.serve_process import NEEDS_IPV6

pytestmark = pytest.mark.world

WAIT_S = 5.0
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="Linux's batching and error queue")

EITHER_HOST = ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6)]


@pytest.fixture(params=["linux", "portable"], autouse=True)
def sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test is done twice: in Linux's own ways, and in those that every system has."""
    way: str = request.param
    if way == "portable":
        if LINUX_ONLY.mark in request.node.iter_markers():
            pytest.skip("this way is Linux's own")
        monkeypatch.setenv(SOCKETS_VARIABLE, way)
    return way


Open = Callable[..., UdpPort]


class StubbornSocket(socket.socket):
    """A socket whose send calls can be made to fail: `refuse(call, destination)` gives the errno, or 0."""

    refuse: Callable[[str, Any], int]
    calls: list[str]

    def sendto(self, data: Any, destination: Any) -> int:  # type: ignore[override]  # one form
        self._consider("sendto", destination)
        return super().sendto(data, destination)

    def sendmsg(self, buffers: Any, control: Any = (), flags: int = 0, destination: Any = None, /) -> int:
        self._consider("sendmsg", destination)
        return super().sendmsg(buffers, control, flags, destination)

    def _consider(self, call: str, destination: Any) -> None:
        self.calls.append(call)
        if number := self.refuse(call, destination):
            raise OSError(number, "refused by the test")


@pytest.fixture
def ports() -> Iterator[Open]:
    """Opens ports on loopback, and closes them at the end."""
    with ExitStack() as stack:

        def open_port(host: str = "127.0.0.1", batching: bool = True, **options: Any) -> UdpPort:
            return stack.enter_context(UdpPort(open_socket(host, 0, **options), batching=batching))

        yield open_port


def stubborn(refuse: Callable[[str, Any], int], *, batching: bool = True) -> tuple[UdpPort, list[str]]:
    sock = StubbornSocket(fileno=open_socket("127.0.0.1", 0).detach())
    sock.refuse, sock.calls = refuse, []
    return UdpPort(sock, batching=batching), sock.calls


def take_bursts(port: UdpPort, datagram_count: int) -> list[Burst]:
    """Bursts until so many datagrams came, or none for a while."""
    bursts: list[Burst] = []
    while len(contents(bursts)) < datagram_count and select.select([port], [], [], WAIT_S)[0]:
        bursts += port.receive()
    return bursts


def contents(bursts: Sequence[Burst]) -> list[bytes]:
    return [one for burst in bursts for one in datagrams(burst.data, burst.segment_bytes)]


def numbered(count: int, datagram_bytes: int = 100) -> bytes:
    return b"".join(b"%d" % number + b"." * (datagram_bytes - len(str(number))) for number in range(count))


def closed_address(host: str = "127.0.0.1") -> Address:
    """An address where nothing listens. It was free a moment ago, and ports are not reused at once."""
    with UdpPort(open_socket(host, 0)) as port:
        return port.address


# --- Opening -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "example.org", "", "127.1", "127.0.0.1:7400"])
def test_a_name_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="names are not looked up"):
        open_socket(host, 0)


@pytest.mark.parametrize("host", EITHER_HOST)
def test_a_taken_port_is_an_error(ports: Open, host: str) -> None:
    taken = ports(host).address
    with pytest.raises(OSError) as caught:
        open_socket(*taken)
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%lo", "fe80::1%no-such-link"])
def test_an_address_that_needs_a_link_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=f"^{host} is link-local"):
        open_socket(host, 0)


@LINUX_ONLY
def test_the_receive_buffer_is_as_large_as_allowed() -> None:
    with open_socket("127.0.0.1", 0, receive_buffer_bytes=300_000) as small:
        assert 200_000 <= small.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 600_000
        with open_socket("127.0.0.1", 0, receive_buffer_bytes=1 << 30) as huge:
            size_bytes = huge.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert size_bytes >= small.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


# --- Bursts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", EITHER_HOST)
@pytest.mark.parametrize("receiver_batches", [True, False])
@pytest.mark.parametrize("sender_batches", [True, False])
@pytest.mark.parametrize(
    ("data", "segment_bytes"),
    [
        (b"one", 3),
        (b"one", 1200),
        (b"", 0),
        (numbered(2), 100),
        (numbered(64), 100),
        (numbered(64) + b"shorter", 100),
        (numbered(200) + b"shorter", 100),
        (numbered(120, 1200), 1200),
        (bytes(CALL_BYTES_MAX), CALL_BYTES_MAX),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else "",
)
def test_what_is_sent_arrives(
    ports: Open, host: str, receiver_batches: bool, sender_batches: bool, data: bytes, segment_bytes: int
) -> None:
    sender, receiver = ports(host, sender_batches), ports(host, receiver_batches)
    expected = list(datagrams(data, segment_bytes))
    sender.send([Transmit(data, segment_bytes, [receiver.address])])
    bursts = take_bursts(receiver, len(expected))
    assert contents(bursts) == expected
    assert {burst.source for burst in bursts} == {sender.address}
    assert not sender.send_errors


@LINUX_ONLY
def test_a_run_arrives_in_one_burst(ports: Open) -> None:
    sender, receiver = ports(), ports()
    if not (sender.sends_batches and receiver.receives_batches):
        pytest.skip("this kernel does not batch")
    sender.send([Transmit(numbered(SEGMENTS_MAX), 100, [receiver.address])])
    assert take_bursts(receiver, SEGMENTS_MAX) == [Burst(numbered(SEGMENTS_MAX), 100, sender.address)]


def test_every_destination_gets_every_datagram(ports: Open) -> None:
    sender, receivers = ports(), [ports() for _ in range(5)]
    everyone = tuple(receiver.address for receiver in receivers)
    sender.send([Transmit(numbered(3), 100, everyone), Transmit(b"last", 4, everyone[1:])])
    for index, receiver in enumerate(receivers):
        expected = [*datagrams(numbered(3), 100), *([b"last"] if index else [])]
        assert contents(take_bursts(receiver, len(expected))) == expected


def test_a_receive_is_bounded(ports: Open) -> None:
    sender, receiver = ports(), ports(batching=False)
    count = BURSTS_MAX + 8
    sender.send([Transmit(b"%d" % number, 4, [receiver.address]) for number in range(count)])
    first = receiver.receive()
    assert len(first) == BURSTS_MAX
    rest = take_bursts(receiver, count - len(first))
    assert contents(first + rest) == [b"%d" % number for number in range(count)]
    assert receiver.receive() == []


# --- Addresses ---------------------------------------------------------------------------------------


@NEEDS_IPV6
def test_a_wildcard_port_speaks_both_families(ports: Open) -> None:
    both = ports("::")
    number = both.address[1]
    for host in ("127.0.0.1", "::1"):
        peer = ports(host)
        peer.send([Transmit(b"ask", 3, [(host, number)])])
        (burst,) = take_bursts(both, 1)
        assert burst == Burst(b"ask", 3, peer.address)
        both.send([Transmit(numbered(3), 100, [burst.source])])
        assert contents(take_bursts(peer, 3)) == list(datagrams(numbered(3), 100))


def test_an_ipv6_destination_on_an_ipv4_socket_is_counted(ports: Open) -> None:
    sender, receiver = ports(), ports()
    sender.send([Transmit(b"a", 1, [("::1", 7400), receiver.address])])
    assert contents(take_bursts(receiver, 1)) == [b"a"]
    assert sender.send_errors == {"EAFNOSUPPORT": 1}


class FarSocket(socket.socket):
    """A socket to which everything comes from a link-local address, which only its scope tells whose."""

    def recvmsg(self, *arguments: Any) -> Any:
        data, control, flags, source = super().recvmsg(*arguments)
        return data, control, flags, ("fe80::1%eth0", *source[1:3], 2)


@NEEDS_IPV6
def test_who_cannot_be_answered_is_dropped_at_the_edge(ports: Open) -> None:
    sender = ports("::1")
    far = FarSocket(fileno=open_socket("::1", 0).detach())
    with UdpPort(far, is_native=False) as receiver:
        sender.send([Transmit(b"x", 1, [receiver.address]), Transmit(numbered(3), 100, [receiver.address])])
        deadline = time.monotonic() + WAIT_S
        while receiver.link_local_count < 4 and time.monotonic() < deadline:
            assert receiver.receive() == []
    assert receiver.link_local_count == 4


def link_local_addresses() -> list[tuple[str, int]]:
    """This machine's, each with the index of its interface; one of a container may be gone a moment later."""
    file = Path("/proc/net/if_inet6")
    lines = file.read_text().splitlines() if file.exists() else []
    fields = [line.split() for line in lines if line.startswith("fe80")]
    return [(str(IPv6Address(int(each[0], 16))), int(each[1], 16)) for each in fields]


def send_from(host: str, scope: int, port: int) -> bool:
    """Send a datagram from a link-local address to itself; whether the kernel has that address still."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        try:
            sender.bind((host, 0, 0, scope))
            sender.sendto(b"x", (host, port, 0, scope))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.ENODEV):
                raise
            return False
    return True


@NEEDS_IPV6
def test_a_real_link_local_source_is_dropped(ports: Open) -> None:
    receiver = ports("::")
    sent = sum(send_from(host, scope, receiver.address[1]) for host, scope in link_local_addresses())
    if not sent:
        pytest.skip("this machine has no link-local address")
    deadline = time.monotonic() + WAIT_S
    while receiver.link_local_count < sent and time.monotonic() < deadline:
        select.select([receiver], [], [], deadline - time.monotonic())
        assert receiver.receive() == []
    assert receiver.link_local_count == sent


# --- When the kernel took it in -----------------------------------------------------------------------

BOTH_WAYS = pytest.mark.parametrize("batching", [True, False])


def timed_port(stack: ExitStack, host: str = "127.0.0.1", **options: Any) -> UdpPort:
    """A port that tells times, and may be believed to: the kernel begins a moment after it was asked."""
    port = stack.enter_context(UdpPort(open_socket(host, 0), kernel_times=True, **options))
    assert port.tells_times
    sender = stack.enter_context(UdpPort(open_socket("127.0.0.1", 0)))
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        sender.send([Transmit(b"x", 1, [("127.0.0.1", port.address[1])])])
        sent_ns = time.time_ns()
        time.sleep(0.01)
        (burst,) = take_bursts(port, 1)
        if burst.kernel_ns <= sent_ns:
            return port
    raise AssertionError("the kernel tells when it was read, not when it came")


@LINUX_ONLY
@BOTH_WAYS
@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::", marks=NEEDS_IPV6)])
def test_bursts_tell_when_they_came_and_not_when_they_were_read(
    ports: Open, host: str, batching: bool
) -> None:
    with ExitStack() as stack:
        receiver, sender = timed_port(stack, host, batching=batching), ports()
        to = [("127.0.0.1", receiver.address[1])]
        spans: list[tuple[int, int]] = []
        for data in (numbered(3), b"one", numbered(2) + b"short"):
            before_ns = time.time_ns()
            sender.send([Transmit(data, 100, to)])
            spans.append((before_ns, time.time_ns()))
            time.sleep(0.01)
        bursts = take_bursts(receiver, 7)
        expected = [*datagrams(numbered(3), 100), b"one", *datagrams(numbered(2) + b"short", 100)]
        assert contents(bursts) == expected
        if receiver.receives_batches and sender.sends_batches:
            assert [burst.segment_bytes for burst in bursts] == [100, 3, 100]
        assert {burst.source for burst in bursts} == {sender.address}
        owners = [0] * 3 + [1] + [2] * 3 if len(bursts) == 7 else [0, 1, 2]
        for burst, owner in zip(bursts, owners, strict=True):
            assert spans[owner][0] <= burst.kernel_ns <= spans[owner][1], (owner, bursts, spans)


def test_where_the_system_tells_no_times_all_else_works(ports: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "SO_TIMESTAMPNS", 0xFFFF)
    with UdpPort(open_socket("127.0.0.1", 0), kernel_times=True) as receiver:
        assert not receiver.tells_times
        ports().send([Transmit(numbered(3), 100, [receiver.address])])
        bursts = take_bursts(receiver, 3)
        assert contents(bursts) == list(datagrams(numbered(3), 100))
        assert {burst.kernel_ns for burst in bursts} == {0}


@LINUX_ONLY
@pytest.mark.parametrize("host", EITHER_HOST)
def test_reports_are_told_beside_times(host: str) -> None:
    nobody = closed_address(host)
    sock = open_socket(host, 0, report_unreachable=True)
    with UdpPort(sock, kernel_times=True) as port, UdpPort(open_socket(host, 0)) as peer:
        port.send([Transmit(b"x", 1, [nobody])])
        assert select.select([port], [], [], WAIT_S)[0]
        assert port.unreachable() == [nobody]
        peer.send([Transmit(numbered(3), 100, [port.address])])
        bursts = take_bursts(port, 3)
        assert contents(bursts) == list(datagrams(numbered(3), 100))
        assert all(burst.kernel_ns for burst in bursts)


# --- What is not sent --------------------------------------------------------------------------------


def test_a_datagram_too_long_is_counted(ports: Open) -> None:
    sender, receiver = ports(), ports()
    sender.send([Transmit(bytes(70_000), 70_000, [receiver.address])])
    assert sender.send_errors == {"EMSGSIZE": 1}


@LINUX_ONLY
def test_a_bad_destination_costs_nobody_else_the_batching() -> None:
    """Port 0 gives the errno with which a kernel also refuses segments."""
    port, calls = stubborn(lambda call, destination: 0)
    with port, UdpPort(open_socket("127.0.0.1", 0)) as receiver:
        if not port.sends_batches:
            pytest.skip("this kernel does not batch")
        destinations = [("127.0.0.1", 0), receiver.address]
        port.send([Transmit(numbered(64), 100, destinations)])
        assert contents(take_bursts(receiver, 64)) == list(datagrams(numbered(64), 100))
        assert port.send_errors == {"EINVAL": 64}
        assert calls == ["sendmsg", "sendto", "sendmsg"]


@LINUX_ONLY
@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
def test_refused_segments_go_singly_to_that_destination(number: int) -> None:
    """As of a NIC without checksums, or a path narrower than a segment."""
    with UdpPort(open_socket("127.0.0.1", 0)) as narrow, UdpPort(open_socket("127.0.0.1", 0)) as wide:
        port, calls = stubborn(
            lambda call, destination: number if call == "sendmsg" and destination == narrow.address else 0
        )
        with port:
            if not port.sends_batches:
                pytest.skip("this kernel does not batch")
            for _ in range(2):
                port.send([Transmit(numbered(10), 100, [narrow.address, wide.address])])
            for receiver in (narrow, wide):
                assert contents(take_bursts(receiver, 20)) == 2 * list(datagrams(numbered(10), 100))
            # The first run to the narrow one is tried, the second is not.
            first = ["sendmsg", *["sendto"] * 10, "sendmsg"]
            assert calls == [*first, *["sendto"] * 10, "sendmsg"]
            assert not port.send_errors


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOBUFS, errno.EPERM])
def test_what_the_kernel_does_not_take_is_dropped_and_counted(number: int, batching: bool) -> None:
    with UdpPort(open_socket("127.0.0.1", 0)) as full, UdpPort(open_socket("127.0.0.1", 0)) as free:
        port, calls = stubborn(
            lambda call, destination: number if destination == full.address else 0, batching=batching
        )
        with port:
            both = [full.address, free.address]
            port.send([Transmit(b"one", 3, both), Transmit(numbered(10), 100, both)])
            assert contents(take_bursts(free, 11)) == [b"one", *datagrams(numbered(10), 100)]
            assert port.send_errors == {errno.errorcode[number]: 11}
            # One failing call for a run, however many datagrams it has.
            assert len(calls) == 2 + (2 if port.sends_batches else 11)
            assert full.receive() == []


# --- ICMP --------------------------------------------------------------------------------------------


@LINUX_ONLY
@pytest.mark.parametrize("host", EITHER_HOST)
def test_a_dead_destination_costs_the_living_nothing(ports: Open, host: str) -> None:
    sender, alive = ports(host, report_unreachable=True), ports(host)
    dead = closed_address(host)
    for number in range(20):
        sender.send(
            [
                Transmit(b"%d" % number, 4, [dead, alive.address]),
                Transmit(numbered(3), 100, [dead, alive.address]),
            ]
        )
    assert len(contents(take_bursts(alive, 80))) == 80
    assert not sender.send_errors
    assert dead in sender.unreachable()


@LINUX_ONLY
@pytest.mark.parametrize("host", [*EITHER_HOST, pytest.param("::", marks=NEEDS_IPV6)])
def test_the_unreachable_are_told_once(ports: Open, host: str) -> None:
    sender = ports(host, report_unreachable=True)
    alive, dead = ports(host if host != "::" else "127.0.0.1"), closed_address()
    if host == "::1":
        dead = closed_address("::1")
    for _ in range(3):
        sender.send([Transmit(b"x", 1, [dead, alive.address])])
    assert sender.unreachable() == [dead]
    assert sender.unreachable() == []


@LINUX_ONLY
def test_an_icmp_error_does_not_hide_what_has_arrived(ports: Open) -> None:
    port, peer = ports(report_unreachable=True), ports()
    peer.send([Transmit(b"hello", 5, [port.address])])
    port.send([Transmit(b"x", 1, [closed_address()])])
    assert contents(take_bursts(port, 1)) == [b"hello"]
    assert port.receive_errors == {"ECONNREFUSED": 1}
    assert select.select([port], [], [], 0)[0], "a report is waiting"
    port.unreachable()
    assert not select.select([port], [], [], 0)[0]


@LINUX_ONLY
@pytest.mark.parametrize("loop_module", ["asyncio", "uvloop"])
def test_a_loop_survives_icmp_errors(ports: Open, loop_module: str) -> None:
    """libuv gives up a descriptor at POLLERR, so the socket's own cannot be watched."""
    run: Any = pytest.importorskip(loop_module).run
    port, peer = ports(report_unreachable=True), ports()

    async def main() -> list[Burst]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[list[Burst]] = loop.create_future()
        reported = asyncio.Event()

        def on_readable() -> None:
            if bursts := port.receive():
                arrived.set_result(bursts)
            if port.unreachable():
                reported.set()

        loop.add_reader(port.fileno(), on_readable)
        port.send([Transmit(b"x", 1, [closed_address()])])
        await asyncio.wait_for(reported.wait(), WAIT_S)
        peer.send([Transmit(b"hello", 5, [port.address])])
        return await asyncio.wait_for(arrived, WAIT_S)

    assert contents(run(main())) == [b"hello"]


# --- Overflow ----------------------------------------------------------------------------------------


@LINUX_ONLY
@pytest.mark.parametrize("batching", [True, False])
def test_what_overflows_is_counted(ports: Open, batching: bool) -> None:
    sender, receiver = ports(batching=batching), ports(receive_buffer_bytes=1)
    if not receiver._socket.getsockopt(socket.SOL_SOCKET, 55, 36):
        pytest.skip("this kernel does not tell")
    assert receiver.overflow_count == 0
    for number in range(100):
        sender.send([Transmit(b"%d" % number, 4, [receiver.address])])
    # The last ones may still be on their way through the loopback device.
    deadline = time.monotonic() + WAIT_S
    arrived: list[bytes] = []
    while len(arrived) + receiver.overflow_count < 100 and time.monotonic() < deadline:
        arrived += contents(receiver.receive())
    assert arrived[0] == b"0"
    assert len(arrived) + receiver.overflow_count == 100
    assert receiver.overflow_count > 0


@LINUX_ONLY
def test_drops_grow_where_the_kernels_count_begins_anew(ports: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 32 bits. And what is dropped between two looks lessens no count."""
    port, dropped, between = ports(), 2**32 - 1000, 0

    def read(sock: socket.socket) -> Memory:
        nonlocal dropped
        dropped += between
        return Memory(0, 1, dropped % 2**32)

    monkeypatch.setattr(udp, "read_memory", read)
    monkeypatch.setattr(udp, "set_filter", lambda *_: True)
    counts = [(port.overflow_count, port.sieved_count)]
    assert port.sift(b"a filter")
    for more in (900, 200, 2**32 - 1):
        dropped += more
        counts.append((port.overflow_count, port.sieved_count))
    assert port.sift(None)
    dropped += 2**32 - 50
    counts.append((port.overflow_count, port.sieved_count))
    many = 2**32 - 1000
    assert counts == [
        (many, 0),
        (many, 900),
        (many, 1100),
        (many, 2**32 + 1099),
        (2 * many + 950, 2**32 + 1099),
    ]
    assert port.sift(b"a filter")
    between = 7
    assert [port.overflow_count for _ in range(3)] == [2 * many + 950] * 3
