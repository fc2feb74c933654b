import numpy as np

from kcast.loadtest.results.joins import Groups, Spans, expanded, last_before, places


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_places_are_found_or_nowhere() -> None:
    ids = ints(2, 5, 9)
    assert places(ids, ints(9, 2, 3, 10, -1, 5)).tolist() == [2, 0, -1, -1, -1, 1]
    assert places(ints(), ints(1, 2)).tolist() == [-1, -1]
    assert places(ids, ints()).tolist() == []


def test_expanded_counts_the_rows_of_each_owner() -> None:
    owners, numbers = expanded(ints(2, 0, 3))
    assert owners.tolist() == [0, 0, 2, 2, 2]
    assert numbers.tolist() == [0, 1, 0, 1, 2]
    assert [part.tolist() for part in expanded(ints())] == [[], []]


def test_groups_are_rows_by_key() -> None:
    groups = Groups(ints(7, 3, 7, 3, 3))
    values = ints(1, 2, 3, 4, 5)
    assert groups.keys.tolist() == [3, 7]
    assert groups.counts.tolist() == [3, 2]
    assert groups.least(values).tolist() == [2, 1]
    assert groups.most(values).tolist() == [5, 3]
    assert groups.some(values == 3).tolist() == [False, True]
    owners, rows = groups.rows_of(ints(1, 0, 1))
    assert owners.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert rows.tolist() == [0, 2, 1, 3, 4, 0, 2]
    nothing = Groups(ints())
    assert (len(nothing), nothing.least(ints()).tolist(), nothing.some(ints() > 0).tolist()) == (0, [], [])


def test_last_before_is_the_last_row_at_that_time_or_before_it() -> None:
    keys, times = ints(1, 1, 2, 1), ints(10, 30, 5, 30)
    wanted = [(1, 9), (1, 10), (1, 29), (1, 30), (1, 99), (2, 4), (2, 5), (3, 99), (0, 99)]
    found = last_before(keys, times, ints(*(key for key, _ in wanted)), ints(*(at for _, at in wanted)))
    assert found.tolist() == [-1, 0, 0, 3, 3, -1, 2, -1, -1]
    assert last_before(ints(), ints(), ints(1), ints(1)).tolist() == [-1]


def test_last_before_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    keys, times = rng.integers(0, 4, 60), rng.integers(0, 20, 60)
    wanted_keys, wanted_times = rng.integers(0, 5, 80), rng.integers(-1, 22, 80)
    found = last_before(keys, times, wanted_keys, wanted_times)
    for key, at, index in zip(wanted_keys, wanted_times, found, strict=True):
        rows = [row for row in range(60) if keys[row] == key and times[row] <= at]
        assert index == max(rows, key=lambda row: (times[row], row), default=-1)


def test_spans_contain_their_ends_and_may_overlap() -> None:
    spans = Spans(ints(1, 1, 1, 2), ints(10, 12, 30, 0), ints(20, 15, 40, 1))
    times = ints(9, 10, 16, 20, 21, 30, 41)
    assert spans.contain(np.ones(7, dtype=np.int64), times).tolist() == [
        *(False, True, True, True, False, True, False)
    ]
    assert spans.contain(ints(2, 2, 3), ints(1, 2, 1)).tolist() == [True, False, False]
    assert spans.overlap(ints(1, 1, 1), ints(0, 0, 21), ints(9, 10, 29)).tolist() == [False, True, False]
    assert Spans(ints(), ints(), ints()).contain(ints(1), ints(1)).tolist() == [False]
