"""The bars of what a lease takes: with 100,000 of them, of which a part is measured here."""

import pytest

from tests.support.forms import few_of
from tests.support.lease_memory import ROWS, held

LEASES = 100_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "part", "bytes_max", "copies_max", "caches_bytes_max"),
    few_of(
        [
            ("1000 topics x 100 addresses", 4, 250, 20, 60_000),
            ("... full", 4, 250, 20, 90_000),
            ("... fifo", 4, 300, 20, 60_000),
            ("distinct addresses, one topic", 8, 650 - 12, 560 - 4, 5_600_000),
            ("all distinct", 8, 550 - 12, 640 - 10, 2_750_000),
            ("all distinct, full", 8, 700 - 20, 640 - 10, 4_900_000),
        ],
        0,
    ),
)
def test_a_lease_takes_no_more(
    name: str, part: int, bytes_max: float, copies_max: float, caches_bytes_max: float
) -> None:
    """Dicts are as full with a quarter or an eighth of the leases; but those of an eighth have indexes of
    two bytes a place instead of four: so much lower are its bars. What each of 100 addresses takes beside
    its leases would weigh too much with an eighth."""
    found = held(ROWS[name], LEASES // part)
    # What caches hold does not grow with the leases: they are full with fewer.
    assert found.caches * (LEASES // part) < caches_bytes_max, found
    assert found.all - found.caches + found.caches / part < bytes_max, found
    assert found.copies < copies_max, found
