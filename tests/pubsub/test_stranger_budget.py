"""pubsub/strangers.py: strangers share, each network its part. PROTOCOL §5.2."""

import pytest

from kcast.pubsub.strangers import BUSY_ANSWERS_MAX, BUSY_BURSTS, StrangerBudget

NOW = 1000.0


def admitted(door: StrangerBudget, *hosts: str, now: float = NOW) -> int:
    count = 0
    for number, host in enumerate(hosts):
        door.begin_turn()
        count += door.admits((host, 1000 + number % 60_000), now)
    return count


@pytest.mark.parametrize("networks", [1, 3, 30, 90, 256])
def test_a_second_has_its_budget_whoever_asks(networks: int) -> None:
    door = StrangerBudget(100)
    hosts = [f"198.51.{number % networks}.1" for number in range(1000)]
    for second in range(4):
        assert 60 <= admitted(door, *hosts, now=NOW + second) <= 100
        assert admitted(door, *hosts, now=NOW + second + 0.9) <= 13


def test_a_network_has_its_part_however_others_flood() -> None:
    """From whichever of its addresses it asks."""
    door = StrangerBudget(200)
    flood = [f"203.0.{n % 40}.{n % 250}" for n in range(5000)]
    admitted(door, *flood)  # nobody knows yet how many will ask
    for second in (1, 2, 3):
        assert admitted(door, *flood, now=NOW + second) > 150
        assert admitted(door, "198.51.100.7", now=NOW + second) == 1


def test_ipv6_networks_are_told_apart_by_their_first_48_bits() -> None:
    door = StrangerBudget(20)
    admitted(door, *[f"2001:db8:1:{n:x}::1" for n in range(1000)])
    assert admitted(door, *["2001:db8:1:ffff::1", "2001:db8:2::1"] * 50, now=NOW + 1) == 17
    assert door._admitted == {"2001:db8:1": 9, "2001:db8:2": 8}


def test_a_turn_that_brings_much_answers_few() -> None:
    door = StrangerBudget(0)
    for _ in range(BUSY_BURSTS):
        door.count_burst()
        assert door.admits(("192.0.2.1", 1), NOW)
    answers = 0
    for _ in range(1000):
        door.count_burst()
        answers += door.admits(("192.0.2.1", 1), NOW)
    assert answers == BUSY_ANSWERS_MAX
    door.begin_turn()
    assert door.admits(("192.0.2.1", 1), NOW)


def test_loopback_is_always_answered_unless_it_counts_as_any_other() -> None:
    assert admitted(StrangerBudget(1), *["127.0.0.1"] * 100) == 100
    assert admitted(StrangerBudget(1, exempts_loopback=False), *["127.0.0.1"] * 100) == 1
