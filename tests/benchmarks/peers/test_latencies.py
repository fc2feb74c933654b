"""Percentiles."""

from tests.benchmarks.peers.latencies import percentiles


def test_a_percentile_is_the_least_that_so_many_do_not_exceed() -> None:
    latencies = [1000 - number for number in range(1000)]
    assert percentiles(latencies) == [500, 990, 999]


def test_what_few_latencies_cannot_tell_is_not_told() -> None:
    assert percentiles(range(1, 101)) == [50, 99, None]
    assert percentiles([7, 9]) == [7, None, None]
    assert percentiles([]) == [None, None, None]
