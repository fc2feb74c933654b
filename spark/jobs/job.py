"""What a job is: counts of a slice of the captures, which add up, and small sums of all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


class Sources(NamedTuple):
    """What the jobs count: the captures' tables by name (`schemas.table_schema`), `PARAMETERS`, and what
    became of the messages, `PAIRS` and `PATHS`. A slice has the rows of some messages, or of some time."""

    tables: Mapping[str, DataFrame]
    parameters: DataFrame
    pairs: DataFrame
    paths: DataFrame


@dataclass(frozen=True, slots=True)
class Job:
    """Pure functions from DataFrames to DataFrames.

    `count` gives rows of `counts`, whose metadata says how they are merged (`merging`); `sums` are what the
    findings are made of, each from the merged counts and at most some 10,000 rows long.
    """

    name: str
    counts: StructType
    count: Callable[[Sources], DataFrame]
    sums: Mapping[str, Callable[[DataFrame], DataFrame]]
