"""An attacker who only subscribes to an honest topic costs the honest publisher its budget (items 2, goal)."""
import pytest
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.support.server_core import flushed, handshake, lease, new_server, sent, vouched, START

PUBLISHER: Address = ("192.0.2.99", 5000)
ATTACKER = "203.0.113.7"
HONEST: list[Address] = [(f"198.51.{n}.1", 7000) for n in range(10)]


def delivered(server: Server, per_s: int, size: int, seconds: int, step_s: float = 0.005) -> tuple[int, int]:
    """(lines the honest subscribers got, lines published times subscribers)."""
    cookie = handshake(server, PUBLISHER, START)
    line = b"news ".ljust(size - 1, b".")
    got = published = 0
    steps = int(seconds / step_s)
    for step in range(steps):
        now = START + step * step_s
        server.handle_timeout(now)
        due = round((step + 1) * per_s * step_s) - round(step * per_s * step_s)
        for _ in range(due):
            published += 1
            datagram = vouched(cookie, line)
            server.receive(Burst(datagram, len(datagram), PUBLISHER), now)
        out = sent(flushed(server, now))
        for where, data in out:
            if where in HONEST:
                got += data.count(b"news ")
        if step % 40 == 39:  # honest clients show that they receive
            for sub in HONEST:
                lease(server, sub, b"news", now=now)
    return got, published * len(HONEST)


@pytest.mark.parametrize("ports", [0, 20_000])
def test_whoever_only_subscribes_costs_the_publisher_nothing(ports: int) -> None:
    server = new_server(price_follows_load=True)  # default limits
    for sub in HONEST:
        lease(server, sub, b"news")
    for port in range(1, ports + 1):
        lease(server, (ATTACKER, port), b"news", now=START - 40 + port / 500)
    got, wanted = delivered(server, per_s=50, size=1000, seconds=4)
    print(f"{ports} leases of one IP: {100 * got / wanted:.1f} % delivered", dict(server.drops), dict(server.refusals))
    assert got >= 0.9 * wanted


@pytest.mark.parametrize("ports", [0, 4_000])
def test_flush_is_fair_between_subscribers_on_an_uplink(ports: int) -> None:
    """100 Mbit/s; 60 messages of 1200 bytes a second by an honest publisher; the attacker just subscribes."""
    server = new_server(price_follows_load=True, limits=Limits(uplink_bytes_per_s=12_500_000))
    for sub in HONEST:
        lease(server, sub, b"news")
    for port in range(1, ports + 1):
        lease(server, (ATTACKER, port), b"news", now=START - 40 + port / 500)
    got, wanted = delivered(server, per_s=60, size=1100, seconds=4)
    print(f"{ports} leases of one IP: {100 * got / wanted:.1f} % delivered", dict(server.drops), dict(server.refusals))
    assert got >= 0.9 * wanted
