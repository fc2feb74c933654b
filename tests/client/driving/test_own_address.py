"""client/driving/own_address.py: what counts as another address of this machine."""

import socket
from math import inf

import pytest

from kcast.client.driving.own_address import LOOK_INTERVAL_S, OwnAddress, address_towards
from kcast.pubsub.endpoint import Address
from tests.support.driver_suite import lacking

V4, V6, LOOPBACK = ("192.0.2.1", 7400), ("2001:db8::1", 7400), ("127.0.0.1", 7400)


def test_an_address_counts_as_changed_once_another_is_known() -> None:
    found: dict[Address, str | None] = {V4: "198.51.100.1", V6: "2001:db8::9"}
    own = OwnAddress(found.get)
    for changes, servers, expected in (
        ({}, [V4, V6], False),
        ({}, [V4, V6], False),
        ({V4: "198.51.100.2"}, [V4, V6], True),
        ({}, [V4, V6], False),
        ({V4: None}, [V4, V6], False),
        ({V4: "198.51.100.2"}, [V4, V6], False),
        ({V4: None}, [V4], False),
        ({V4: "198.51.100.3"}, [V4], True),
        ({V6: "2001:db8::a"}, [V4, V6], True),
    ):
        found |= changes
        assert own.has_changed(servers, 7.0) is expected
        assert own.look_at == 7.0 + LOOK_INTERVAL_S
        assert own.wake_at == own.look_at


def test_loopback_is_not_looked_at() -> None:
    own = OwnAddress()
    assert not own.has_changed([LOOPBACK, ("::1", 7400)], 0.0)
    assert own.wake_at == inf


def test_the_kernel_tells_where_a_datagram_would_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_towards(LOOPBACK) == "127.0.0.1"
    assert address_towards(("255.255.255.255", 7400)) is None
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET))
    assert address_towards(LOOPBACK) is None, "as where there are too many open files"
