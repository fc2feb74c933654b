"""The tables of a cell that do not grow with its messages, read whole: they are few rows each.

Leases and renewals grow with subscribers and time, all else with servers, processes and time.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.footers import is_part
from kcast.spark.capture.reading import CellFolder
from kcast.spark.session.files import Files, shown

SIDE_TABLES = tuple(name for name in TABLES if name not in MESSAGE_COLUMNS)

_THREADS = 8
_TYPES = {"string": pa.string(), "list<int32>": pa.list_(pa.int32())}


@dataclass(frozen=True, slots=True)
class SideTables:
    """The side tables of a cell, as a `kcast.loadtest.results.tables.Capture` without messages."""

    scenario: Scenario
    status: str
    tables: Mapping[str, pa.Table]

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a table; it has no rows if nothing is known of it."""
        found = self.tables.get(table)
        if found is None:
            found = no_rows(table)
        return found if columns is None else found.select(list(columns))


def no_rows(table: str) -> pa.Table:
    """An empty table with a table's columns."""
    schema = pa.schema(
        [(column.name, _TYPES.get(column.type) or getattr(pa, column.type)()) for column in TABLES[table]]
    )
    return schema.empty_table()


def read_side_tables(
    files: Files, folders: Sequence[CellFolder], scenarios: Mapping[int, Scenario]
) -> dict[int, SideTables]:
    """The side tables of these cells, by their numbers. Raises CaptureError for a file that cannot be
    read."""
    with ThreadPoolExecutor(_THREADS) as threads:
        read = threads.map(
            lambda each: (each[0], each[1], _read(files, each[0], each[1])),
            [(folder, name) for folder in folders for name in SIDE_TABLES],
        )
        found: dict[int, dict[str, pa.Table]] = {folder.cell: {} for folder in folders}
        for folder, name, table in read:
            found[folder.cell][name] = table
    return {cell: SideTables(scenarios[cell], "complete", tables) for cell, tables in found.items()}


def _read(files: Files, folder: CellFolder, name: str) -> pa.Table:
    where = f"{folder.path}/{manifest.table_folder(name)}"
    return side_table(files, name, [f"{where}/{part}" for part in files.names(where) if is_part(part)])


def side_table(files: Files, name: str, paths: Sequence[str]) -> pa.Table:
    """A table of these files. Raises CaptureError for one that cannot be read."""
    rows = [_read_part(files, path) for path in paths]
    return pa.concat_tables([no_rows(name), *rows], promote_options="permissive")


def _read_part(files: Files, path: str) -> pa.Table:
    try:
        return pq.ParquetFile(files.open(path), page_checksum_verification=True).read()
    except FileNotFoundError:
        raise CaptureError(f"{shown(path)}: it was there and is gone") from None
    except PermissionError:
        raise CaptureError(f"{shown(path)}: cannot be read: there is no permission") from None
    except (OSError, pa.ArrowException):
        raise CaptureError(f"{shown(path)}: damaged, its rows cannot be read") from None
