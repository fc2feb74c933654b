"""The bars of what a lease takes: with 100,000 of them, of which a quarter is measured here."""

import pytest

from tests.benchmarks.memory import ROWS, held

LEASES = 100_000
PART = 4  # dicts are as full with a quarter of the leases


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "bytes_max", "copies_max"),
    [
        ("1000 topics x 100 addresses", 250, 20),
        ("... full", 250, 20),
        ("... fifo", 300, 20),
        ("distinct addresses, one topic", 650, 560),
        ("all distinct", 550, 640),
        ("all distinct, full", 700, 640),
    ],
)
def test_a_lease_takes_no_more(name: str, bytes_max: float, copies_max: float) -> None:
    found = held(ROWS[name], LEASES // PART)
    # What caches hold does not grow with the leases.
    assert found.all - found.caches + found.caches / PART < bytes_max, found
    assert found.copies < copies_max, found
