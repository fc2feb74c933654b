"""A hundred subscribers on the server's own link vanish: the living get all, with a real `kcast serve`."""

import pytest

from tests.support.dead_neighbours import measure
from tests.support.forms import few_of
from tests.support.namespaces import need_namespaces

pytestmark = pytest.mark.world


@pytest.mark.parametrize("version", few_of([4, 6], 0))
def test_subscribers_that_vanish_cost_the_living_nothing(version: int) -> None:
    need_namespaces()
    outcome = measure(version, measured_s=7.0)
    assert outcome.share >= 0.999, outcome
    assert outcome.receipts == outcome.requests, outcome
    assert "unresolved=" in outcome.complaints, "the dead were not found: this test shows nothing"
