"""loadtest/bench/latencies.py: the same percentiles as of all times at once."""

import json
from random import Random

import numpy as np

from kcast.loadtest.bench.latencies import Latencies
from kcast.loadtest.results.percentiles import TimeDistribution


def test_percentiles_are_those_of_all_times_at_once() -> None:
    rng = Random(1)
    times_ns = [int(rng.lognormvariate(13, 2)) for _ in range(20_000)] + [-5, 0]
    whole, parts = Latencies(), [Latencies(), Latencies()]
    for number, time_ns in enumerate(times_ns):
        whole.add(time_ns)
        parts[number % 2].add(time_ns)
    expected = TimeDistribution.of(np.array(times_ns, np.int64))
    found = whole.percentiles()
    for name in ("count", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"):
        assert getattr(found, name) == getattr(expected, name)

    together = Latencies()
    for part in parts:
        together.update(Latencies.from_json(json.loads(json.dumps(part.as_json()))))
    assert together.percentiles() == found


def test_without_times_there_are_no_percentiles() -> None:
    assert Latencies().percentiles().count == 0
    assert Latencies.from_json(Latencies().as_json()).percentiles().count == 0


def test_memory_does_not_grow_with_the_number_of_times() -> None:
    latencies = Latencies()
    for time_ns in range(100_000):
        latencies.add(1_000_000 + time_ns % 1000)
    assert len(latencies.as_json()["values_ns"]) <= 2
