"""The rows of the tables of messages as one DataFrame, in parts that each have all rows of some messages.

A row of any of these tables is packed into five whole numbers (`ROWS`), so that Spark moves 40 bytes for
each:

    place    publish: size of the message's line * 2^32, server_rx: topic * 2^32; + cell * 2^4 + fate * 2^2 +
             number of the table
    msg_id   the message
    t_ns     publish: t_intended_ns, pub_tx: t_tx_ns, server_rx: t_rx_ns, deliver: t_user_ns
    extra    publish: t_send_ns, server_rx: boot_id
    ids      publish: publisher and topic, pub_tx and server_rx: publisher and server, deliver: subscriber and
             server; the first * 2^32 + the second as 32 bits

The part of a message follows from its number: messages of one part are near each other in time, and so have
leases and outages in common.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.results.tables import Columns
from kcast.spark.capture.sizes import CellSize
from kcast.spark.jobs.draws import BLOCK

PART_ROWS = 400_000
"""About the number of rows and pairs of a part, which are in the memory of one of Spark's Python workers."""

ROWS = ("place", "msg_id", "t_ns", "extra", "ids")

_TABLES = tuple(MESSAGE_COLUMNS)
_PUBLISH, _PUB_TX, _SERVER_RX, _DELIVER = range(len(_TABLES))
_LOW = (1 << 32) - 1
_CELL_BIT, _FATE = 4, 3 << 2


class _Slots(NamedTuple):
    """A cell has `number` parts from `begin` on, each with `width` numbers of each publisher."""

    begin: int
    number: int
    width: int


@dataclass(frozen=True)
class Division:
    """How messages are divided into `parts`. Blocks of their numbers (`jobs.draws`) stay whole.

    Cells follow each other; one that fills several parts is divided by the numbers of its messages. So parts
    are about equal, however different cells are.
    """

    parts: int
    cells: Mapping[int, _Slots]

    @classmethod
    def of(cls, sizes: Mapping[int, CellSize], part_rows: int = PART_ROWS) -> "Division":
        """The division for cells of these sizes, by their numbers."""
        cells: dict[int, _Slots] = {}
        before = 0  # rows and pairs of all cells so far, each of which takes about as much memory
        for cell, size in sorted(sizes.items()):
            weight = size.rows + size.pairs
            number = max(1, -(-weight // part_rows))
            blocks = -(-size.messages_each // (number * BLOCK))
            cells[cell] = _Slots(before // part_rows, number, BLOCK * max(1, blocks))
            before += weight
        return cls(max((each.begin + each.number for each in cells.values()), default=1), cells)


def message_rows(tables: Mapping[str, DataFrame], division: Division) -> DataFrame:
    """The rows of the four tables of messages, as `ROWS`, in the parts of this division."""
    no_extra = sf.lit(0)
    packed = (
        _packed(tables, _PUBLISH, "t_intended_ns", sf.col("t_send_ns"), ("pub_id", "topic_id"), "size_bytes"),
        _packed(tables, _PUB_TX, "t_tx_ns", no_extra, ("pub_id", "server_id"), None, "injected"),
        _packed(tables, _SERVER_RX, "t_rx_ns", sf.col("boot_id"), ("pub_id", "server_id"), "topic_id"),
        _packed(tables, _DELIVER, "t_user_ns", no_extra, ("sub_id", "server_id"), None, "injected"),
    )
    rows = reduce(DataFrame.unionByName, packed)
    if division.parts == 1:
        return rows.coalesce(1)
    cell = cell_of_row()
    begin, number, width = (
        sf.array(*(sf.lit(value) for value in column))[cell] for column in _by_cell(division.cells)
    )
    slot = (sf.col("msg_id").bitwiseAND(_LOW) / width).cast("long")
    return rows.repartitionById(division.parts, (begin + sf.pmod(slot, number)).cast("int"))


def cell_of_row() -> Column:
    """The cell of a packed row."""
    return sf.shiftright(sf.col("place").bitwiseAND(_LOW), _CELL_BIT).cast("int")


def _by_cell(cells: Mapping[int, _Slots]) -> list[tuple[int, ...]]:
    """The columns of `_Slots`, by the numbers of cells; of numbers without a cell those of a small one."""
    every = [cells.get(cell, _Slots(0, 1, BLOCK)) for cell in range(1 + max(cells))]
    return list(zip(*every, strict=True))


def _packed(
    tables: Mapping[str, DataFrame],
    table: int,
    t_ns: str,
    extra: Column,
    ids: tuple[str, str],
    high: str | None = None,
    fate: str | None = None,
) -> DataFrame:
    number = sf.col("cell").cast("long") * (1 << _CELL_BIT) + table
    if fate is not None:
        number = number + sf.col(fate).cast("long") * 4
    if high is not None:
        number = number + sf.shiftleft(sf.col(high).cast("long"), 32)
    first, second = (sf.col(name).cast("long") for name in ids)
    return tables[_TABLES[table]].select(
        number.alias("place"),
        "msg_id",
        sf.col(t_ns).alias("t_ns"),
        extra.cast("long").alias("extra"),
        sf.shiftleft(first, 32).bitwiseOR(second.bitwiseAND(_LOW)).alias("ids"),
    )


def unpacked(batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, Columns]]:
    """The rows of a part by cell: the tables of messages, as numpy columns.

    They have the MESSAGE_COLUMNS and, in publish, `t_send_ns` and `size_bytes`; in pub_tx `pub_id`.
    """
    given = list(batches)
    if not given:
        return {}
    whole = pa.Table.from_batches(given)
    rows = {name: whole.column(name).to_numpy() for name in ROWS}
    # Without fates: all rows of a table of a cell are together.
    kinds = rows["place"] & _LOW & ~_FATE
    order = np.argsort(kinds, kind="stable")
    kinds = kinds[order]
    found = {}
    for cell in np.unique(kinds >> _CELL_BIT).tolist():
        bounds = np.searchsorted(kinds, (cell << _CELL_BIT) + np.arange(len(_TABLES) + 1))
        found[cell] = {
            name: _columns(name, {column: rows[column][order[low:high]] for column in ROWS})
            for name, (low, high) in zip(_TABLES, pairwise(bounds), strict=True)
        }
    return found


def _columns(table: str, rows: Columns) -> Columns:
    first, second = rows["ids"] >> 32, (rows["ids"] & _LOW).astype(np.int32)
    fate = (rows["place"] >> 2 & 3).astype(np.int8)
    of_message = {"msg_id": rows["msg_id"]}
    if table == "publish":
        sizes = rows["place"] >> 32
        times = {"t_intended_ns": rows["t_ns"], "t_send_ns": rows["extra"]}
        return of_message | times | {"pub_id": first, "topic_id": second, "size_bytes": sizes}
    if table == "pub_tx":
        return of_message | {
            **{"pub_id": first, "server_id": second, "t_tx_ns": rows["t_ns"], "injected": fate}
        }
    if table == "server_rx":
        return of_message | {
            **{"pub_id": first, "server_id": second, "t_rx_ns": rows["t_ns"], "boot_id": rows["extra"]},
            "topic_id": rows["place"] >> 32,
        }
    return of_message | {"sub_id": first, "server_id": second, "t_user_ns": rows["t_ns"], "injected": fate}
