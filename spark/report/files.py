"""The tables as CSV and Parquet."""

import csv
import io
from collections.abc import Sequence

from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import TABLES

CSV, PARQUET = ".csv", ".parquet"


def csv_bytes(name: str, rows: Sequence[Row]) -> bytes:
    """A table with its heads: UTF-8, what is null is empty, truth is true or false."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in TABLES[name]])
    for row in rows:
        writer.writerow([_csv_value(row[column.name]) for column in TABLES[name]])
    return text.getvalue().encode()


def _csv_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def parquet_bytes(name: str, rows: Sequence[Row]) -> bytes:
    """The same with types, and each column's meaning in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_()}
    schema = pa.schema(
        [
            pa.field(column.name, types[column.type], metadata={"meaning": column.meaning})
            for column in TABLES[name]
        ]
    )
    columns = [pa.array([row[column.name] for row in rows], types[column.type]) for column in TABLES[name]]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), out, compression="zstd")
    return out.getvalue()
