"""pubsub/server.py: what one thing makes a server do in one go is bounded. Counted in work, not in time."""

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import Limits
from kcast.pubsub.publishing import EXPIRED_MAX
from tests.support.server_core import CLIENT, START, lease, new_server, publish_lease

MANY = 3 * EXPIRED_MAX
LATER = START + 61.0


def crowd(count: int) -> list[Address]:
    """Addresses, each of an IP of its own."""
    return [(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7) for number in range(count)]


# --- Publish leases -----------------------------------------------------------------------------------


def test_publish_leases_that_end_at_once_are_forgotten_in_slices() -> None:
    server = new_server()
    for address in crowd(MANY):
        assert server._publishing.open_lease(address, START)
    left = []
    while (due := server.next_timeout()) is not None and due <= LATER:
        server.handle_timeout(LATER)
        left.append(len(server.publish_leases))
    assert left == [2 * EXPIRED_MAX, EXPIRED_MAX, 0]
    assert not list(server.known_sources()) and not server._publishing._leases_of


def test_who_opens_a_publish_lease_does_not_pay_for_all_that_have_ended() -> None:
    server = new_server()
    for address in crowd(MANY):
        server._publishing.open_lease(address, START)
    publish_lease(server, CLIENT, LATER)
    assert len(server.publish_leases) > MANY - EXPIRED_MAX


@pytest.mark.parametrize("count", [1, 50])
def test_publish_leases_that_have_ended_are_in_nobodys_way(count: int) -> None:
    server = new_server(limits=Limits(publishers=count))
    for address in crowd(count):
        server._publishing.open_lease(address, START)
    for port in range(count):
        publish_lease(server, ("198.51.100.9", port), LATER)
    assert len(server.publish_leases) == count
    lease(server, CLIENT, now=LATER)
    assert not server.publish_leases.left_s(CLIENT, LATER)
