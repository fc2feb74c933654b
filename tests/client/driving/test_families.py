"""client/driving/families.py: the IP versions that a machine can use."""

import socket

import pytest

from kcast.client.driving.families import present_families, usable_families
from kcast.pubsub.endpoint import Address
from tests.support.driver_suite import lacking
from tests.support.serve_process import NEEDS_IPV6

pytestmark = pytest.mark.world

LOOPBACK: Address = ("127.0.0.1", 9)
UNROUTABLE: Address = ("fe80::1", 9)  # says nothing without an interface


def test_families_that_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 4 in present_families()
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET6))
    assert present_families() == (4,)


@pytest.mark.parametrize(
    ("servers", "families"),
    [
        ([[LOOPBACK]], (4,)),
        ([[LOOPBACK, UNROUTABLE]], (4,)),
        ([[UNROUTABLE], [LOOPBACK]], (4,)),
        # There is no way at all: the network may come up later.
        pytest.param([[UNROUTABLE]], (6,), marks=NEEDS_IPV6),
        ([], ()),
    ],
)
def test_families_are_those_by_which_some_server_has_a_route(
    servers: list[list[Address]], families: tuple[int, ...]
) -> None:
    assert usable_families(servers) == families


def test_families_that_the_system_lacks_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET6))
    assert usable_families([[("::1", 9), LOOPBACK], [("::1", 9)]]) == (4,)
    assert usable_families([[("::1", 9)]]) == ()
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET, socket.AF_INET6))
    assert usable_families([[LOOPBACK]]) == ()


def test_to_look_for_families_sends_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        assert usable_families([[listening.getsockname()]]) == (4,)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(1)
