"""The files of captures, read once by Spark's tasks and checked there: hashes, footers, rows of side tables.

    files -> check       what a file's footer tells, or what is wrong with it; of a side table its rows, too
          -> add up      the files of each table, and the rows of side tables that tell something new

A row for each table of each cell comes to the driver, which opens no file of a table itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.capture.manifest import PART_SUFFIX, CaptureError, check_hash, check_part, damaged_part
from kcast.loadtest.capture.schema import TABLES
from kcast.spark.capture.side_tables import SIDE_TABLES, TellingRows, no_rows
from kcast.spark.session.files import literal, shown

_NAMES = {"double": "float64"}
# In this order, each table of a cell is added up: what others leave out depends on its windows.
_ORDER = sorted(TABLES, key=lambda table: table != "window")

_EXPECTED = "path string, cell int, number int, expected string"
_FOUND = (
    "cell int, number int, since_ns bigint, files int, rows bigint, least string, most string,"
    " error string, errors int, renewals bigint, data binary"
)
_ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_ARROW = pa.schema(
    [(name, _ARROW_TYPES[kind]) for name, kind in (column.split() for column in _FOUND.split(","))]
)

Batches = Iterator[pa.RecordBatch]
Row = dict[str, Any]


class Part(NamedTuple):
    """A file of a table of a cell; `hash` is what it was when it was written, None if that is not known."""

    path: str
    cell: int
    table: str
    hash: str | None = None


class Found(NamedTuple):
    """What the files of a table of a cell are: how many, and how many rows they have.

    `least` and `most`: of each whole-number column that has statistics. `error` is of one of the files that
    cannot be used, of which there are `errors`. `side`: the rows of a side table (`TellingRows`).
    """

    files: int = 0
    rows: int = 0
    least: Mapping[str, int] = {}
    most: Mapping[str, int] = {}
    error: str | None = None
    errors: int = 0
    renewals: int = 0
    side: pa.Table | None = None


def is_part(name: str) -> bool:
    """Whether a file of this name is to be read: hidden files were not finished."""
    return name.endswith(PART_SUFFIX) and not name.startswith((".", "_"))


def checked(
    spark: SparkSession, folders: Sequence[str], parts: Sequence[Part], whole: frozenset[int]
) -> dict[tuple[int, str], Found]:
    """What the files in these folders of scenarios are, by cell and table.

    Of the cells `whole`, all rows of `subscribe` are kept.
    """
    if not parts:
        return {}
    expected = spark.createDataFrame(
        [(part.path, part.cell, _ORDER.index(part.table), part.hash) for part in parts], _EXPECTED
    )
    options = {"pathGlobFilter": f"*{PART_SUFFIX}", "recursiveFileLookup": "true"}
    read = spark.read.format("binaryFile").options(**options).load([literal(folder) for folder in folders])
    files = read.select("path", "content").join(sf.broadcast(expected), "path").mapInArrow(_check, _FOUND)
    tasks = min(len(folders), spark.sparkContext.defaultParallelism)
    by_cell = files.repartition(tasks, "cell").sortWithinPartitions("cell", "number", "since_ns")
    found = {
        (row["cell"], _ORDER[row["number"]]): Found(
            **{name: row[name] for name in ("files", "rows", "error", "errors", "renewals")},
            **{name: json.loads(row[name]) for name in ("least", "most")},
            side=None if row["data"] is None else _rows(row["data"]),
        )
        for row in by_cell.mapInArrow(partial(_add_up, whole), _FOUND).collect()
    }
    if sum(each.files for each in found.values()) < len(parts):  # Spark passes over empty files
        for path, cell, number, _ in expected.join(read.select("path"), "path", "left_anti").collect():
            of_table = found.get((cell, _ORDER[number]), Found())
            error = f"{shown(path)}: not a whole Parquet file: it is empty, or gone"
            found[cell, _ORDER[number]] = of_table._replace(error=error, errors=of_table.errors + 1)
    return found


# --- In Spark's workers ------------------------------------------------------------------------------


def _check(batches: Batches) -> Batches:
    for batch in batches:
        others = batch.select(["path", "cell", "number", "expected"]).to_pylist()
        found = [
            _checked(each.as_buffer(), **row) for each, row in zip(batch["content"], others, strict=True)
        ]
        yield pa.RecordBatch.from_pylist(found, schema=_ARROW)


def _checked(content: pa.Buffer, path: str, cell: int, number: int, expected: str | None) -> Row:
    table, where = _ORDER[number], shown(path)
    found: Row = {"cell": cell, "number": number, "since_ns": 0, "files": 1, "errors": 0}
    try:
        try:
            with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
                columns = [(field.name, _type(field.type)) for field in file.schema_arrow]
                is_table = columns == [(column.name, column.type) for column in TABLES[table]]
                check_part(file.schema_arrow.metadata, is_table, table, where)
                if expected is not None:
                    check_hash(memoryview(content), expected, where)
                least, most = _extremes(file.metadata)
                data = _packed(file.read().cast(no_rows(table).schema)) if table in SIDE_TABLES else None
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a footer
            raise damaged_part(error, where) from None
    except CaptureError as error:
        return found | {"error": str(error), "errors": 1}
    since_ns = min((value for name, value in least.items() if name.startswith("t_")), default=0)
    told = {"least": json.dumps(least), "most": json.dumps(most), "rows": file.metadata.num_rows}
    return found | told | {"since_ns": since_ns, "data": data}


def _type(kind: Any) -> str:
    if pa.types.is_list(kind):
        return f"list<{_type(kind.value_type)}>"
    return _NAMES.get(str(kind), str(kind))


def _extremes(metadata: Any) -> tuple[dict[str, int], dict[str, int]]:
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        for chunk in (group.column(number) for number in range(group.num_columns)):
            found = chunk.statistics
            if found is not None and found.has_min_max and isinstance(found.min, int):
                name = chunk.path_in_schema
                least[name] = min(found.min, least.get(name, found.min))
                most[name] = max(found.max, most.get(name, found.max))
    return least, most


def _add_up(whole: frozenset[int], batches: Batches) -> Batches:
    """Adds up files, which come by cell, table and time."""
    files = (row for batch in batches for row in batch.to_pylist())
    for cell, of_cell in groupby(files, itemgetter("cell")):
        window: tuple[int, int] | None = None
        for number, of_table in groupby(of_cell, itemgetter("number")):
            table = _ORDER[number]
            side = TellingRows(table, window, keeps_all=cell in whole)
            total = _total(of_table, side)
            if table in SIDE_TABLES:
                kept = side.kept()
                total |= {"data": _packed(kept), "renewals": side.renewals}
                if table == "window" and len(kept):
                    window = pc.min(kept["t_from_ns"]).as_py(), pc.max(kept["t_to_ns"]).as_py()
            yield pa.RecordBatch.from_pylist([{"cell": cell, "number": number, **total}], schema=_ARROW)


def _total(files: Iterable[Row], side: TellingRows) -> Row:
    """The sums of the files of a table, whose rows `side` takes."""
    total: Row = {"files": 0, "rows": 0, "errors": 0, "error": None}
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for file in files:
        total["files"] += 1
        if file["error"] is not None:
            total["errors"] += 1
            total["error"] = min(file["error"], total["error"] or file["error"])
            continue
        total["rows"] += file["rows"]
        for bounds, name, choose in ((least, "least", min), (most, "most", max)):
            for column, value in json.loads(file[name]).items():
                bounds[column] = choose(value, bounds.get(column, value))
        if file["data"] is not None:
            side.add(_rows(file["data"]))
    return total | {"least": json.dumps(least), "most": json.dumps(most)}


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _rows(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
