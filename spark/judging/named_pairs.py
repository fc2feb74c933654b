"""What became of each pair, with names and causes in place of numbers; and the same as Parquet files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.results.causes import Cause
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.pair_columns import PAIR_COLUMNS
from kcast.spark.judging.judge import Judge
from kcast.spark.session.files import literal
from kcast.spark.session.local_files import MISSES_FOLDER, PAIRS_FOLDER, remove_earlier_pairs

_NUMBER_BITS = 32


def named_pairs(pairs: DataFrame, cells: Sequence[Cell]) -> DataFrame:
    """`judge.PAIRS` of these cells with the PAIR_COLUMNS."""
    began = mapped("cell", {cell.number: cell.t0_ns for cell in cells})
    latency = sf.col("latency_ns")
    columns: dict[str, Column] = {
        "run": mapped("cell", {cell.number: cell.run for cell in cells}),
        "scenario": mapped("cell", {cell.number: cell.scenario.name for cell in cells}),
        "publisher": sf.col("pub_id"),
        "number": sf.col("msg_id").bitwiseAND((1 << _NUMBER_BITS) - 1),
        "topic": sf.col("topic_id"),
        "subscriber": sf.col("sub_id"),
        "due_s": (sf.col("t_intended_ns") - began) / 1e9,
        "cause": mapped("cause", {int(cause): cause.label for cause in Cause}),
        "latency_ns": sf.when(latency >= 0, latency),
    }
    return pairs.select(
        *(
            columns.get(name, sf.col(name)).alias(name, metadata={"comment": meaning})
            for name, _, meaning in PAIR_COLUMNS
        )
    )


def missed(pairs: DataFrame) -> DataFrame:
    """The named pairs that were missed."""
    return pairs.where(sf.col("cause") != Cause.DELIVERED.label)


def mapped(column: str, names: Mapping[int, Any]) -> Column:
    """What stands for each value of a column of whole numbers."""
    return sf.create_map(*(sf.lit(each) for pair in names.items() for each in pair))[sf.col(column)]


def write_pairs(spark: SparkSession, judge: Judge, cells: Sequence[Cell], out: Path) -> None:
    """Writes the folders `pairs` and `misses` into `out`, each with Parquet files. Raises OSError.

    Spark's workers write them, so each must see `out` under this path.
    """
    remove_earlier_pairs(out)
    # No URI: Hadoop takes the characters of a path as they are.
    pairs, misses = (f"file://{(out / name).absolute()}" for name in (PAIRS_FOLDER, MISSES_FOLDER))
    named_pairs(judge.pairs(), cells).write.parquet(pairs)
    # Read back, so that nothing is judged twice.
    missed(spark.read.parquet(literal(pairs))).write.parquet(misses)
