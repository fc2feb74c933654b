"""Parts: Parquet files, each with rows of one table. Only this module knows how columns are encoded.

A part gets its name when it is whole: a process that is killed leaves at most a hidden file. A part's
metadata has the table, the schema version and the meaning of each column.

Pages have checksums, which all readers verify.

64-bit numbers are times and ids, which grow: as differences they take half the time and half the space of a
dictionary. All other columns have few values, and use a dictionary.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kcast.loadtest.capture.manifest import (
    TABLE_KEY,
    VERSION_KEY,
    check_hash,
    check_part,
    damaged_part,
    hash_of,
)
from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES

ROWS_MAX = 65_536

_ZSTD_LEVEL = 3


def arrow_schema(table: str) -> pa.Schema:
    """Returns a table's Arrow schema, with the meanings of columns and the schema version as metadata."""
    fields = [
        pa.field(name, _arrow_type(type_name), nullable=False, metadata={"meaning": meaning})
        for name, type_name, meaning in TABLES[table]
    ]
    return pa.schema(fields, {TABLE_KEY: table, VERSION_KEY: str(SCHEMA_VERSION)})


def _arrow_type(name: str) -> pa.DataType:
    if name.startswith("list<"):
        return pa.list_(pa.field("element", _arrow_type(name[5:-1]), nullable=False))
    return pa.type_for_alias(name)


_SCHEMAS = {table: arrow_schema(table) for table in TABLES}


def to_rows(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Makes rows of a table from arrays or lists, without copying if possible.

    Raises ValueError if a column is missing, unknown, too short, or has values of a wrong type.
    """
    schema = _SCHEMAS.get(table)
    if schema is None:
        raise ValueError(f"a capture has no table {table}, only {', '.join(TABLES)}")
    if set(columns) != set(schema.names):
        wrong = sorted(set(columns) ^ set(schema.names))
        raise ValueError(
            f"table {table} has columns {', '.join(schema.names)}: missing or unknown: {', '.join(wrong)}"
        )
    arrays = []
    for field in schema:
        values = columns[field.name]
        if pa.types.is_integer(field.type) and len(values) and np.asarray(values).dtype.kind not in "iu":
            # Arrow would truncate fractions.
            raise ValueError(f"column {field.name} of table {table}: whole numbers only, none of them null")
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(f"column {field.name} of table {table}: {error}") from None
        if array.null_count or len(array) != len(columns[schema.names[0]]):
            raise ValueError(
                f"column {field.name} of table {table}: must have a value in each row, none of them null"
            )
        arrays.append(array)
    return pa.record_batch(arrays, schema=schema)


def write_part(path: Path, rows: pa.Table, may_appear: Callable[[], bool] = lambda: True) -> bool:
    """Writes rows as a part, and makes its folder. False if `may_appear`, asked at the end, forbids it.

    Raises OSError, and leaves no file then.
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
            write_page_checksum=True,
        )
        if may_appear():
            unfinished.rename(path)
            return True
    except pa.ArrowException as error:  # those that are no OSError
        raise OSError(str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return False


def read_part(
    path: Path, table: str, columns: Sequence[str] | None = None, *, expected_hash: str | None = None
) -> pa.Table:
    """Reads a part, with all columns or these. Raises CaptureError, which names the file, and ValueError.

    With `expected_hash` the file must be what it is the hash of.
    """
    schema = _SCHEMAS[table]
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    try:
        data = _content(path)
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            found = file.schema_arrow
            check_part(found.metadata, found.equals(_SCHEMAS[table]), table, path)
            if expected_hash is not None:
                check_hash(memoryview(data), expected_hash, path)
            rows = file.read(columns=schema.names)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a footer
        raise damaged_part(error, path) from None
    return rows.select(schema.names).cast(schema)


def _content(path: Path) -> pa.Buffer:
    """Returns a file's content, in memory of Arrow's own.

    Python's own would be let go by the threads that Arrow reads with. If the last of them did so while Python
    ends, the process would abort (apache/arrow issue 34314).
    """
    with pa.OSFile(str(path)) as file:
        return file.read_buffer()


class Contents(NamedTuple):
    """How many rows a part has, and its hash."""

    rows: int
    hash: str


def contents(path: Path) -> Contents:
    """Returns what is in a part. Raises CaptureError, which names the file."""
    try:
        data = _content(path)
        return Contents(int(pq.read_metadata(pa.BufferReader(data)).num_rows), hash_of(memoryview(data)))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a footer
        raise damaged_part(error, path) from None
