"""spark/session/partitions.py: parts are neither tiny nor too large for a core to sort."""

from types import SimpleNamespace
from typing import Any

import pytest

from kcast.spark import analysis
from kcast.spark.session.partitions import PART_ROWS_MAX, PART_ROWS_MIN, divide, parts

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


def fake_spark(*configured: str) -> Any:
    has = SimpleNamespace(contains=lambda name: name in configured)
    context = SimpleNamespace(getConf=lambda: has, defaultParallelism=CORES)
    told: dict[str, int] = {}
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=told.__setitem__, told=told))


def test_spark_is_told_unless_its_configuration_says_so() -> None:
    setting = "spark.sql.shuffle.partitions"
    for spark, told in ((fake_spark(), {setting: 10}), (fake_spark(setting), {})):
        divide(spark, 10 * PART_ROWS_MAX)
        assert spark.conf.told == told


def test_an_analysis_divides_by_the_rows_of_its_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(Exception):
        pass

    def begin(*_: object) -> None:
        raise Begun

    monkeypatch.setattr(analysis, "message_rows", begin)
    spark = fake_spark()
    sizes = {"rows": 7 * PART_ROWS_MAX, "sizes": {}}
    captures: Any = SimpleNamespace(spark=spark, cells=(), tables={}, side_tables=dict, **sizes)
    with pytest.raises(Begun):
        analysis.analyse(spark, captures)
    assert list(spark.conf.told.values()) == [7]
