"""A table of several scenarios as one DataFrame."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import NamedTuple
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import PART_SUFFIX, CaptureError
from kcast.spark.capture.footers import is_part
from kcast.spark.capture.schemas import stored_schema, table_schema
from kcast.spark.session.files import Files, literal, shown

_PARTS = f"*{PART_SUFFIX}"  # as `is_part`: other files were not checked
_OPTIONS = {"pathGlobFilter": _PARTS, "parquet.page.verify-checksum.enabled": "true"}


class CellFolder(NamedTuple):
    """The folder of a cell's tables: its scenario's, within that of its run."""

    cell: int
    path: str


def read_table(spark: SparkSession, folders: Sequence[CellFolder], name: str) -> DataFrame:
    """A table of these cells, `schemas.table_schema`; without rows if there are no files."""
    files = Files(spark)
    table = manifest.table_folder(name)
    by_run: dict[str, list[CellFolder]] = {}
    for folder in folders:
        if any(is_part(part) for part in files.names(f"{folder.path}/{table}")):
            by_run.setdefault(folder.path.rpartition("/")[0], []).append(folder)
    parts = [_read_run(spark, run, found, name) for run, found in by_run.items()]
    if not parts:
        return spark.createDataFrame([], table_schema(name))
    return reduce(DataFrame.unionByName, parts)


def _read_run(spark: SparkSession, run: str, folders: Sequence[CellFolder], name: str) -> DataFrame:
    """A table of cells of one run."""
    schema, columns = stored_schema(name), table_schema(name).names
    paths = [literal(f"{folder.path}/{manifest.table_folder(name)}") for folder in folders]
    if len(folders) == 1:
        rows = spark.read.schema(schema).options(**_OPTIONS).parquet(*paths)
        return rows.withColumn("cell", sf.lit(folders[0].cell)).select(columns)
    # Spark tells which scenario's folder a row is from, in a column that costs nothing. All other ways of
    # telling many folders apart take time for each row, or a task for each folder.
    keyed = StructType([*schema.fields, StructField("scenario", StringType())])
    rows = spark.read.schema(keyed).options(**_OPTIONS, basePath=run).parquet(*paths)
    numbers = [sf.lit(each) for folder in folders for each in (_as_spark_reads(folder.path), folder.cell)]
    return rows.withColumn("cell", sf.create_map(*numbers)[sf.col("scenario")]).select(columns)


def _as_spark_reads(path: str) -> str:
    """The value in the name of a scenario's folder, as Spark reads it: each %xx is a character, not a
    byte."""
    return unquote(path.rpartition("=")[2], encoding="latin-1")


@contextmanager
def damage_named() -> Iterator[None]:
    """Raises CaptureError with the file's name for Spark's errors about a file that cannot be read."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = re.search(r"rror while reading file (\S+?\.parquet)(?=[.\s]|$)", str(error))
        if found is None:
            raise
        raise CaptureError(f"{shown(unquote(found[1]))}: {_why_unreadable(str(error))}") from error


def _why_unreadable(text: str) -> str:
    if re.search(r"FILE_NOT_EXIST|FileNotFoundException|File does not exist", text):
        return "it was there and is gone; each of Spark's workers must see captures under the same path"
    if re.search(r"AccessControlException|Permission denied|SocketTimeout|ConnectException", text):
        return "cannot be read: Spark's workers have no permission, or cannot reach its file system"
    return "damaged, its rows cannot be read"
