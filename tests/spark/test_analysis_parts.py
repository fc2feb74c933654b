"""spark/analysis.py: parts are neither tiny nor too large for a core to sort."""

from types import SimpleNamespace
from typing import Any

import pytest

from kcast.spark import analysis
from kcast.spark.analysis import PART_ROWS_MAX, PART_ROWS_MIN, parts

CORES = 4


def test_parts() -> None:
    rows = (0, 2 * PART_ROWS_MIN - 1, 2 * PART_ROWS_MIN, CORES * PART_ROWS_MAX, CORES * PART_ROWS_MAX + 1)
    assert [parts(number, CORES) for number in rows] == [1, 1, 2, CORES, CORES + 1]


def test_spark_is_told_by_the_rows_of_the_captures_unless_its_configuration_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(analysis, "message_rows", lambda *_: None)
    monkeypatch.setattr(analysis, "Judge", lambda *_: SimpleNamespace(close=lambda: None))
    setting = "spark.sql.shuffle.partitions"
    for configured, told in (((), {setting: 7}), ((setting,), {})):
        has = SimpleNamespace(contains=configured.__contains__)
        context = SimpleNamespace(getConf=lambda has=has: has, defaultParallelism=CORES)
        set_to: dict[str, int] = {}
        spark = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=set_to.__setitem__))
        sizes = {"rows": 7 * PART_ROWS_MAX, "sizes": {}}
        captures: Any = SimpleNamespace(spark=spark, cells=(), tables={}, side={}, **sizes)
        with analysis.judging(captures):
            assert set_to == told
