import json
from decimal import ROUND_HALF_UP, Context

import numpy as np

from kcast.loadtest.results.percentiles import Percentiles, rounded


def test_values_keep_three_significant_figures() -> None:
    told = [
        *((0, 0), (1, 1), (123, 123), (999, 999), (1000, 1000), (1004, 1000), (1005, 1010), (9994, 9990)),
        *((9995, 10_000), (12_349, 12_300), (12_350, 12_400), (999_499, 999_000), (999_500, 1_000_000)),
        *((123_456_789, 123_000_000), (1_234_000_000, 1_230_000_000), (98_765_000_000, 98_800_000_000)),
        *((10**15, 10**15), (123_456 * 10**12, 123 * 10**15), (10**18 - 1, 10**18)),
    ]
    times_ns, expected_ns = zip(*told, strict=True)
    assert rounded(np.array(times_ns)).tolist() == list(expected_ns)


def test_no_value_is_off_by_more_than_half_a_percent() -> None:
    values = np.random.default_rng(1).lognormal(14, 4, 10_000).astype(np.int64)
    values = values[values > 0]
    assert np.max(np.abs(rounded(values) / values - 1)) <= 0.005
    assert len(np.unique(rounded(np.arange(1_000_000, 10_000_000, 100)))) == 901
    # The same written otherwise.
    three = Context(prec=3, rounding=ROUND_HALF_UP)
    assert [int(three.create_decimal(value)) for value in values.tolist()] == rounded(values).tolist()


def test_percentiles_come_out_as_they_are_written() -> None:
    assert Percentiles.of(np.array([123_456])).p50_ms == 0.123
    assert Percentiles.of(np.array([12_300_000_000])).max_ms == 12_300
    assert Percentiles.of(np.array([1, 2, 2, 4]) * 1_000_000).mean_ms == 2.25


def test_percentiles_are_nearest_ranks() -> None:
    times = Percentiles.of(np.arange(1, 1001) * 1_000_000)
    assert (times.count, times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms, times.max_ms) == (
        *(1000, 500.0, 900.0, 990.0),
        *(999.0, 1000.0),
    )
    assert times.mean_ms == 500
    # 0.9 of 10 is 9.000000000000002 to some computers, and 0.99 of 100 is 99.00000000000001 to others.
    assert Percentiles.of(np.arange(1, 11) * 1_000_000).p90_ms == 9
    assert Percentiles.of(np.arange(1, 101) * 1_000_000).p99_ms == 99
    assert Percentiles.of(np.array([250_000])).p50_ms == 0.25
    assert Percentiles.of(np.array([-5])).max_ms == 0
    assert Percentiles.of(np.array([], dtype=np.int64)) == Percentiles()


def test_of_many_times_it_is_the_nearest_rank_too() -> None:
    # A place that is a thousandth above a whole number is the next one, however many times there are.
    for count in (10, 1_000, 1_000_999, 30_000_999):
        bounds = [-(-count * thousandths // 1000) for thousandths in (500, 900, 990, 999)]
        numbers = sorted({*bounds, *(bound - 1 for bound in bounds), count} - {0})
        counts = np.diff(numbers, prepend=0)
        found = Percentiles.of_counts([number * 1_000_000 for number in numbers], counts, 0)
        assert [found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms] == bounds


def test_times_come_back_from_json() -> None:
    times = Percentiles.of(np.random.default_rng(2).integers(0, 10**9, 5000))
    told = json.loads(json.dumps(times.as_json()))
    assert Percentiles.from_json(told) == Percentiles.from_json(told | {"spectrum": []}) == times
