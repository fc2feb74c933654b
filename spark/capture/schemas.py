"""The schemas of captures' tables. Nothing is inferred: what Spark reads has these columns.

`cell` numbers the scenarios of all captures that are analysed together, from 0.
"""

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from kcast.loadtest.capture.schema import TABLES

_TYPES: dict[str, DataType] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float64": DoubleType(),
    "string": StringType(),
    "list<int32>": ArrayType(IntegerType()),
}


def struct(**fields: DataType) -> StructType:
    """A schema with these columns, each of which may be null."""
    return StructType([StructField(name, kind, True) for name, kind in fields.items()])


def stored_schema(table: str) -> StructType:
    """The columns of a capture's table, as its Parquet files have them. Raises KeyError."""
    return struct(**{column.name: _TYPES[column.type] for column in TABLES[table]})


def table_schema(table: str) -> StructType:
    """The same with `cell` before them, as the walk and the jobs get it. Raises KeyError."""
    return StructType([StructField("cell", IntegerType(), True), *stored_schema(table).fields])
