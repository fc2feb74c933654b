"""Analyses a capture while it grows.

A streaming query (Structured Streaming) reports each file as it appears. Files are used twice:

- *While a scenario is being run*, slices of time that are past their deadline, of which nothing is still to
  be written, are counted, and merged with the slices before. Some things a capture tells
  only when a scenario ends: what servers took in (their taps), real outages, and until when a subscriber
  should have received. Until then, every subscriber that asks for a lease is assumed to want all messages of
  the topic; and a miss has no cause yet unless its sendings were cut off or lost by plan. These figures are
  only shown.
- *When a scenario has ended*, it is counted whole, and merged with the scenarios before. When
  the run is over, these counts are those of `analysis.analyse`, and so are all tables.

Memory does not grow with the capture: counts are on disk, and only the latest files of the running scenario
are remembered.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kcast.loadtest.capture import manifest
from kcast.loadtest.scenario import Scenario
from kcast.spark.analysis import Watcher, about_now, judging, tables_of
from kcast.spark.capture.captures import CaptureError, open_captures
from kcast.spark.capture.checks import Run, open_run, selected
from kcast.spark.capture.footers import is_part
from kcast.spark.capture.reading import damage_named
from kcast.spark.findings.findings import Findings
from kcast.spark.follow.running_counts import RunningCounts
from kcast.spark.follow.running_scenario import RunningScenario
from kcast.spark.session.files import Files, literal, shown
from kcast.spark.session.partitions import divide

POLL_S = 1.0
QUIET_MAX_S = 600.0
"""A run of another machine that has written nothing for so long counts as ended."""
FILES_AT_ONCE = 500

_EVERY = "2 seconds"

# The schema of Spark's binaryFile. Only the path is used: so files are listed, and not read.
_LISTED = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"


def follow(
    spark: SparkSession,
    path: str,
    watcher: Watcher,
    *,
    only: tuple[str, ...] = (),
    temp_dir: Path,
    poll_s: float = POLL_S,
) -> Findings:
    """Follows the capture at `path` to its end; the findings are those of `analyse` on what is there then.

    `watcher` is told the figures so far. `temp_dir` is for the query's checkpoints. Raises CaptureError if
    there is no capture, nothing to analyse, or a file turns out to be damaged.
    """
    began = time.monotonic()
    divide(spark, 0)
    follower = _Follower(spark, path, watcher, only)
    watcher("following: figures come once some messages are past their deadline")
    query = _query(spark, follower.run, follower.files_appeared, temp_dir)
    try:
        while not follower.look():
            _raise_failure(query)
            time.sleep(poll_s)
        _raise_failure(query)
    finally:
        query.stop()
    return follower.findings(began)


def _query(
    spark: SparkSession, run: Run, appeared: Callable[[DataFrame, int], None], temp_dir: Path
) -> StreamingQuery:
    """A query that calls `appeared` with the paths of the files that are there, and of new ones as they
    appear."""
    folders = f"{literal(run.path)}/{literal(manifest.run_folder(run.run_id))}/scenario=*/table=*"
    return (
        spark.readStream.format("binaryFile")
        .schema(_LISTED)
        .option("maxFilesPerTrigger", FILES_AT_ONCE)
        .load(folders)
        .select("path")
        .writeStream.foreachBatch(appeared)
        .option("checkpointLocation", (temp_dir / "followed").as_uri())
        .trigger(processingTime=_EVERY)
        .start()
    )


def _raise_failure(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        raise failure


class _Follower:
    """The state of following a run. The query's thread calls `files_appeared`, the main one all else."""

    def __init__(self, spark: SparkSession, path: str, watcher: Watcher, only: tuple[str, ...]) -> None:
        self._spark, self._path, self._tell, self._only = spark, path, watcher, only
        self._files = Files(spark)
        self._counts = RunningCounts()
        self._running: RunningScenario | None = None
        self._damage: CaptureError | None = None
        self._appeared: dict[str, list[str]] = {}  # by scenario's folder: files that were not looked at yet
        self._counted: set[str] = set()  # folders of scenarios
        self._wrote_at = time.monotonic()
        self._turn = threading.Lock()  # both threads count, but not at the same time
        self.run = open_run(self._files, path)
        self._numbers = {scenario.name: number for number, scenario in enumerate(self.run.planned)}
        self._selected = selected(self.run.planned, only)

    # --- The query's thread --------------------------------------------------------------------------

    def files_appeared(self, batch: DataFrame, number: int) -> None:
        """Takes the paths of new files, and looks at those of the running scenario."""
        paths = sorted(row["path"] for row in batch.collect())
        with self._turn:
            self._wrote_at = time.monotonic()
            for path in paths:
                folder, _, name = path.rsplit("/", 2)
                if is_part(name) and folder not in self._counted:
                    self._appeared.setdefault(folder, []).append(path)
            self._go_on()

    def _go_on(self) -> None:
        """Counts another slice of the running scenario, if new files of it are there."""
        running = self._running
        if running is None or running.folder not in self._appeared:
            return
        try:
            with damage_named():
                running.add(self._appeared.pop(running.folder))
                if running.count_slice():
                    self._tell(running.text())
        except CaptureError as error:  # for `look` to raise: Spark would hide it
            self._damage = error

    # --- The main thread -----------------------------------------------------------------------------

    def look(self) -> bool:
        """Looks at the state of the run, and counts scenarios that have ended; returns whether the run is
        over.

        Raises CaptureError if a file is damaged.
        """
        if self._damage is not None:
            raise self._damage
        self.run = open_run(self._files, self._path)
        is_over = not self._may_grow(self.run.info)
        open_ones = [
            (scenario, self._status(scenario.name))
            for scenario in self.run.planned
            if self._folder(scenario.name) not in self._counted and scenario.name in self._selected
        ]
        ended = [scenario.name for scenario, status in open_ones if status == "complete"]
        if ended:
            with self._turn:
                self._count_whole(ended)
        running = [scenario for scenario, status in open_ones if status == "running"]
        if running and not is_over and self._running is None:
            with self._turn:
                self._begin(running[0])
        return is_over

    def _begin(self, scenario: Scenario) -> None:
        """Begins with a scenario that is being run. There may be files of it already."""
        number, folder = self._numbers[scenario.name], self._folder(scenario.name)
        self._running = RunningScenario(self._spark, self._files, self.run.run_id, number, scenario, folder)
        self._go_on()

    def _folder(self, name: str) -> str:
        of_run = manifest.run_folder(self.run.run_id)
        return f"{self.run.path}/{of_run}/{manifest.scenario_folder(name)}"

    def _status(self, name: str) -> str | None:
        """The status in its scenario.json; None if it was not begun."""
        if manifest.scenario_folder(name) not in self.run.begun:
            return None
        path = f"{self._folder(name)}/{manifest.SCENARIO_FILE}"
        return str(manifest.parse(self._files.read(path), shown(path))["status"])

    def _may_grow(self, info: Mapping[str, Any]) -> bool:
        if info["status"] != "running":
            return False
        if manifest.is_of_this_machine(info):
            return manifest.is_running(info)
        return time.monotonic() - self._wrote_at < QUIET_MAX_S

    def _count_whole(self, names: Sequence[str]) -> None:
        """Counts scenarios that have ended."""
        for folder in map(self._folder, names):
            self._counted.add(folder)
            self._appeared.pop(folder, None)
            if self._running is not None and self._running.folder == folder:
                self._running.close()
                self._running = None
        has, is_counted = ("has", "it is counted") if len(names) == 1 else ("have", "they are counted")
        self._tell(f"{', '.join(names)} {has} ended: {is_counted} as a whole")
        try:
            captures = open_captures(self._spark, [self._path], only=names, following=True)
        except CaptureError:
            return  # `findings` names all that is left out
        with judging(captures) as judge:
            self._counts.add(judge.counts())

    def findings(self, began: float) -> Findings:
        """The findings when the run is over: those of `analyse`."""
        captures = open_captures(self._spark, [self._path], only=self._only)
        problems = captures.problems
        status = manifest.status(self.run.info)
        if status != "complete":
            reason = self.run.info.get("reason")
            why = f"; {reason}" if reason else ""
            problems = (f"{shown(self.run.path)}: the run has ended, and is {status}{why}", *problems)
        self._tell("adding up the counts")
        with judging(captures) as judge:
            sums = judge.sums(self._counts.merged(self._spark))
        self._counts.close()
        tables = tables_of(captures.cells, sums)
        about = about_now(captures.about, time.monotonic() - began)
        return Findings(about=about, problems=problems, tables=tables)
