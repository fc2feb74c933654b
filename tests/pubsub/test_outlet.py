"""pubsub/outlet.py: what one socket sends, by native code and without it, is the same, whatever fails."""

import errno
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from kcast.pubsub import outlet
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.outlet import CALL_BYTES_MAX, Outlet
from kcast.pubsub.udp import open_socket
from tests.support.serve_process import NEEDS_IPV6

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have no sendmmsg"),
]

Place = tuple[int, int, int]  # a transmit, one of its destinations, and a byte

BUFFER_BYTES = 4 * 1024 * 1024
IS_NATIVE = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(outlet._native is None, reason="native code is not built")),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def new_outlet(stack: ExitStack, host: str = "127.0.0.1", **options: Any) -> tuple[Outlet, Counter[str]]:
    errors: Counter[str] = Counter()
    sock = stack.enter_context(open_socket(host, 0, send_buffer_bytes=BUFFER_BYTES))
    return Outlet(sock, errors, **options), errors


def peers(stack: ExitStack, count: int, host: str = "127.0.0.1") -> list[socket.socket]:
    opened = [open_socket(host, 0, receive_buffer_bytes=BUFFER_BYTES) for _ in range(count)]
    return [stack.enter_context(sock) for sock in opened]


def address_of(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return host, port


def arrived(sock: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(sock.recv(65_536))
        except BlockingIOError:
            return found


def expected(transmits: Sequence[Transmit], address: Address) -> list[bytes]:
    """The datagrams that this destination is to get, in order."""
    return [
        datagram
        for data, segment_bytes, destinations, _ in transmits
        for destination in destinations
        if destination == address
        for datagram in datagrams(data, segment_bytes)
    ]


@pytest.mark.parametrize("is_native", IS_NATIVE)
@pytest.mark.parametrize("is_list", [False, True])
def test_each_destination_gets_each_datagram_in_order(
    stack: ExitStack, is_native: bool, is_list: bool
) -> None:
    """Single datagrams, runs, and runs of more than one call: of more than 64 datagrams, or of 64 KB."""
    rng = Random(3)
    sent_by, errors = new_outlet(stack, is_native=is_native)
    socks = peers(stack, 5)
    addresses = [address_of(sock) for sock in socks]
    transmits = []
    for _ in range(120):
        segment_bytes = rng.choice((1, 7, 100, 1200))
        size_bytes = rng.choice((1, segment_bytes, 3 * segment_bytes, 65 * segment_bytes + 1))
        chosen = rng.sample(addresses, rng.randint(0, 5))
        data = rng.randbytes(min(size_bytes, 2 * CALL_BYTES_MAX))
        transmits.append(Transmit(data, segment_bytes, chosen if is_list else tuple(chosen)))
    for start in range(0, len(transmits), 20):
        part = transmits[start : start + 20]
        sent_by.send_all(part)
        for sock, address in zip(socks, addresses, strict=True):
            assert arrived(sock) == expected(part, address)
    assert not errors


@pytest.mark.parametrize("is_native", IS_NATIVE)
def test_what_fails_is_counted_and_the_rest_is_sent(stack: ExitStack, is_native: bool) -> None:
    """A destination of a family that the socket has not, and one that the kernel refuses, amid others."""
    refused: list[Address] = []
    sent_by, errors = new_outlet(stack, is_native=is_native, on_refusal=refused.append)
    (sock,) = peers(stack, 1)
    well, foreign, broadcast = address_of(sock), ("::1", 9), ("255.255.255.255", 9)
    transmits = [
        Transmit(b"a" * 10, 10, (foreign, well, broadcast, well)),
        Transmit(b"b" * 25, 10, (broadcast, well, foreign)),
        Transmit(b"c" * 5, 10, [foreign, foreign, well]),
    ]
    sent_by.send_all(transmits)
    assert arrived(sock) == expected(transmits, well)
    assert errors == {"EAFNOSUPPORT": 1 + 3 + 2, "EACCES": 1 + 3}
    assert refused == [foreign, broadcast, broadcast, foreign, foreign, foreign]


@pytest.mark.skipif(outlet._native is None, reason="native code is not built")
@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
def test_who_can_take_no_runs_takes_native_sending_from_nobody(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As where the path to a subscriber is narrower than a segment: what goes there goes singly."""
    sent_by, errors = new_outlet(stack)
    narrow, wide = peers(stack, 2)
    native, places = outlet._native, list[Place]()

    def refusing(descriptor: int, is_ipv6: bool, transmits: list[Transmit], place: Place) -> Any:
        places.append(place)
        is_first = place == (0, 0, 0) and transmits[0].destinations[0] == address_of(narrow)
        return (number, place) if is_first else native(descriptor, is_ipv6, transmits, place)

    monkeypatch.setattr(sent_by, "_native", refusing)
    for _ in range(3):
        sent_by.send_all([Transmit(b"a" * 30, 10, (address_of(narrow), address_of(wide)))])
        sent_by.send_all([Transmit(b"b" * 30, 10, (address_of(wide),))] * 5)
    assert places == [(0, 0, 0), (0, 0, 64 * 10), (0, 0, 0)] * 3
    assert arrived(narrow) == [b"a" * 10] * 3 * 3
    assert arrived(wide) == ([b"a" * 10] * 3 + [b"b" * 10] * 15) * 3
    assert not errors


@NEEDS_IPV6
@pytest.mark.parametrize("is_native", IS_NATIVE)
def test_a_socket_of_both_families_reaches_both(stack: ExitStack, is_native: bool) -> None:
    sent_by, errors = new_outlet(stack, "::", is_native=is_native)
    (ipv4,), (ipv6,) = peers(stack, 1), peers(stack, 1, "::1")
    transmits = [Transmit(b"a" * 300, 100, (address_of(ipv4), address_of(ipv6)))]
    sent_by.send_all(transmits)
    for sock in (ipv4, ipv6):
        assert arrived(sock) == [b"a" * 100] * 3
    assert not errors


@pytest.mark.skipif(outlet._native is None, reason="native code is not built")
@pytest.mark.parametrize(
    ("transmits", "place"),
    [
        ((), (0, 0, 0)), ([()], (0, 0, 0)), ([(b"a", 0, ())], (0, 0, 0)), ([("a", 1, ())], (0, 0, 0)),
        ([(b"a", 1, 5)], (0, 0, 0)), ([(b"a", 1, (5,))], (0, 0, 0)), ([(b"a", 1, ((1, 2),))], (0, 0, 0)),
        ([(b"a", 70_000, ())], (0, 0, 0)), ([(b"a", 1, (("127.0.0.1", 65_536),))], (0, 0, 0)),
        ([(b"a", 1, (("127.0.0.1", -1),))], (0, 0, 0)), ([], (-1, 0, 0)),
    ],
)  # fmt: skip
def test_native_code_refuses_what_is_no_transmit(stack: ExitStack, transmits: Any, place: Any) -> None:
    sock = stack.enter_context(open_socket("127.0.0.1", 0))
    with pytest.raises((TypeError, OverflowError)):
        outlet._native(sock.fileno(), False, transmits, place)


@pytest.mark.skipif(outlet._native is None, reason="native code is not built")
def test_native_code_tells_of_a_closed_socket(stack: ExitStack) -> None:
    sock = open_socket("127.0.0.1", 0)
    descriptor = sock.fileno()
    sock.close()
    transmits = [Transmit(b"a", 1, (("127.0.0.1", 9),))]
    assert outlet._native(descriptor, False, transmits, (0, 0, 0)) == (errno.EBADF, (0, 0, 0))
    assert outlet._native(descriptor, False, transmits, (5, 0, 0)) is None
