"""Figures of a scenario while it is being run, from slices of time that are past their deadline.

They are made by the jobs, from what is known by then (`watch` says what is not). A slice reaches from the
end of the last one to the time up to which all processes have written all records: each process records once
a second that it is alive, and writes all records within `FLUSH_S`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.capture.manifest import CaptureError, table_folder
from kcast.loadtest.charts.words import percent_digits
from kcast.loadtest.results.attribution import MESSAGE_COLUMNS
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.footers import Part, footers, is_part
from kcast.spark.capture.schemas import stored_schema, table_schema
from kcast.spark.capture.side_tables import SideTables, side_table
from kcast.spark.capture.sizes import CellSize
from kcast.spark.findings import attribution as attribution_findings
from kcast.spark.findings import latency as latency_findings
from kcast.spark.findings import reliability as reliability_findings
from kcast.spark.findings.cells import Cell
from kcast.spark.jobs.job import Around
from kcast.spark.judging.judge import Judge, Sums
from kcast.spark.judging.rows import Division, message_rows
from kcast.spark.session.files import Files, literal
from kcast.spark.watch.running_counts import RunningCounts

FLUSH_S = 3.0
"""A process's records are in a file after this time; see `kcast.loadtest.capture.writer`."""
SLICE_MIN_S = 2.0
"""The least length of a slice: a shorter one would cost too much for what it tells."""

_S = 1_000_000_000
_CAUSES_SHOWN = 3
_NOT_KNOWN_YET = {Cause.UNTAPPED.label: "not known yet"}

# The tables of messages and leases, with the column of their times.
_TIMES = {"publish": "t_intended_ns", "pub_tx": "t_tx_ns", "deliver": "t_user_ns", "subscribe": "t_tx_ns"}
ALIVE = "process_stat"
"""The table in which each process records once a second that it is alive."""
_ALWAYS = 1 << 62


class _TimedFile(NamedTuple):
    """A file, with its number of rows, and their first and last time."""

    path: str
    rows: int
    least_ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all slices so far.

    `until_s`: how far the load was counted, from its beginning. `share` of pairs delivered, 0 .. 1, with its
    95 % interval. `causes`: missed pairs by cause, the most frequent first. Latencies are null without a
    delivery.
    """

    until_s: float
    pairs: int
    share: float
    low: float
    high: float
    causes: Mapping[str, int]
    p50_ms: float | None
    p99_ms: float | None


class RunningScenario:
    """The files, counts and figures so far of a scenario that is being run. For one thread at a time."""

    def __init__(
        self,
        spark: SparkSession,
        files: Files,
        run: str,
        number: int,
        scenario: Scenario,
        folder: str,
        started: object = None,
    ) -> None:
        self.scenario = scenario
        self.started = started  # when this attempt was; another one has other processes
        self.figures: Figures | None = None
        self._spark, self._files = spark, files
        self._run, self._number, self._folder = run, number, folder
        # What says that all was written until then is listed first: so no file comes in between.
        self._seen: dict[str, set[str]] = {name: set() for name in (ALIVE, *_TIMES, "member")}
        self._deadline_ns = round(scenario.deadline_s * _S)
        self._by_table: dict[str, list[_TimedFile]] = {name: [] for name in (*_TIMES, "member")}
        self._alive_ns: dict[str, int] = {}  # by process: when it last recorded that it is alive
        self._writers: set[str] = set()
        self._t0_ns = self._counted_ns = 0
        self._counts = RunningCounts()

    def look(self) -> bool:
        """Takes the files that have appeared in the folder; returns whether there are any.

        Raises CaptureError if one is not a part of a capture, and OSError.
        """
        parts = []
        for table, seen in self._seen.items():
            place = f"{self._folder}/{table_folder(table)}"
            new = sorted(set(filter(is_part, self._files.names(place))) - seen)
            seen.update(new)
            parts += [Part(f"{place}/{name}", table) for name in new]
        self._take(parts)
        return bool(parts)

    def _take(self, parts: Sequence[Part]) -> None:
        for (path, table, _), footer in zip(parts, footers(self._files, parts), strict=True):
            if isinstance(footer, CaptureError):
                raise footer
            writer = path.rpartition("/")[2].rpartition("-")[0]
            time_ns = _TIMES.get(table, "t_ns")
            least_ns, most_ns = footer.least.get(time_ns, 0), footer.most.get(time_ns, 0)
            if table == ALIVE:
                self._alive_ns[writer] = max(most_ns, self._alive_ns.get(writer, 0))
                continue
            self._writers.add(writer)
            self._by_table[table].append(_TimedFile(path, footer.rows, least_ns, most_ns))

    def count_slice(self) -> bool:
        """Counts what is past its deadline and was not counted yet; returns False if that is too little."""
        if not self._by_table["publish"] or self._writers - set(self._alive_ns):
            return False
        if not self._t0_ns:
            self._t0_ns = self._counted_ns = min(file.least_ns for file in self._by_table["publish"])
        until_ns = min(self._alive_ns.values()) - round(FLUSH_S * _S) - self._deadline_ns
        if until_ns - self._counted_ns < SLICE_MIN_S * _S:
            return False
        cell = Cell(self._number, self._run, self.scenario, "running", self._t0_ns)
        around = Around(cell.number, cell.t0_ns, self._side_tables(self._counted_ns, until_ns))
        size = self._size(self._counted_ns, until_ns)
        rows = message_rows(self._slice(self._counted_ns, until_ns), Division.of({cell.number: size}))
        judge = Judge(self._spark, rows, {cell.number: around})
        try:
            self._counts.add(judge.counts())
            sums = judge.sums(self._counts.merged(self._spark))
        finally:
            judge.close()
        self._counted_ns = until_ns
        self._forget()
        self.figures = _figures(cell, sums, (until_ns - self._t0_ns) / _S)
        return True

    def close(self) -> None:
        """Forgets all counts."""
        self._counts.close()

    def text(self) -> str:
        """The figures in a line."""
        name = self.scenario.name
        found = self.figures
        if found is None:
            return f"{name}: too early for figures"
        words = [
            f"{name}: {found.until_s:.0f} of {self.scenario.duration_s:g} s",
            f"delivered {percent_digits(found.share)} %"
            f" ({percent_digits(found.low)}-{percent_digits(found.high)}) of {found.pairs:,} pairs",
        ]
        missed = sum(found.causes.values())
        shown = list(found.causes.items())[:_CAUSES_SHOWN]
        words += [f"{_NOT_KNOWN_YET.get(cause, cause)} {count / missed:.0%}" for cause, count in shown]
        if found.p50_ms is not None and found.p99_ms is not None:
            words.append(f"p50 {found.p50_ms:g} ms, p99 {found.p99_ms:g} ms")
        return ", ".join(words)

    def _slice(self, from_ns: int, until_ns: int) -> dict[str, DataFrame]:
        """The messages that were to be published from one time to the other, as far as known."""
        intended_ns = sf.col("t_intended_ns")
        published = self._read("publish", from_ns, until_ns)
        published = published.where((intended_ns >= from_ns) & (intended_ns < until_ns))
        beyond_ns = self._beyond_ns(until_ns)
        messages = sf.broadcast(published.select("msg_id"))
        return {
            "publish": published,
            "pub_tx": self._read("pub_tx", from_ns, beyond_ns).join(messages, "msg_id", "left_semi"),
            # What servers took in, their taps tell at the end.
            "server_rx": self._read("server_rx", from_ns, beyond_ns),
            "deliver": self._read("deliver", from_ns, beyond_ns).join(messages, "msg_id", "left_semi"),
        }

    def _size(self, from_ns: int, until_ns: int) -> CellSize:
        """How large that slice is at most. A run that is joined late has a first slice that is long."""
        rows = {
            name: sum(file.rows for file in self._files_of(name, from_ns, until_ns))
            for name in MESSAGE_COLUMNS
        }
        return CellSize.of(self.scenario, rows)

    def _side_tables(self, from_ns: int, until_ns: int) -> SideTables:
        """What is known besides messages: who asked for leases, and which servers clients know."""
        since_ns = from_ns - self.scenario.ttl_s * _S
        asked = self._read_whole("subscribe", since_ns, self._beyond_ns(until_ns))
        holders = asked.select(["sub_id", "topic_id"]).group_by(["sub_id", "topic_id"]).aggregate([])
        # When a subscriber should have received is known only at the end, with the taps.
        bounds = {"t_from_ns": 0, "t_to_ns": _ALWAYS}
        intent = holders
        for name, value in bounds.items():
            intent = intent.append_column(name, pa.array([value] * len(holders), pa.int64()))
        tables = {"subscribe": asked, "intent": intent, "member": self._read_whole("member", 0, _ALWAYS)}
        return SideTables(self.scenario, "running", tables)

    def _beyond_ns(self, until_ns: int) -> int:
        """When all is recorded of messages that were to be published until a time."""
        return until_ns + self._deadline_ns + round(FLUSH_S * _S)

    def _read(self, table: str, from_ns: int, until_ns: int) -> DataFrame:
        """All rows of the files that may have rows between the two times."""
        paths = [literal(path) for path in self._paths(table, from_ns, until_ns)]
        schema = stored_schema(table)
        rows = self._spark.read.schema(schema).parquet(*paths) if paths else None
        if rows is None:
            rows = self._spark.createDataFrame([], schema)
        return rows.withColumn("cell", sf.lit(self._number)).select(table_schema(table).names)

    def _read_whole(self, table: str, from_ns: int, until_ns: int) -> pa.Table:
        """The same of a table that does not grow with messages."""
        return side_table(self._files, table, self._paths(table, from_ns, until_ns))

    def _paths(self, table: str, from_ns: int, until_ns: int) -> list[str]:
        return [file.path for file in self._files_of(table, from_ns, until_ns)]

    def _files_of(self, table: str, from_ns: int, until_ns: int) -> list[_TimedFile]:
        every = self._by_table.get(table, ())
        return [file for file in every if file.least_ns < until_ns and file.most_ns >= from_ns]

    def _forget(self) -> None:
        """Forgets the files of which no later slice needs a row."""
        for table in _TIMES:
            before_ns = self._counted_ns - (self.scenario.ttl_s * _S if table == "subscribe" else 0)
            self._by_table[table] = [file for file in self._by_table[table] if file.most_ns >= before_ns]


def _figures(cell: Cell, sums: Sums, until_s: float) -> Figures:
    (share,) = reliability_findings.tables((cell,), sums)["reliability"]
    causes = attribution_findings.tables((cell,), sums)["attribution"]
    times = [row for row in latency_findings.tables((cell,), sums)["latency"] if row["since"] == "intended"]
    missed = Counter({row["cause"]: row["misses"] for row in causes if row["misses"]})
    return Figures(
        until_s=until_s,
        pairs=share["pairs"],
        share=share["share"] or 0.0,
        low=share["low"],
        high=share["high"],
        causes=dict(missed.most_common()),
        p50_ms=times[0]["p50_ms"] if times else None,
        p99_ms=times[0]["p99_ms"] if times else None,
    )
