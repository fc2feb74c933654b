"""Analyses a capture while it grows, by watching its folder.

Again and again, a second apart, the folder is listed, and what is new there is used twice:

- *While a scenario is being run*, slices of time that are past their deadline, of which nothing is still to
  be written, are counted, and merged with the slices before. Some things a capture tells
  only when a scenario ends: what servers took in (their taps), real outages, and until when a subscriber
  should have received. Until then, every subscriber that asks for a lease is assumed to want all messages of
  the topic; and a miss has no cause yet unless its sendings were cut off or lost by plan. These figures are
  only shown.
- *When a scenario has ended*, it is counted whole, and merged with the scenarios before. If it is then run
  again for longer, all are counted anew. When the run is over, these counts are those of `analysis.analyse`,
  and so are all tables.

Memory hardly grows with the capture: counts are on disk, and of the running scenario the names of its files
are remembered, and what is in the latest ones. Nothing outlives the process: one that is started again counts
all that is there anew, which takes as long as `kcast analyse` does.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kcast.loadtest.capture import manifest
from kcast.loadtest.scenario import Scenario
from kcast.spark.analysis import Tell, about_now, judging, tables_of
from kcast.spark.capture.captures import CaptureError, open_captures
from kcast.spark.capture.checks import Run, open_run, selected
from kcast.spark.capture.reading import damage_named
from kcast.spark.findings.findings import Findings
from kcast.spark.session.files import Files, shown
from kcast.spark.session.partitions import divide
from kcast.spark.watch.running_counts import RunningCounts
from kcast.spark.watch.running_scenario import ALIVE, RunningScenario

POLL_S = 1.0
QUIET_MAX_S = 600.0
"""A run of another machine that has written nothing for so long counts as ended."""


def watch(
    spark: SparkSession, path: str, tell: Tell, *, only: tuple[str, ...] = (), poll_s: float = POLL_S
) -> Findings:
    """Watches the capture at `path` to its end; the findings are those of `analyse` on what is there then.

    `tell` is called with the figures so far. Raises CaptureError if there is no capture, nothing to analyse,
    or a file turns out to be damaged.
    """
    began = time.monotonic()
    divide(spark, 0)
    watching = _Watching(spark, path, tell, only)
    tell("watching: figures come once some messages are past their deadline")
    while not watching.look():
        time.sleep(poll_s)
    return watching.findings(began)


class _Watching:
    """What is known of a run that is watched."""

    def __init__(self, spark: SparkSession, path: str, tell: Tell, only: tuple[str, ...]) -> None:
        self._spark, self._path, self._tell, self._only = spark, path, tell, only
        self._files = Files(spark)
        self._counts = RunningCounts()
        self._running: RunningScenario | None = None
        self._counted: dict[str, object] = {}  # scenarios by name: when what was counted of them was started
        self._seen: object = None  # of all scenarios, whether they are wanted or not
        self._changed_at = time.monotonic()
        self._run = open_run(self._files, path)
        self._selected = selected(self._run.planned, only)

    def look(self) -> bool:
        """Counts what has ended, and another slice of the scenario that is being run; returns whether the run
        is over.

        Raises CaptureError if a file is damaged.
        """
        self._run = open_run(self._files, self._path)
        begun = self._begun()
        is_over = not self._may_grow(begun)
        if self._is_run_again(begun):
            # Counts are merged, and cannot be taken apart.
            self._counts.close()
            self._counted.clear()
        wanted = {n: info for n, info in begun.items() if n in self._selected and n not in self._counted}
        if ended := {n: info.get("started") for n, info in wanted.items() if info["status"] == "complete"}:
            self._count_whole(ended)
        running = next((name for name, info in wanted.items() if _may_be_running(info)), None)
        started = None if running is None else wanted[running].get("started")
        if self._running is not None and (is_over or started != self._running.started):
            self._running.close()
            self._running = None
        if running is not None and not is_over:
            self._count_slice(running, started)
        return is_over

    def _begun(self) -> dict[str, dict[str, Any]]:
        """What scenario.json tells of each scenario that was begun, by its name."""
        found = {}
        for scenario in self._run.planned:
            if manifest.scenario_folder(scenario.name) in self._run.begun:
                path = f"{_folder(self._run, scenario.name)}/{manifest.SCENARIO_FILE}"
                with suppress(FileNotFoundError):  # it is moved aside, and run again
                    found[scenario.name] = manifest.parse(self._files.read(path), shown(path))
        return found

    def _is_run_again(self, begun: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a scenario that was counted is run again, or about to be, as `--until-width` does."""
        return any(begun.get(name, {}).get("started") != started for name, started in self._counted.items())

    def _may_grow(self, begun: Mapping[str, Mapping[str, Any]]) -> bool:
        info = self._run.info
        if info["status"] != "running":
            return False
        if manifest.is_of_this_machine(info):
            return manifest.is_running(info)
        # Whether its process still exists is not known: it is taken to, as long as anything is written.
        alive = {
            name: self._files.names(f"{_folder(self._run, name)}/{manifest.table_folder(ALIVE)}")
            for name, each in begun.items()
            if each["status"] == "running"
        }
        if (seen := (begun, alive)) != self._seen:
            self._seen, self._changed_at = seen, time.monotonic()
        return time.monotonic() - self._changed_at < QUIET_MAX_S

    def _count_slice(self, name: str, started: object) -> None:
        """Counts another slice of the scenario that is being run, if there are new files of it."""
        if self._running is None:
            number, scenario = self._planned(name)
            folder = _folder(self._run, name)
            self._running = RunningScenario(
                self._spark, self._files, self._run.run_id, number, scenario, folder, started
            )
        try:
            with damage_named():
                if self._running.look() and self._running.count_slice():
                    self._tell(self._running.text())
        except CaptureError:
            if self._begun().get(name, {}).get("started") == started:
                raise
            # Else its files were moved aside, and it is run again.

    def _planned(self, name: str) -> tuple[int, Scenario]:
        return next(
            (number, scenario) for number, scenario in enumerate(self._run.planned) if scenario.name == name
        )

    def _count_whole(self, ended: Mapping[str, object]) -> None:
        """Counts scenarios that have ended, by name with when they were started."""
        names = list(ended)
        self._counted.update(ended)
        has, is_counted = ("has", "it is counted") if len(names) == 1 else ("have", "they are counted")
        self._tell(f"{', '.join(names)} {has} ended: {is_counted} as a whole")
        try:
            captures = open_captures(self._spark, [self._path], only=names)
        except CaptureError:
            return  # `findings` names all that is left out
        try:
            with judging(captures) as judge:
                self._counts.add(judge.counts())
        except (CaptureError, OSError, PySparkException, Py4JJavaError):
            if not self._is_run_again(self._begun()):
                raise
            # Else files were moved aside meanwhile, and all is counted anew.

    def findings(self, began: float) -> Findings:
        """The findings when the run is over: those of `analyse`."""
        captures = open_captures(self._spark, [self._path], only=self._only)
        problems = captures.problems
        status = manifest.status(self._run.info)
        if status != "complete":
            reason = self._run.info.get("reason")
            why = f"; {reason}" if reason else ""
            problems = (f"{shown(self._run.path)}: the run has ended, and is {status}{why}", *problems)
        self._tell("adding up the counts")
        with judging(captures) as judge:
            sums = judge.sums(self._counts.merged(self._spark))
        self._counts.close()
        tables = tables_of(captures.cells, sums)
        about = about_now(captures.about, time.monotonic() - began)
        return Findings(about=about, problems=problems, tables=tables)


def _may_be_running(info: Mapping[str, Any]) -> bool:
    """Whether a scenario is being run; of another machine it is not known whether its process has ended."""
    is_known = manifest.is_of_this_machine(info)
    return info["status"] == "running" and (manifest.is_running(info) or not is_known)


def _folder(run: Run, name: str) -> str:
    return f"{run.path}/{manifest.run_folder(run.run_id)}/{manifest.scenario_folder(name)}"
