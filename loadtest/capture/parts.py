"""A part: one Parquet file of one table. The only module that knows how columns are put into Parquet.

A part appears under its name only once it is whole: a process that is killed leaves at most a hidden file.
Its metadata names table, schema version and the meaning of each column, so that it explains itself.

Numbers of 64 bits are times and ids, which grow: written as differences they take half the time and half the
room that a dictionary of them would. All others have few values, and a dictionary each.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES

ROWS_MAX = 65_536
SUFFIX = ".parquet"

_TABLE_KEY, _VERSION_KEY = b"kcast.table", b"kcast.schema_version"
_ZSTD_LEVEL = 3


def arrow_schema(table: str) -> pa.Schema:
    """A table's columns, types and their meanings, and the version, as Arrow has them."""
    fields = [
        pa.field(name, _arrow_type(type_name), nullable=False, metadata={"meaning": meaning})
        for name, type_name, meaning in TABLES[table]
    ]
    return pa.schema(fields, {_TABLE_KEY: table, _VERSION_KEY: str(SCHEMA_VERSION)})


def _arrow_type(name: str) -> pa.DataType:
    if name.startswith("list<"):
        return pa.list_(pa.field("element", _arrow_type(name[5:-1]), nullable=False))
    return pa.type_for_alias(name)


_SCHEMAS = {table: arrow_schema(table) for table in TABLES}


def to_rows(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows of a table, from arrays or lists, which are not copied where that is not needed.

    Raises ValueError where a column is missing, unknown, too short, or has values that it cannot have.
    """
    schema = _SCHEMAS.get(table)
    if schema is None:
        raise ValueError(f"a capture has no table {table}: it has {', '.join(TABLES)}")
    if set(columns) != set(schema.names):
        wrong = sorted(set(columns) ^ set(schema.names))
        raise ValueError(f"table {table} has columns {', '.join(schema.names)}: see to {', '.join(wrong)}")
    arrays = []
    for field in schema:
        values = columns[field.name]
        if pa.types.is_integer(field.type) and len(values) and np.asarray(values).dtype.kind not in "iu":
            # Arrow would cut off fractions.
            raise ValueError(f"column {field.name} of table {table}: whole numbers only, none of them null")
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(f"column {field.name} of table {table}: {error}") from None
        if array.null_count or len(array) != len(columns[schema.names[0]]):
            raise ValueError(
                f"column {field.name} of table {table}: as many values as rows, none of them null"
            )
        arrays.append(array)
    return pa.record_batch(arrays, schema=schema)


def write_part(path: Path, rows: pa.Table, may_appear: Callable[[], bool] = lambda: True) -> bool:
    """Writes rows as a part, and makes its folder; whether it has appeared, as `may_appear` says at the end.

    Raises OSError, and leaves nothing then.
    """
    long = [field.name for field in rows.schema if field.type == pa.int64()]
    others = [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in rows.schema
        if field.name not in long
    ]
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            rows,
            unfinished,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=others,
            column_encoding=dict.fromkeys(long, "DELTA_BINARY_PACKED"),
        )
        if may_appear():
            unfinished.rename(path)
            return True
    except pa.ArrowException as error:  # of those that are no OSError
        raise OSError(str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return False


def read_part(path: Path, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part, with these columns. Raises CaptureError, which names the file, and ValueError."""
    schema = _SCHEMAS[table]
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    try:
        with pq.ParquetFile(path) as file:
            found = file.schema_arrow
            metadata = found.metadata or {}
            version = metadata.get(_VERSION_KEY, b"none").decode(errors="replace")
            if version != str(SCHEMA_VERSION):
                raise CaptureError(
                    f"{path}: of schema version {version}, and this kcast reads {SCHEMA_VERSION}"
                )
            if metadata.get(_TABLE_KEY) != table.encode() or not found.equals(_SCHEMAS[table]):
                raise CaptureError(f"{path}: no part of the table {table}")
            rows = file.read(columns=schema.names)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
    return rows.select(schema.names).cast(schema)


def count_rows(path: Path) -> int:
    """How many rows a part has. Raises CaptureError, which names the file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> CaptureError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CaptureError(f"{path}: no whole Parquet file, {reason}")
