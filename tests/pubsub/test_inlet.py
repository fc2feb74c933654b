"""pubsub/inlet.py: what one socket receives, by native code and without it, is the same."""

import errno
import gc
import select
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from random import Random

import pytest

from kcast.pubsub import inlet
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.inlet import BURSTS_MAX, BYTES_MAX, BYTES_MIN, Inlet, joined
from kcast.pubsub.outlet import Outlet
from kcast.pubsub.udp import open_socket
from tests.support.serve_process import NEEDS_IPV6

pytestmark = pytest.mark.world

WAIT_S = 10
ONE, OTHER = ("192.0.2.1", 1), ("192.0.2.2", 1)
IS_NATIVE = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(inlet._native is None, reason="native code is not built")),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def bound(stack: ExitStack, host: str = "127.0.0.1") -> socket.socket:
    return stack.enter_context(open_socket(host, 0))


def address_of(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return host, port


def flat(bursts: Sequence[Burst]) -> list[tuple[Address, bytes]]:
    return [(each.source, one) for each in bursts for one in datagrams(each.data, each.segment_bytes)]


def take_all(taker: Inlet, sock: socket.socket, count: int) -> list[Burst]:
    """Bursts until so many datagrams came, or none for a while."""
    bursts: list[Burst] = []
    while len(flat(bursts)) < count and select.select([sock], [], [], WAIT_S)[0]:
        bursts += taker.receive()
    return bursts


def burst_of(*parts: bytes, source: Address = ONE) -> Burst:
    return Burst(b"".join(parts), len(parts[0]), source)


# --- Joining -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        ([burst_of(b"aa"), burst_of(b"bb")], [burst_of(b"aa", b"bb")]),
        ([burst_of(b"aa"), burst_of(b"b"), burst_of(b"cc")], [burst_of(b"aa", b"b"), burst_of(b"cc")]),
        ([burst_of(b"a"), burst_of(b"bb")], [burst_of(b"a"), burst_of(b"bb")]),
        ([burst_of(b"a"), burst_of(b"b", source=OTHER)], [burst_of(b"a"), burst_of(b"b", source=OTHER)]),
        ([burst_of(b"aa", b"bb"), burst_of(b"cc", b"d")], [burst_of(b"aa", b"bb", b"cc", b"d")]),
        ([burst_of(b"aa", b"b"), burst_of(b"cc")], [burst_of(b"aa", b"b"), burst_of(b"cc")]),
        ([burst_of(b"aa"), burst_of(b"b", b"c")], [burst_of(b"aa"), burst_of(b"b", b"c")]),
        ([burst_of(b""), burst_of(b""), burst_of(b"a")], [burst_of(b""), burst_of(b""), burst_of(b"a")]),
        ([burst_of(b"a"), burst_of(b"")], [burst_of(b"a"), burst_of(b"")]),
        ([burst_of(b"a"), burst_of(b"%"), burst_of(b"b")], [burst_of(b"a"), burst_of(b"%"), burst_of(b"b")]),
        (
            [burst_of(b"a" * 40_000), burst_of(b"b" * 30_000)],
            [burst_of(b"a" * 40_000), burst_of(b"b" * 30_000)],
        ),
    ],
)
def test_neighbours_are_joined_where_they_are_one_burst(came: list[Burst], expected: list[Burst]) -> None:
    assert joined(came) == expected


def test_joining_changes_no_datagram_and_no_order() -> None:
    rng = Random(20261125)
    for _ in range(3000):
        came = []
        for _ in range(rng.randrange(1, 12)):
            size_bytes = rng.choice((0, 1, 2, 3))
            parts = [rng.randbytes(size_bytes) for _ in range(rng.choice((1, 1, 2, 3)) if size_bytes else 1)]
            if len(parts) > 1 and rng.random() < 0.3:
                parts[-1] = parts[-1][1:] or b"x"
            came.append(burst_of(*parts, source=rng.choice((ONE, OTHER))))
        found = joined(came)
        assert flat(found) == flat(came), came
        for one, other in pairwise(found):
            assert joined([one, other]) == [one, other], came


# --- Receiving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_native", IS_NATIVE)
@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6)])
def test_all_that_arrives_is_taken_in_order(
    stack: ExitStack, host: str, batching: bool, is_native: bool
) -> None:
    rng = Random(20261126)
    sock, senders = bound(stack, host), [bound(stack, host) for _ in range(3)]
    errors: Counter[str] = Counter()
    taker = Inlet(sock, errors, batching=batching, is_native=is_native)
    for _ in range(30):
        sent = []
        for _ in range(rng.randrange(1, 150)):
            sender, datagram = rng.choice(senders), rng.randbytes(rng.choice((0, 1, 9, 9, 9, 9, 1100)))
            sender.sendto(datagram, sock.getsockname())
            sent.append((address_of(sender), datagram))
        assert flat(take_all(taker, sock, len(sent))) == sent
    assert taker.receive() == [] and not taker.has_more
    assert not errors


@pytest.mark.parametrize("is_native", IS_NATIVE)
def test_what_a_publisher_sends_one_by_one_is_one_burst(stack: ExitStack, is_native: bool) -> None:
    sock, sender = bound(stack), bound(stack)
    taker = Inlet(sock, Counter(), is_native=is_native)
    for number in range(200):
        sender.sendto(b"t %03d\n" % number, sock.getsockname())
    bursts = take_all(taker, sock, 200)
    assert [each.source for each in bursts] == [address_of(sender)] * len(bursts)
    assert len(bursts) <= 5  # native code does not join those of several calls


@pytest.mark.parametrize("is_native", IS_NATIVE)
def test_what_tells_its_time_is_not_joined(stack: ExitStack, is_native: bool) -> None:
    sock, sender = bound(stack), bound(stack)
    taker = Inlet(sock, Counter(), kernel_times=True, is_native=is_native)
    for _ in range(2 * BURSTS_MAX):
        sender.sendto(b"x", sock.getsockname())
    assert len(taker.receive()) == BURSTS_MAX and taker.has_more
    bursts = take_all(taker, sock, BURSTS_MAX)
    assert len(bursts) == BURSTS_MAX
    if taker.tells_times:
        assert all(each.kernel_ns > 10**18 for each in bursts)


@pytest.mark.parametrize("is_native", IS_NATIVE)
@pytest.mark.parametrize("size_bytes", [1, 1000])
def test_one_go_is_bounded_in_bursts_and_bytes(stack: ExitStack, is_native: bool, size_bytes: int) -> None:
    sock, senders = bound(stack), [bound(stack) for _ in range(2)]
    taker = Inlet(sock, Counter(), is_native=is_native)
    count = 3 * BYTES_MAX // max(BYTES_MIN, size_bytes)
    for _ in range(count):
        senders[0].sendto(b"x" * size_bytes, sock.getsockname())
    first = taker.receive()
    assert taker.has_more
    assert sum(max(BYTES_MIN, size_bytes) for _ in flat(first)) < 2 * BYTES_MAX + 64 * size_bytes
    assert len(flat(first + take_all(taker, sock, count - len(flat(first))))) == count
    for number in range(300):
        senders[number % 2].sendto(b"x", sock.getsockname())
    assert 8 <= len(taker.receive(8)) < 8 + 64
    assert taker.has_more


@pytest.mark.parametrize("is_native", IS_NATIVE)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not join")
def test_runs_of_the_kernel_are_taken_whole(stack: ExitStack, is_native: bool) -> None:
    sock, sender = bound(stack), bound(stack)
    taker = Inlet(sock, Counter(), is_native=is_native)
    outlet = Outlet(sender, Counter())
    run = b"".join(b"%03d" % number for number in range(50)) + b"x"
    outlet.send(run, 3, [address_of(sock)])
    outlet.send(b"yyy", 3, [address_of(sock)])
    bursts = take_all(taker, sock, 52)
    assert flat(bursts) == [(address_of(sender), one) for one in [*datagrams(run, 3), b"yyy"]]
    if taker.receives_batches:
        assert bursts == [Burst(run, 3, address_of(sender)), Burst(b"yyy", 3, address_of(sender))]


@pytest.mark.parametrize("is_native", IS_NATIVE)
@NEEDS_IPV6
def test_an_ipv4_source_is_told_as_ipv4(stack: ExitStack, is_native: bool) -> None:
    sock = bound(stack, "::")
    senders = [bound(stack, host) for host in ("127.0.0.1", "::1")]
    taker = Inlet(sock, Counter(), is_native=is_native)
    for sender in senders:
        sender.sendto(b"x", (sender.getsockname()[0], sock.getsockname()[1]))
    assert [source for source, _ in flat(take_all(taker, sock, 2))] == [address_of(each) for each in senders]


@pytest.mark.parametrize("is_native", IS_NATIVE)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell of no errors on such sockets")
def test_an_error_of_an_earlier_call_is_counted_and_what_has_arrived_is_taken(
    stack: ExitStack, is_native: bool
) -> None:
    sock = stack.enter_context(open_socket("127.0.0.1", 0, report_unreachable=True))
    sender, gone = bound(stack), bound(stack)
    nobody = gone.getsockname()
    gone.close()
    errors: Counter[str] = Counter()
    taker = Inlet(sock, errors, is_native=is_native)
    sock.sendto(b"to nobody", nobody)
    sender.sendto(b"x", sock.getsockname())
    assert select.select([sock], [], [], WAIT_S)[0]
    assert flat(taker.receive()) == [(address_of(sender), b"x")]
    assert errors == {"ECONNREFUSED": 1}
    assert taker.receive() == [] and not taker.has_more


@pytest.mark.parametrize("is_native", IS_NATIVE)
def test_a_closed_socket_is_told_of(stack: ExitStack, is_native: bool) -> None:
    sock = bound(stack)
    taker = Inlet(sock, Counter(), is_native=is_native)
    sock.close()
    with pytest.raises(OSError) as caught:
        taker.receive()
    assert caught.value.errno == errno.EBADF


@pytest.mark.skipif(inlet._native is None, reason="native code is not built")
def test_native_code_keeps_nothing_of_what_it_received(stack: ExitStack) -> None:
    sock, sender = bound(stack), bound(stack)
    number = sock.fileno()

    def receive() -> None:
        for _ in range(6):
            sender.sendto(b"x" * 100, sock.getsockname())
        inlet._native(number, 1, BYTES_MAX, True, Burst)
        inlet._native(number, 8, BYTES_MAX, False, Burst)
        with pytest.raises(TypeError, match="give Burst"):
            inlet._native(number, 8, BYTES_MAX, False, list)
        assert inlet._native(number, 8, BYTES_MAX, False, Burst) == ([], errno.EAGAIN, 0)

    receive()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        receive()
    gc.collect()
    assert sys.getallocatedblocks() - before < 200
    with pytest.raises(TypeError):
        inlet._native(number, 8, BYTES_MAX, False)
