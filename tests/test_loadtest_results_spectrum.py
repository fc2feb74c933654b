import json
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from loadtest.results.spectrum import Line, Times, rounded, shares


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((0.0, 0.0), (0.000123456, 0.000123), (0.0123456, 0.0123), (0.999499, 0.999), (0.9996, 1.0)),
        *((1.0, 1.0), (9.996, 10.0), (123.456, 123.0), (1234.0, 1230.0), (98765.0, 98800.0)),
    ],
)
def test_values_keep_three_significant_figures(value: float, expected: float) -> None:
    assert rounded(np.array([value]))[0] == expected


def test_no_value_is_off_by_more_than_half_a_percent() -> None:
    values = np.random.default_rng(1).lognormal(0, 4, 10_000)
    assert np.max(np.abs(rounded(values) / values - 1)) <= 0.005
    assert len(np.unique(rounded(values[(values >= 1) & (values < 10)]))) <= 901


def test_percentiles_are_nearest_ranks() -> None:
    times = Times.of(np.arange(1, 1001) * 1_000_000)
    assert (times.count, times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms, times.max_ms) == (
        *(1000, 500.0, 900.0, 990.0),
        *(999.0, 1000.0),
    )
    assert times.mean_ms == 500
    # 0.55 of 100 is 55.00000000000001 to a computer.
    assert Line(55.0, 0.55, 55) in Times.of(np.arange(1, 101) * 1_000_000).spectrum
    assert Times.of(np.array([250_000])).p50_ms == 0.25
    assert Times.of(np.array([-5])).max_ms == 0
    assert Times.of(np.array([], dtype=np.int64)) == Times()


def test_the_spectrum_goes_to_the_greatest_in_halvings() -> None:
    lines = Times.of(np.arange(1, 1001) * 1_000_000).spectrum
    assert lines[0] == Line(1.0, 0.0, 1)
    assert lines[5] == (500.0, 0.5, 500)
    assert lines[5].inverse == 2
    assert lines[10] == (750.0, 0.75, 750)
    assert lines[-1] == (1000.0, 1.0, 1000)
    assert lines[-1].inverse is None
    assert 1 / (1 - lines[-2].share) >= 1000
    for before, after in pairwise(lines):
        assert before.share < after.share
        assert before.value_ms <= after.value_ms
        assert after.total >= after.share * 1000 - 1e-6


@pytest.mark.parametrize("count", [1, 2, 3, 10, 12_345, 10_000_000])
def test_the_number_of_lines_grows_with_the_logarithm(count: int) -> None:
    found = shares(count)
    assert found[0] == 0
    assert found[-1] == 1
    assert found == sorted(set(found))
    assert len(found) <= 2 + 5 * (1 + np.log2(count))


def test_times_come_back_from_json() -> None:
    times = Times.of(np.random.default_rng(2).integers(0, 10**9, 5000))
    text = json.dumps(times.as_json())
    assert str(inf) not in text
    assert Times.from_json(json.loads(text)) == times
