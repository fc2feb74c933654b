"""pubsub/flood.py: who of the known is no longer let past the filter."""

import pytest

from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.flood import DEMOTED_MAX, FORGET_S, PAUSE_S_MAX, PAUSE_S_MIN, FloodingSources
from kcast.pubsub.kernel_filter import Kind
from kcast.pubsub.networks import Networks

EVIL: Address = ("203.0.113.1", 7)
GOOD: list[Address] = [(f"198.51.{number}.1", 7) for number in range(10)]


def burst(source: Address, count: int, data: bytes = b"t m\n") -> Burst:
    return Burst(data * count, len(data), source)


def watching(*sources: Address, exempts_loopback: bool = True) -> FloodingSources:
    flooding = FloodingSources(Networks(exempts_loopback=exempts_loopback))
    assert flooding.know(sources, 0.0) == set(sources)
    flooding.is_watching = True
    return flooding


def test_who_stands_out_is_demoted_and_nobody_else() -> None:
    flooding = watching(EVIL, *GOOD)
    flooding.saw([burst(EVIL, 1000), *(burst(source, 50) for source in GOOD)])
    assert flooding.demote(0, 10.0)
    assert flooding.know([EVIL, *GOOD], 10.0) == set(GOOD)
    assert flooding.arrived() == {Kind.LINES: 1000}


def test_nobody_is_where_nobody_stands_out() -> None:
    flooding = watching(*GOOD)
    flooding.saw([burst(source, 100 + 30 * number) for number, source in enumerate(GOOD)])
    assert not flooding.demote(0, 10.0)
    assert not flooding.demote(0, 10.0), "and nothing was counted since"
    assert flooding.know(GOOD, 10.0) == set(GOOD)


def test_who_is_alone_is() -> None:
    """Newcomers need the room."""
    flooding = watching(EVIL)
    flooding.saw([burst(EVIL, 10)])
    assert flooding.demote(0, 10.0)
    assert not flooding.know([EVIL], 10.0)


@pytest.mark.parametrize("host", ["203.0.113.{}", "2001:db8:0:{}::1"])
def test_many_addresses_of_a_network_are_demoted_together(host: str) -> None:
    """A /24, or a /48; and whoever else of it is known meanwhile."""
    evil: list[Address] = [(host.format(number), 7) for number in range(1, 60)]
    flooding = watching(*evil, *GOOD)
    flooding.saw([*(burst(source, 20) for source in evil), *(burst(source, 15) for source in GOOD)])
    assert flooding.demote(0, 10.0)
    assert flooding.know([*evil, (host.format(99), 1), *GOOD], 10.0) == set(GOOD)


def test_one_address_of_a_network_does_not_take_its_neighbours_with_it() -> None:
    neighbour = ("203.0.113.2", 7)
    flooding = watching(EVIL, neighbour, *GOOD)
    flooding.saw([burst(EVIL, 900), burst(neighbour, 100)])
    assert flooding.demote(0, 10.0)
    assert flooding.know([EVIL, neighbour], 10.0) == {neighbour}


def test_a_pause_is_longer_each_time_and_then_short_again() -> None:
    flooding = watching(EVIL, *GOOD)
    now, length_s = 0.0, PAUSE_S_MIN
    for _ in range(10):
        flooding.saw([burst(EVIL, 10)])
        assert flooding.demote(0, now)
        assert EVIL not in flooding.know([EVIL], now + 0.999 * length_s)
        now += length_s
        assert EVIL in flooding.know([EVIL], now)
        length_s = min(2 * length_s, PAUSE_S_MAX)
    now += FORGET_S + PAUSE_S_MAX
    assert EVIL in flooding.know([EVIL], now)
    flooding.saw([burst(EVIL, 10)])
    assert flooding.demote(0, now)
    assert EVIL in flooding.know([EVIL], now + PAUSE_S_MIN)


def test_nobody_is_while_strangers_send_more() -> None:
    """Of the known, those who publish much do not fill the buffer."""
    flooding = watching(*GOOD[:2])
    flooding.saw([burst(GOOD[0], 900), burst(GOOD[1], 10)])
    assert not flooding.demote(900, 0.0)


def test_memory_is_bounded() -> None:
    flooding = FloodingSources(Networks())
    flooding.is_watching = True
    for number in range(2 * DEMOTED_MAX):
        source = (f"10.{number >> 8}.{number & 255}.1", 7)
        flooding.know([source], 0.0)
        flooding.saw([burst(source, 10)])
        assert flooding.demote(0, 0.0)
    assert len(flooding._demoted) == DEMOTED_MAX


@pytest.mark.parametrize("exempts_loopback", [True, False])
def test_who_is_on_exempt_loopback_is_not_counted_since_it_passes_anyway(exempts_loopback: bool) -> None:
    ports = [("127.0.0.1", 1), ("127.0.0.1", 2)]
    flooding = FloodingSources(Networks(exempts_loopback=exempts_loopback))
    assert bool(flooding.know(ports, 0.0)) is not exempts_loopback
    flooding.is_watching = True
    flooding.saw([burst(ports[0], 10), burst(ports[1], 1)])
    assert flooding.demote(0, 0.0) is not exempts_loopback
