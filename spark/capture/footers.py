"""The footers of a capture's Parquet files, which tell what is in a file without its rows being read.

Where the hash of a file is known, the whole file is read, and held against it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kcast.loadtest.capture.manifest import PART_SUFFIX, CaptureError, check_hash, check_part, damaged_part
from kcast.loadtest.capture.schema import TABLES
from kcast.spark.session.files import Files, shown

_THREADS = 8
_NAMES = {"double": "float64"}


class Footer(NamedTuple):
    """Number of rows, and the least and greatest value of each whole-number column that has statistics."""

    rows: int
    least: Mapping[str, int]
    most: Mapping[str, int]


def is_part(name: str) -> bool:
    """Whether a file of this name is to be read: hidden files were not finished."""
    return name.endswith(PART_SUFFIX) and not name.startswith((".", "_"))


class Part(NamedTuple):
    """A file of a table; `hash` is what it was when it was written, None if that is not known."""

    path: str
    table: str
    hash: str | None = None


def footers(files: Files, parts: Sequence[Part]) -> list[Footer | CaptureError]:
    """The footer of each part; or an error that says what is wrong with it."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(lambda part: _footer(files, part), parts))


def _footer(files: Files, part: Part) -> Footer | CaptureError:
    path, table, expected_hash = part
    data = b""
    try:
        if expected_hash is None:
            found = pq.read_metadata(files.open(path))
        else:
            data = files.read(path)
            found = pq.read_metadata(pa.BufferReader(data))
        schema = found.schema.to_arrow_schema()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a footer
        return damaged_part(error, shown(path))
    expected = [(column.name, column.type) for column in TABLES[table]]
    try:
        check_part(found.metadata, _columns(schema) == expected, table, shown(path))
        if expected_hash is not None:
            check_hash(data, expected_hash, shown(path))
    except CaptureError as error:
        return error
    return Footer(found.num_rows, *_extremes(found))


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, _type(field.type)) for field in schema]


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
