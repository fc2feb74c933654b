"""The rows of the tables of messages as one DataFrame, in parts that each have all rows of some messages.

A row of any of these tables is packed into five whole numbers (`ROWS`), so that Spark moves 40 bytes for
each:

    place    size of the message's line * 2^32 + cell * 2^4 + fate * 2^2 + number of the table
    msg_id   the message
    t_ns     publish: t_intended_ns, pub_tx: t_tx_ns, server_rx: t_rx_ns, deliver: t_user_ns
    extra    publish: t_send_ns, server_rx: boot_id
    ids      publish: publisher and topic, pub_tx and server_rx: publisher and server, deliver: subscriber and
             server; the first * 2^32 + the second as 32 bits

The part of a message follows from its number: messages of one part are near each other in time, and so have
leases and outages in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.results.tables import Columns
from kcast.spark.jobs.draws import BLOCK

PART_ROWS = 400_000
"""About the number of rows of a part: this many are in the memory of each of Spark's Python workers."""

ROWS = ("place", "msg_id", "t_ns", "extra", "ids")

_TABLES = tuple(MESSAGE_COLUMNS)
_PUBLISH, _PUB_TX, _SERVER_RX, _DELIVER = range(len(_TABLES))
_LOW = (1 << 32) - 1
_CELL_BIT = 4


@dataclass(frozen=True, slots=True)
class Division:
    """How messages are divided into `parts`: `width` numbers of each publisher are a slot, and slots of cells
    follow each other. Blocks of numbers (`jobs.draws`) stay whole."""

    parts: int
    width: int
    cells: int

    @classmethod
    def of(cls, rows: int, messages_each: int, cells: int, cores: int) -> "Division":
        """The division of `rows` rows in all, with at most `messages_each` messages of a publisher."""
        parts = max(1, -(-rows // PART_ROWS))
        if parts > 1:
            parts = -(-parts // cores) * cores  # so that cores end together
        slots = max(1, -(-parts // max(1, cells)))
        blocks = -(-messages_each // (slots * BLOCK))
        return cls(parts, BLOCK * max(1, blocks), max(1, cells))


def message_rows(tables: Mapping[str, DataFrame], division: Division) -> DataFrame:
    """The rows of the four tables of messages, as `ROWS`, in the parts of this division."""
    no_extra = sf.lit(0)
    packed = (
        _packed(tables, _PUBLISH, "t_intended_ns", sf.col("t_send_ns"), ("pub_id", "topic_id"), "size_bytes"),
        _packed(tables, _PUB_TX, "t_tx_ns", no_extra, ("pub_id", "server_id"), None, "injected"),
        _packed(tables, _SERVER_RX, "t_rx_ns", sf.col("boot_id"), ("pub_id", "server_id")),
        _packed(tables, _DELIVER, "t_user_ns", no_extra, ("sub_id", "server_id"), None, "injected"),
    )
    rows = reduce(DataFrame.unionByName, packed)
    if division.parts == 1:
        return rows.coalesce(1)
    slot = sf.col("msg_id").bitwiseAND(_LOW) / sf.lit(division.width)
    first = sf.shiftright(sf.col("place").bitwiseAND(_LOW), _CELL_BIT) * division.parts / division.cells
    part = sf.pmod(slot.cast("long") + first.cast("long"), sf.lit(division.parts)).cast("int")
    return rows.repartitionById(division.parts, part)


def _packed(
    tables: Mapping[str, DataFrame],
    table: int,
    t_ns: str,
    extra: Column,
    ids: tuple[str, str],
    size: str | None = None,
    fate: str | None = None,
) -> DataFrame:
    number = sf.col("cell").cast("long") * (1 << _CELL_BIT) + table
    if fate is not None:
        number = number + sf.col(fate).cast("long") * 4
    if size is not None:
        number = number + sf.shiftleft(sf.col(size).cast("long"), 32)
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
    low = rows["place"] & _LOW
    cells = low >> _CELL_BIT
    found = {}
    for cell in np.unique(cells).tolist():
        own = low if (cells == cell).all() else np.where(cells == cell, low, -1)
        found[cell] = {
            name: _columns(name, _chosen(rows, own, number)) for number, name in enumerate(_TABLES)
        }
    return found


def _chosen(rows: Columns, low: NDArray[np.int64], table: int) -> Columns:
    index = np.flatnonzero((low & 3 == table) & (low >= 0))
    return {name: values[index] for name, values in rows.items()}


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
            **{"pub_id": first, "server_id": second, "t_rx_ns": rows["t_ns"], "boot_id": rows["extra"]}
        }
    return of_message | {"sub_id": first, "server_id": second, "t_user_ns": rows["t_ns"], "injected": fate}


def messages_of_publisher(publish_rows: Sequence[tuple[int, int]]) -> int:
    """The largest number of messages of a publisher, from each cell's rows of publish and its publishers."""
    return max((-(-rows // max(1, publishers)) for rows, publishers in publish_rows), default=0)
