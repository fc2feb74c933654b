"""Ten times as many copies bring no more rows to the driver, and need no more memory there.

`jobs/test_driver_memory.py` checks the same in the source.
"""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import open_captures
from kcast.spark.judging import judge
from tests.support.big_capture import big_scenario, write_run

pytestmark = pytest.mark.spark

COPIES = 20_000
# Not 1: latencies of more messages have more values, up to a bound.
GROWTH_MAX = 1.5
PAIR_BYTES = 50  # a row in Python's memory takes several times as much
OTHER_WAYS = ("toPandas", "toArrow", "toLocalIterator", "foreach", "foreachPartition", "_collect_as_arrow")


class Gathered:
    """The rows that came to the driver, and the peak of Python's memory there, in bytes."""

    def __init__(self) -> None:
        self.rows = 0
        self.calls = 0
        self.peak_bytes = 0


@contextmanager
def watched() -> Iterator[Gathered]:
    """Counts the rows that `collect` brings; take, head and first use it, and nothing else may be used."""
    gathered = Gathered()
    collect = DataFrame.collect

    def counted(frame: DataFrame) -> list[Any]:
        rows: list[Any] = collect(frame)
        gathered.rows += len(rows)
        gathered.calls += 1
        return rows

    def refused(frame: DataFrame, *_: Any, **__: Any) -> Any:
        raise AssertionError("rows came to the driver by another way than collect")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFrame, "collect", counted)
        for name in OTHER_WAYS:
            assert hasattr(DataFrame, name)
            patch.setattr(DataFrame, name, refused)
        tracemalloc.start()
        try:
            yield gathered
            gathered.peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def analysed(spark: SparkSession, folder: Path, rate: float) -> tuple[Gathered, int]:
    """What an analysis of a capture at this rate gathered, and its number of pairs; the duration is fixed."""
    base = big_scenario(COPIES, servers=12, rate=50.0, epoch_s=0.5)
    run = write_run(folder / f"{rate:g}", [base.with_(rate=rate)])
    captures = open_captures(spark, [str(run.path)])
    with watched() as gathered:
        findings = analyse(spark, captures)
    return gathered, int(findings.table("reliability")[0]["pairs"])


def test_what_comes_to_the_driver_does_not_grow_with_the_copies(spark: SparkSession, tmp_path: Path) -> None:
    few, few_pairs = analysed(spark, tmp_path, 50.0)
    many, many_pairs = analysed(spark, tmp_path, 500.0)
    assert many_pairs > 9 * few_pairs
    assert many.calls == few.calls
    assert 0 < many.rows < GROWTH_MAX * few.rows
    assert many.rows < many_pairs / 10
    assert many.peak_bytes < few.peak_bytes + PAIR_BYTES * many_pairs


def test_sums_of_too_many_rows_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", [big_scenario(1000, servers=12, rate=50.0, epoch_s=0.5)])
    captures = open_captures(spark, [str(run.path)])
    monkeypatch.setattr(judge, "SUM_ROWS_MAX", 4)
    with pytest.raises(AssertionError, match=r"the sums have [\d,]+ rows: they were not added up"):
        analyse(spark, captures)
