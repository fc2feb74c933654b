"""pubsub/listen.py: a server's sockets, and which addresses are its own or local."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from kcast.pubsub import listen
from kcast.pubsub.endpoint import Address
from kcast.pubsub.listen import ListenError, is_local, is_loopback, is_wildcard, own_addresses
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.serve_process import NEEDS_IPV6

pytestmark = pytest.mark.world


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def open_ports(stack: ExitStack, *hosts: str, port: int = 0) -> list[UdpPort]:
    ports = listen.open_ports(hosts, port, receive_buffer_bytes=65_536)
    for each in ports:
        stack.enter_context(each)
    return ports


def hosts(ports: Sequence[UdpPort]) -> list[str]:
    return [port.address[0] for port in ports]


# --- Sockets -----------------------------------------------------------------------------------------


@NEEDS_IPV6
def test_two_families_share_a_port(stack: ExitStack) -> None:
    ports = open_ports(stack, "127.0.0.1", "::1")
    assert hosts(ports) == ["127.0.0.1", "::1"]
    assert ports[0].address[1] == ports[1].address[1]


@NEEDS_IPV6
def test_a_free_port_is_free_for_both(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free for one family may be taken for the other: then another one is tried."""
    taken = stack.enter_context(UdpPort(open_socket("::1", 0))).address[1]
    asked: list[tuple[str, int]] = []

    def open_unluckily(host: str, port: int, **options: object) -> socket.socket:
        asked.append((host, port))
        return open_socket(host, taken if len(asked) == 1 else port)

    monkeypatch.setattr(listen, "open_socket", open_unluckily)
    ports = open_ports(stack, "127.0.0.1", "::1")
    assert ports[0].address[1] == ports[1].address[1] != taken
    assert [host for host, _ in asked] == ["127.0.0.1", "::1"] * 2


@pytest.mark.parametrize(
    "two", [("127.0.0.1", "127.0.0.2"), ("::1", "::"), ("127.0.0.1", "::ffff:127.0.0.2")]
)
def test_two_of_one_family_are_refused(stack: ExitStack, two: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="one IPv4 and one IPv6 address"):
        open_ports(stack, *two)


def test_a_taken_port_is_said_so_and_leaves_nothing_open(stack: ExitStack) -> None:
    port = open_ports(stack, "127.0.0.1")[0].address[1]
    with pytest.raises(ListenError, match=rf"^127\.0\.0\.1:{port} is in use; stop the other server"):
        open_ports(stack, "127.0.0.1", port=port)


@NEEDS_IPV6
def test_where_the_second_cannot_be_bound_the_first_is_closed(stack: ExitStack) -> None:
    port = open_ports(stack, "::1")[0].address[1]
    with pytest.raises(ListenError, match="is in use"):
        open_ports(stack, "127.0.0.1", "::1", port=port)
    open_ports(stack, "127.0.0.1", port=port)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_said_so(stack: ExitStack, host: str) -> None:
    with pytest.raises(ListenError, match=r"give another --host$"):
        open_ports(stack, host, port=7400)


# --- Kinds of addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("10.1.2.3", True), ("172.31.0.1", True)),
        *(("192.168.0.1", True), ("169.254.1.1", True), ("::1", True), ("fd00::1", True), ("fe80::1", True)),
        *(("172.32.0.1", False), ("192.0.2.1", False), ("100.64.0.1", False), ("8.8.8.8", False)),
        *(("2001:db8::1", False), ("0.0.0.0", False), ("::", False)),
    ],
)
def test_open_is_for_loopback_and_private_addresses(host: str, expected: bool) -> None:
    assert is_local((host, 7400)) is expected


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (["127.0.0.1"], {"127.0.0.1"}),
        (["192.168.0.1"], {"192.168.0.1"}),
        (["::1"], {"::1"}),
        (["0.0.0.0"], {"127.0.0.1"}),
        (["::"], {"127.0.0.1", "::1"}),
        (["192.168.0.1", "fd00::1"], {"192.168.0.1", "fd00::1"}),
        (["192.168.0.1", "::"], {"192.168.0.1", "127.0.0.1", "::1"}),
    ],
)
def test_own_addresses(bound: list[str], expected: set[str]) -> None:
    assert own_addresses([(host, 7400) for host in bound]) == {(each, 7400) for each in expected}


@pytest.mark.parametrize(
    ("address", "wildcard", "loopback"),
    [
        (("0.0.0.0", 1), True, False),
        (("::", 1), True, False),
        (("127.0.0.9", 1), False, True),
        (("::1", 1), False, True),
        (("192.0.2.1", 1), False, False),
    ],
)
def test_wildcard_and_loopback(address: Address, wildcard: bool, loopback: bool) -> None:
    assert (is_wildcard(address), is_loopback(address)) == (wildcard, loopback)
