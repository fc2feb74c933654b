"""A capture is analysed while it grows.

A streaming query (Structured Streaming) hears of each file as it appears. Two things are done with it:

- *Live*: slices of time that are past their deadline, of which nothing is still to be written, are counted by
  the jobs of the batch and merged with those before. What a capture tells only when a scenario ends is not
  known then: what servers took in (their taps), real outages, and until when who was to receive what. So
  whoever asks for a lease is taken to want all of that topic's messages, and what was not cut off or lost by
  plan, and did not come, has no cause yet. These figures are shown, and nothing else is made of them.
- *For good*: a scenario that has ended is counted whole, once, by all jobs, and merged with those before it.
  When the run is over these counts are those of the batch, and so are all tables.

Memory does not grow with the capture: counts are on disk, and of a scenario that is being run only the files
of the last moments are kept in mind.
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
from kcast.spark.analysis import JOBS, Watcher, about_now, counted_sources, sum_up_all, tables_of
from kcast.spark.capture.captures import CaptureError, open_captures
from kcast.spark.capture.checks import Run, open_run, selected
from kcast.spark.capture.footers import is_part
from kcast.spark.findings.findings import Findings
from kcast.spark.follow.live import Live
from kcast.spark.follow.running_counts import RunningCounts
from kcast.spark.session.files import Files, literal, shown
from kcast.spark.session.partitions import divide

POLL_S = 1.0
QUIET_MAX_S = 600.0
"""So long a run of another machine may write nothing before it passes for dead; of this one's it is known."""
FILES_AT_ONCE = 500

_EVERY = "2 seconds"

# That of Spark's binaryFile, of which only the path is asked for: so files are listed, and not read.
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
    """Follows the capture at `path` to its end; the findings are those of the batch on what is there then.

    `watcher` is told the figures so far. `temp_dir` is for the query's own notes. Raises CaptureError where
    there is no capture, nothing to analyse, or a file turns out to be damaged.
    """
    began = time.monotonic()
    divide(spark, 0)
    follower = _Follower(spark, path, watcher, only)
    watcher("following; there are figures once some messages are past their deadline")
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
    """Calls back with the paths of files as they appear, and once with those that are there."""
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


def _tell_nobody(_: str) -> None:
    pass


def _raise_failure(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        raise failure


class _Follower:
    """What is known so far. The query's thread calls `files_appeared`, the main one all else."""

    def __init__(self, spark: SparkSession, path: str, watcher: Watcher, only: tuple[str, ...]) -> None:
        self._spark, self._path, self._tell, self._only = spark, path, watcher, only
        self._files = Files(spark)
        self._counts = RunningCounts()
        self._live: Live | None = None
        self._damage: CaptureError | None = None
        self._appeared: dict[str, list[str]] = {}  # by folder: of scenarios that were not looked at yet
        self._counted: set[str] = set()  # folders
        self._wrote_at = time.monotonic()
        self._turn = threading.Lock()  # both threads count, but not at once
        self.run = open_run(self._files, path)
        self._numbers = {scenario.name: number for number, scenario in enumerate(self.run.planned)}
        self._wanted = selected(self.run.planned, only)

    # --- The query's thread --------------------------------------------------------------------------

    def files_appeared(self, batch: DataFrame, number: int) -> None:
        """Files are there: those of the scenario that is run are looked at."""
        paths = sorted(row["path"] for row in batch.collect())
        with self._turn:
            self._wrote_at = time.monotonic()
            for path in paths:
                folder, _, name = path.rsplit("/", 2)
                if is_part(name) and folder not in self._counted:
                    self._appeared.setdefault(folder, []).append(path)
            self._go_on()

    def _go_on(self) -> None:
        """Counts what is past its deadline of the scenario that is run, where more is there of it."""
        live = self._live
        if live is None or live.folder not in self._appeared:
            return
        try:
            live.add(self._appeared.pop(live.folder))
        except CaptureError as error:  # for who asked to follow, and not for Spark to tell
            self._damage = error
            return
        if live.count_slice():
            self._tell(live.text())

    # --- The main thread -----------------------------------------------------------------------------

    def look(self) -> bool:
        """Looks what has become of the run, and counts scenarios that have ended; whether it is over.

        Raises CaptureError where there is damage.
        """
        if self._damage is not None:
            raise self._damage
        self.run = open_run(self._files, self._path)
        is_over = not self._may_grow(self.run.info)
        open_ones = [
            (scenario, self._status(scenario.name))
            for scenario in self.run.planned
            if self._folder(scenario.name) not in self._counted and scenario.name in self._wanted
        ]
        ended = [scenario.name for scenario, status in open_ones if status == "complete"]
        if ended:
            with self._turn:
                self._count_for_good(ended)
        running = [scenario for scenario, status in open_ones if status == "running"]
        if running and not is_over and self._live is None:
            with self._turn:
                self._begin(running[0])
        return is_over

    def _begin(self, scenario: Scenario) -> None:
        """A scenario is being run; there may be files of it already."""
        number, folder = self._numbers[scenario.name], self._folder(scenario.name)
        self._live = Live(self._spark, self._files, self.run.run_id, number, scenario, folder)
        self._go_on()

    def _folder(self, name: str) -> str:
        of_run = manifest.run_folder(self.run.run_id)
        return f"{self.run.path}/{of_run}/{manifest.scenario_folder(name)}"

    def _status(self, name: str) -> str | None:
        """What its scenario.json says; None where it was not begun."""
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

    def _count_for_good(self, names: Sequence[str]) -> None:
        for folder in map(self._folder, names):
            self._counted.add(folder)
            self._appeared.pop(folder, None)
            if self._live is not None and self._live.folder == folder:
                self._live.close()
                self._live = None
        has = "has" if len(names) == 1 else "have"
        self._tell(f"{', '.join(names)} {has} ended, and what came of it is counted for good")
        try:
            captures = open_captures(self._spark, [self._path], only=names, following=True)
        except CaptureError:
            return  # said at the end, with all that is left out
        divide(self._spark, captures.rows)
        with counted_sources(self._spark, captures.cells, captures.tables, _tell_nobody) as sources:
            for job in JOBS:
                self._counts.add(job, job.count(sources))

    def findings(self, began: float) -> Findings:
        """When the run is over: what the batch would find."""
        captures = open_captures(self._spark, [self._path], only=self._only)
        problems = captures.problems
        status = manifest.status(self.run.info)
        if status != "complete":
            reason = self.run.info.get("reason")
            told = f"; {reason}" if reason else ""
            problems = (f"{shown(self.run.path)}: the run has ended, and is {status}{told}", *problems)
        self._tell("adding up")
        sums = sum_up_all(self._spark, lambda job: self._counts.merged(self._spark, job), self._tell)
        self._counts.close()
        tables = tables_of(captures.cells, sums)
        about = about_now(captures.about, time.monotonic() - began)
        return Findings(about=about, problems=problems, tables=tables)
