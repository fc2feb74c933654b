"""What is known besides messages, and what is summed up in one place, do not grow with a load."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.capture.schema import DUPLICATE
from kcast.loadtest.results.surroundings import may_leave
from kcast.loadtest.results.tables import columns
from kcast.spark.capture import side_tables
from kcast.spark.capture.side_tables import SIDE_TABLES, SideTables, TellingRows
from kcast.spark.jobs.job import Around
from kcast.spark.judging.judge import JOBS, table_of
from tests.support.big_capture import big_scenario, write_scenario
from tests.support.handmade_capture import S
from tests.support.random_captures import random_world
from tests.support.spark_cells import Captured, as_cells, merged_table, sums_of, unordered

SMALL: dict[str, Any] = {"servers": 12, "epoch_s": 0.5, "ttl_s": 6, "rate": 5.0, "topics": 4}
BY_TIME = {"client_stat": "t_ns", "server_stat": "t_ns", "process_stat": "t_ns", "subscribe": "t_tx_ns"}
GROWTH_MAX = 1.2


def captured(path: Path, copies: int, **fields: Any) -> Captured:
    folder = create_run(
        path, [big_scenario(copies, topics_per_subscriber=2, **SMALL, **fields)], seed=1
    ).begin("big")
    write_scenario(folder)
    return as_cells([folder])[0]


def with_events(rows: pa.Table, table: str, rng: np.random.Generator) -> pa.Table:
    """Rows with counters that rise now and then and begin again at 0, impossible readings, some before the
    load, and extra copies of lines."""
    found: dict[str, Any] = {}
    for name in ("kernel_drops", "send_errors", "slow_consumer", "rows_lost"):
        if name in rows.column_names:
            found[name] = np.cumsum(rng.random(len(rows)) < 0.002) % 7
    if table == "client_stat":
        found["t_ns"] = np.asarray(rows["t_ns"]) - 5 * S
        found["copies"] = np.asarray(rows["copies"]) // 2 - 40 * (rng.random(len(rows)) < 0.05)
        found["deliveries"] = found["copies"] + (rng.random(len(rows)) < 0.05)
        found["duplicates"] = np.zeros(len(rows), np.int64)
    if table == "subscribe":
        found["injected"] = np.where(rng.random(len(rows)) < 0.1, DUPLICATE, np.asarray(rows["injected"]))
    for name, values in found.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return rows


def telling(side: SideTables, number: int) -> SideTables:
    """The same side tables as files of some seconds tell them, after what each file adds."""
    window = columns(side, "window", "t_from_ns", "t_to_ns")
    span = (int(window["t_from_ns"].min()), int(window["t_to_ns"].max())) if len(window["t_to_ns"]) else None
    found, renewals = {}, 0
    for table in SIDE_TABLES:
        chosen = TellingRows(table, span, keeps_all=may_leave(side.scenario))
        rows = side.read(table).cast(side_tables.no_rows(table).schema)
        if table in BY_TIME and len(rows):
            at = np.asarray(rows[BY_TIME[table]]) // (number * S)
            for file in np.unique(at):
                chosen.add(rows.filter(pa.array(at == file)))
        else:
            chosen.add(rows)
        found[table], renewals = chosen.kept(), chosen.renewals + renewals
    return SideTables(side.scenario, side.status, found, renewals)


def sums(cell: Captured, side: SideTables) -> dict[str, list[str]]:
    cell.__dict__["around"] = Around(cell.cell.number, cell.cell.t0_ns, side)
    return unordered(sums_of([cell.part()], [cell.around]))


def test_rows_that_tell_nothing_new_change_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, removed = np.random.default_rng(3), 0
    cells = [captured(tmp_path / str(known), 15_000, known=known) for known in (1.0, 0.8)]
    cells += as_cells([random_world(tmp_path / f"r{n}", random.Random(n)).folder() for n in (1, 2, 3, 12)])
    for cell in cells:
        read = {table: with_events(cell.around.side.read(table), table, rng) for table in SIDE_TABLES}
        whole = SideTables(cell.capture.scenario, "complete", read)
        expected = sums(cell, whole)
        for rows_together in (1, 100_000):
            monkeypatch.setattr(side_tables, "_ROWS", rows_together)
            few = telling(whole, 2)
            assert sums(cell, few) == expected
        removed += sum(len(whole.read(table)) - len(few.read(table)) for table in BY_TIME)
    assert removed > 1000
    # Of a client that may leave a server, any line may be the last before its lease ends.
    asked = cells[0].around.side.read("subscribe").cast(side_tables.no_rows("subscribe").schema)
    every = TellingRows("subscribe", (0, 1 << 62), keeps_all=True)
    every.add(asked)
    assert every.kept().equals(asked)


def test_a_load_ten_times_as_long_needs_no_more_room(tmp_path: Path) -> None:
    def sizes(cell: Captured) -> Sequence[int]:
        side = telling(cell.around.side, 2)
        counts = [each for job in JOBS if not job.by_first_key for each in job.count(cell.part())]
        of_latencies = {"latency", "timeline", "reach"}  # of which there are more values, up to a bound
        kinds = {kind.number for job in JOBS if job.name not in of_latencies for kind in job.kinds}
        table = merged_table(pa.Table.from_batches([*table_of(0, counts)]))
        return (
            sum(len(side.read(name)) for name in BY_TIME),
            int(np.isin(table["kind"].to_numpy(), list(kinds)).sum()),
        )

    short, long = (sizes(captured(tmp_path / str(copies), copies)) for copies in (4_000, 40_000))
    assert all(more < GROWTH_MAX * few for few, more in zip(short, long, strict=True)), (short, long)
