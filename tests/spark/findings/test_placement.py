"""The CV that random placement gives, against placements that are drawn."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kcast.loadtest.results.prediction import draws, servers_per_topic
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.placement import FORWARDED, LEASES, RECEIVED, Topics, placement_cv, with_outages

DRAWS = 300
Loads = dict[str, NDArray[np.int64]]


def drawn_loads(scenario: Scenario, topics: list[tuple[int, int]], rng: np.random.Generator) -> Loads:
    """What servers get in one run, message by message."""
    k, (publish, subscribe) = servers_per_topic(scenario), draws(scenario)
    received, forwarded, leases = (np.zeros(scenario.servers, dtype=np.int64) for _ in range(3))
    for n, s in topics:
        places = rng.permutation(scenario.servers)[:k]
        held = (rng.random((s, k)).argsort(axis=1) < subscribe).sum(axis=0)
        whole, more = divmod(publish * scenario.repeat, k)
        sent = whole + (rng.random((n, k)).argsort(axis=1) < more)
        came = rng.binomial(sent, 1 - scenario.loss_in)
        came = (came + rng.binomial(came, scenario.duplicate)).sum(axis=0)
        leases[places] += held
        received[places] += came
        forwarded[places] += came * held
    return {RECEIVED: received, FORWARDED: forwarded, LEASES: leases}


@pytest.mark.parametrize(
    "fields",
    [
        {"k": 5, "k_prime": 2},
        {"k": 5, "k_prime": 2, "side": "subscribe"},
        {"scheme": "CH", "k": 3},
        {"scheme": "S"},
        {"scheme": "R"},
        {"k": 5, "k_prime": 3, "repeat": 2, "loss_in": 0.3},
        {"k": 5, "k_prime": 3, "side": "subscribe", "loss_in": 0.2, "duplicate": 0.5},
    ],
)
def test_as_placements_that_are_drawn(fields: dict[str, Any]) -> None:
    scenario = Scenario(servers=20, **fields)
    rng = np.random.default_rng(7)
    topics = [(int(n), int(s)) for n, s in zip(rng.integers(1, 9, 8), rng.integers(0, 5, 8), strict=True)]
    squares: dict[str, list[float]] = {RECEIVED: [], FORWARDED: [], LEASES: []}
    means: dict[str, list[float]] = {RECEIVED: [], FORWARDED: [], LEASES: []}
    for _ in range(DRAWS):
        for what, loads in drawn_loads(scenario, topics, rng).items():
            squares[what].append(float(loads.var()))
            means[what].append(float(loads.mean()))
    predicted = placement_cv(scenario, Topics.of(topics))
    for what, cv in predicted.items():
        found = np.sqrt(np.mean(squares[what])) / np.mean(means[what])
        assert cv == pytest.approx(found, rel=0.06, abs=1e-9), what


def test_where_there_is_no_model() -> None:
    topics = Topics.of([(10, 3)])
    for fields in ({"known": 0.5}, {"avoid_dead": True, "outages": "independent", "outage": 0.1}):
        assert set(placement_cv(Scenario(**fields), topics).values()) == {None}
    nobody = placement_cv(Scenario(), Topics.of([(10, 0)]))
    assert nobody[RECEIVED] is not None
    assert nobody[LEASES] is nobody[FORWARDED] is None
    assert set(placement_cv(Scenario(), Topics.of([])).values()) == {None}


def test_servers_that_were_down_for_a_while() -> None:
    assert with_outages(0.3, []) == 0.3
    assert with_outages(None, [1, 2]) is None
    assert with_outages(0.3, [5, 5, 5]) == pytest.approx(0.3)
    assert with_outages(0.0, [0, 10]) == pytest.approx(1.0)
    rng = np.random.default_rng(3)
    loads, up = rng.normal(1, 0.3, 400_000), rng.choice((60, 100), 400_000)
    product = loads * up
    assert with_outages(0.3, up.tolist()) == pytest.approx(product.std() / product.mean(), rel=0.01)
