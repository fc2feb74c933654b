"""A capture's tables as numpy columns.

Only what is asked for is read: a capture of ten million copies is a gigabyte if all of it is, and what the
results need is a fifth.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.scenario import Scenario

Array = NDArray[Any]
Columns = dict[str, Array]

_INTEGERS = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "float64": np.float64}


class Capture(Protocol):
    """What the results are made of: the folder of one scenario, a `capture.folder.ScenarioFolder`."""

    @property
    def scenario(self) -> Scenario:
        """What was run."""

    @property
    def status(self) -> str:
        """How far it came; "running" and "complete" are in order."""

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table, without rows where nothing was recorded."""


def columns(capture: Capture, table: str, *names: str) -> Columns:
    """These columns of a table, all equally long; numbers as numbers, text as an array of str.

    Raises CaptureError as the capture does.
    """
    types = {column.name: column.type for column in TABLES[table]}
    read = capture.read(table, names)
    return {name: _column(read.column(name), types[name]) for name in names}


def views(capture: Capture) -> tuple[Columns, Array]:
    """The `member` table's ids, and which servers that client knew: rows x servers, bool."""
    read = capture.read("member", ("pub_id", "sub_id", "servers"))
    lists = read.column("servers").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # of no or one chunk, by the version of pyarrow
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], pa.list_(pa.int32()))
    known = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    knows = np.zeros((len(lengths), int(known.max(initial=-1)) + 1), dtype=np.bool_)
    knows[np.repeat(np.arange(len(lengths)), lengths), known] = True
    return {name: _column(read.column(name), "int32") for name in ("pub_id", "sub_id")}, knows


def _column(read: Any, kind: str) -> Array:
    if kind == "string":
        return np.array(read.to_pylist(), dtype=np.str_)
    values: Array = np.asarray(read.to_numpy())
    return values.astype(_INTEGERS[kind], copy=False)
