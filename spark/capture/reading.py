"""Tables of several scenarios as one DataFrame."""

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
from kcast.loadtest.capture.manifest import CaptureError
from kcast.spark.capture.footers import SUFFIX, is_part
from kcast.spark.capture.schemas import stored_schema, table_schema
from kcast.spark.session.files import Files, literal, shown

_PARTS = f"*{SUFFIX}"  # as `is_part`: what else lies there was not checked


class Place(NamedTuple):
    """Where the tables of a cell are: in `folder`, which is that of its scenario within its run's."""

    cell: int
    folder: str


def read_table(spark: SparkSession, places: Sequence[Place], name: str) -> DataFrame:
    """A table of these places, `schemas.table_schema`; without rows where there are no files."""
    files = Files(spark)
    folder = manifest.table_folder(name)
    by_run: dict[str, list[Place]] = {}
    for place in places:
        if any(is_part(part) for part in files.names(f"{place.folder}/{folder}")):
            by_run.setdefault(place.folder.rpartition("/")[0], []).append(place)
    parts = [_read_run(spark, run, found, name) for run, found in by_run.items()]
    if not parts:
        return spark.createDataFrame([], table_schema(name))
    return reduce(DataFrame.unionByName, parts)


def _read_run(spark: SparkSession, run: str, places: Sequence[Place], name: str) -> DataFrame:
    """A table of several scenarios' folders beside each other."""
    schema, columns = stored_schema(name), table_schema(name).names
    paths = [literal(f"{place.folder}/{manifest.table_folder(name)}") for place in places]
    if len(places) == 1:
        rows = spark.read.schema(schema).parquet(*paths, pathGlobFilter=_PARTS)
        return rows.withColumn("cell", sf.lit(places[0].cell)).select(columns)
    # Spark itself tells from which scenario's folder a row is, in a column that costs nothing. All other ways
    # of keeping so many folders apart take either time for each row, or a task for each folder.
    keyed = StructType([*schema.fields, StructField("scenario", StringType())])
    rows = spark.read.schema(keyed).option("basePath", run).parquet(*paths, pathGlobFilter=_PARTS)
    numbers = [sf.lit(each) for place in places for each in (_as_spark_reads(place.folder), place.cell)]
    return rows.withColumn("cell", sf.create_map(*numbers)[sf.col("scenario")]).select(columns)


def _as_spark_reads(folder: str) -> str:
    """The value in a scenario's folder's name, as Spark has it: each %xx is a character to it, not a byte."""
    return unquote(folder.rpartition("=")[2], encoding="latin-1")


@contextmanager
def damage_named() -> Iterator[None]:
    """Makes CaptureError of Spark's complaints about a file that cannot be read, naming it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = re.search(r"rror while reading file (\S+?\.parquet)(?=[.\s]|$)", str(error))
        if found is None:
            raise
        raise CaptureError(f"{shown(unquote(found[1]))}: {_why_unreadable(str(error))}") from error


def _why_unreadable(text: str) -> str:
    if re.search(r"FILE_NOT_EXIST|FileNotFoundException|File does not exist", text):
        return "it was there and is not; each of Spark's workers must see captures under the same path"
    if re.search(r"AccessControlException|Permission denied|SocketTimeout|ConnectException", text):
        return "cannot be read: Spark's workers are not let in, or do not reach where it is"
    return "damaged, its rows cannot be read"
