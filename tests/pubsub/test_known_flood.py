"""pubsub/flood.py, pubsub/heavy.py: real processes, one of which has a lease and floods."""

import sys

import pytest

from tests.support.known_flood import FLOODS, measure

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is filtered"),
]


@pytest.mark.parametrize("kind", ["random bytes", "forged cookies"])
def test_one_lease_is_not_enough_to_starve_the_others(kind: str) -> None:
    """Without pauses for those who are known, 48 % and 26 % arrived."""
    found = measure(FLOODS[kind], 2.0)
    assert found.flood_per_s > 10_000, "it is a flood"
    assert found.arrived > 0.9 * found.sent
