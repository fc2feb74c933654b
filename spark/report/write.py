"""The files of a report: the page, report.json, and each table as CSV and Parquet."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from kcast.pubsub.errors import named
from kcast.spark.findings.findings import Findings, FindingsError, Row
from kcast.spark.findings.tables import TABLES
from kcast.spark.report.page import page

PAGE, JSON, TABLES_FOLDER = "report.html", "report.json", "tables"
CSV, PARQUET = ".csv", ".parquet"

_PARTS_BEFORE = (
    *("delivery", "over-time", "latency", "balance", "cost", "attribution", "audience", "attack", "capacity"),
    *("what-if", "over-runs", "note", "simulation", "causes", "over_time"),
)
_OF_EARLIER_VERSIONS = (
    *("metrics.txt", "latencies.hlog"),
    *(f"{TABLES_FOLDER}/{table}.*" for table in ("cells", "attack", "capacity", "over_runs", "changes")),
    *(f"figures/{part}*.*" for part in _PARTS_BEFORE),
)
"""Patterns of files that earlier versions wrote."""


def write(findings: Findings, out: Path) -> None:
    """Writes all files into `out`, which is created if needed.

    Each file is complete or absent; the page comes last. Files of an earlier report that this one lacks are
    removed, so that a folder never mixes two analyses. Raises OSError.
    """
    folder = out / TABLES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        if name in findings.tables:
            rows = findings.tables[name]
            _put(folder / f"{name}{CSV}", csv_bytes(name, rows))
            _put(folder / f"{name}{PARQUET}", parquet_bytes(name, rows))
        else:
            for suffix in (CSV, PARQUET):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
    for pattern in _OF_EARLIER_VERSIONS:
        for path in out.glob(pattern):
            path.unlink()
    _put(out / JSON, findings.to_json().encode())
    _put(out / PAGE, page(findings).encode())


def read(source: Path) -> Findings:
    """Reads a report.json, without any library.

    Raises FindingsError if the file is not a report.json of this version, OSError if it cannot be read.
    """
    try:
        return Findings.from_json(source.read_bytes())
    except FindingsError as error:
        raise FindingsError(f"{source}: {error}") from None


def render(findings: Findings, out: Path) -> Path:
    """Makes the page alone; jinja2 is all that it needs. Returns its path. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    _put(out / PAGE, page(findings).encode())
    return out / PAGE


def _put(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, then renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with named(path), temporary.open("wb") as file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def csv_bytes(name: str, rows: Sequence[Row]) -> bytes:
    """Returns a table with a header as CSV: UTF-8, null as an empty field, booleans as true and false."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in TABLES[name]])
    for row in rows:
        writer.writerow([_csv_value(row[column.name]) for column in TABLES[name]])
    return text.getvalue().encode()


def _csv_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def parquet_bytes(name: str, rows: Sequence[Row]) -> bytes:
    """Returns a table as Parquet, with each column's meaning in its metadata."""
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
