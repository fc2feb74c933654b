"""The files of a report: the page, report.json, and each table as CSV and Parquet."""

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from kcast.spark.findings.findings import Findings, FindingsError, Row
from kcast.spark.findings.tables import TABLES
from kcast.spark.report import hdr_log
from kcast.spark.report.page import page
from kcast.spark.report.pictures import pictures

PAGE, JSON, TABLES_FOLDER, FIGURES_FOLDER = "report.html", "report.json", "tables", "figures"
METRICS, LATENCIES = "metrics.txt", "latencies.hlog"
CSV, PARQUET, SVG, PNG = ".csv", ".parquet", ".svg", ".png"

_PICTURE = re.compile(
    r"(delivery|over-time|latency|balance|cost|attribution|audience|attack|capacity|what-if|note"
    r"|simulation)(-\d+)?\.svg|(delivery|latency|causes|over_time)\.png"
)
"""The names of files in the folder of figures that a report may have."""

_SCENARIOS_BEFORE = "cells"
"""The name of the table `scenarios` in findings of version 1."""


def write(findings: Findings, out: Path) -> None:
    """Writes all files into `out`, which is created if needed.

    Each file is complete or absent; the page comes last. Tables of an earlier report that this one lacks are
    removed, so that a folder never mixes two analyses. Raises OSError.
    """
    from kcast.spark.report.open_metrics import metrics  # not for --render, which needs no library

    folder = out / TABLES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        if name in findings.tables:
            rows = findings.tables[name]
            _put(folder / f"{name}{CSV}", csv_bytes(name, rows))
            _put(folder / f"{name}{PARQUET}", parquet_bytes(name, rows))
        else:
            _remove(folder, name)
    _remove(folder, _SCENARIOS_BEFORE)
    exports = {METRICS: metrics(findings), LATENCIES: hdr_log.log(findings)}
    for name, text in exports.items():
        if findings.table("scenarios") and text:
            _put(out / name, text.encode())
        else:
            (out / name).unlink(missing_ok=True)
    _write_pictures(findings, out / FIGURES_FOLDER)
    _put(out / JSON, findings.to_json().encode())
    _put(out / PAGE, page(findings).encode())


def _write_pictures(findings: Findings, folder: Path) -> None:
    """Writes the drawings of the page as SVG, and removes those of an earlier report, PNG too."""
    for earlier in folder.glob("*.*"):
        if _PICTURE.fullmatch(earlier.name):
            earlier.unlink()
    for name, picture in pictures(findings).items():
        folder.mkdir(exist_ok=True)
        _put(folder / f"{name}{SVG}", picture.encode())


def write_png(name: str, image: bytes, out: Path) -> None:
    """Writes a figure as PNG beside the drawings of a report. Raises OSError."""
    (out / FIGURES_FOLDER).mkdir(exist_ok=True)
    _put(out / FIGURES_FOLDER / f"{name}{PNG}", image)


def read(source: Path) -> Findings:
    """Reads a report.json, without any library.

    Raises FindingsError if the file is not a report.json of this version, OSError if it cannot be read.
    """
    try:
        return Findings.from_json(source.read_bytes())
    except FindingsError as error:
        raise FindingsError(f"{source}: {error}") from None


def render(findings: Findings, out: Path) -> Path:
    """Makes the page alone, without any library. Returns its path. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    _put(out / PAGE, page(findings).encode())
    return out / PAGE


def _remove(folder: Path, table: str) -> None:
    for suffix in (CSV, PARQUET):
        (folder / f"{table}{suffix}").unlink(missing_ok=True)


def _put(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, then renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
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
