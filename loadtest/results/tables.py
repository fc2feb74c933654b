"""A capture's tables as numpy columns.

Only the columns that are asked for are read: a capture of ten million copies is a gigabyte, and the results
need a fifth of it.
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
    """The capture of one scenario; `capture.folder.ScenarioFolder` is one."""

    @property
    def scenario(self) -> Scenario:
        """The scenario that was run."""

    @property
    def status(self) -> str:
        """How the capture ended. Figures can be trusted only of "running" and "complete"."""

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns a whole table; it has no rows if nothing was recorded."""


def columns(capture: Capture, table: str, *names: str) -> Columns:
    """Returns these columns of a table by name, all of one length; text is an array of str.

    Raises CaptureError.
    """
    types = {column.name: column.type for column in TABLES[table]}
    read = capture.read(table, names)
    return {name: _column(read.column(name), types[name]) for name in names}


def views(capture: Capture) -> tuple[Columns, Array]:
    """Returns the `member` table's ids, and which servers each client knew: bool, rows x servers.

    Rows are in the order of time.
    """
    read = capture.read("member", ("pub_id", "sub_id", "servers", "t_ns", "client_id"))
    read = read.sort_by([("t_ns", "ascending"), ("client_id", "ascending")])
    lists = read.column("servers").combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # some versions of pyarrow return chunks
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
