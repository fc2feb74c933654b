"""spark.session.partitions: parts are neither tiny nor too large for a core to sort."""

import pytest

from spark.session.partitions import PART_ROWS_MAX, PART_ROWS_MIN, parts

CORES = 4


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (0, 1),
        (2 * PART_ROWS_MIN - 1, 1),
        (2 * PART_ROWS_MIN, 2),
        (CORES * PART_ROWS_MAX, CORES),
        (CORES * PART_ROWS_MAX + 1, CORES + 1),
        (100 * PART_ROWS_MAX, 100),
    ],
)
def test_parts(rows: int, expected: int) -> None:
    assert parts(rows, CORES) == expected


def test_no_part_is_too_large() -> None:
    for rows in range(1, 10 * PART_ROWS_MAX, PART_ROWS_MIN - 1):
        assert rows / parts(rows, CORES) <= PART_ROWS_MAX
