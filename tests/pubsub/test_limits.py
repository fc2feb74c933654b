"""pubsub/limits.py: what a server allows by default, and what cannot be allowed."""

from dataclasses import asdict

import pytest

from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, Limits

DEFAULTS = {
    "leases": 100_000,
    "leases_per_address": 4_000,
    "leases_per_prefix": 20_000,
    "topics_per_prefix": 10_000,
    "topics": 50_000,
    "publishers": 100_000,
    "lines_per_datagram": 64,
    "publishes_per_s": 50_000,
    "copies_per_s": 2_000_000,
    "egress_bytes_per_s": 134_217_728,
    "uplink_bytes_per_s": 0,
    "challenges_per_s": 20_000,
}


def test_defaults() -> None:
    assert asdict(Limits()) == DEFAULTS


def test_defaults_bind_from_the_narrowest_to_the_widest() -> None:
    """One address cannot fill its prefix's share, nor one prefix the table."""
    limits = Limits()
    assert limits.leases_per_address < limits.leases_per_prefix < limits.leases
    assert limits.leases_per_address < limits.topics < limits.leases


@pytest.mark.parametrize("name", [name for name in DEFAULTS if name != "lines_per_datagram"])
def test_least_of_each(name: str) -> None:
    """A table, or a datagram, of nothing is no server; a rate of 0 is no limit."""
    least = 0 if name.endswith("_per_s") else 1
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(ValueError, match=rf"^{name} is {least - 1}: give {least} or more$"):
        Limits(**{name: least - 1})


@pytest.mark.parametrize("lines", [1, LINES_PER_DATAGRAM_MAX + 1])
def test_lines_are_what_the_protocol_has(lines: int) -> None:
    """§2.1: a vouch line and one that it vouches for; the hexmap of a refusal has a bit for each of 64."""
    assert Limits(lines_per_datagram=2).lines_per_datagram == 2
    assert Limits(lines_per_datagram=LINES_PER_DATAGRAM_MAX).lines_per_datagram == 64
    with pytest.raises(ValueError, match=rf"^lines_per_datagram is {lines}: give 2 to 64$"):
        Limits(lines_per_datagram=lines)
