"""Captures and what an analysis finds in them, for programs and notebooks.

    from kcast.spark import open_run

    with open_run("run") as run:
        run.sql("SELECT scenario, count(*) AS copies FROM deliver GROUP BY scenario").show()
        print(run.found("reliability")[["scenario", "share", "low", "high"]])

Tables are Spark's, since they may have millions of rows. What an analysis finds has few, and comes as pandas
frames.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.charts.svg import Svg
from kcast.spark.analysis import analyse, judging
from kcast.spark.capture.captures import Captures, open_captures
from kcast.spark.capture.reading import damage_named
from kcast.spark.findings.findings import Findings
from kcast.spark.judging.named_pairs import mapped, missed, named_pairs
from kcast.spark.report.figures import figure
from kcast.spark.request import MASTER_DEFAULT, MEMORY_DEFAULT
from kcast.spark.session.start import start

if TYPE_CHECKING:
    import pandas as pd


_MENTIONS_PAIRS = re.compile(r"\b(pairs|misses)\b")
"""Queries that may use these views: what they need is read and sent to the workers only then."""


def open_run(
    *paths: str,
    only: Sequence[str] = (),
    spark: SparkSession | None = None,
    master: str = MASTER_DEFAULT,
    memory: str = MEMORY_DEFAULT,
) -> "OpenRun":
    """Checks captures, as `kcast analyse` does, and opens them together.

    - `paths`: folders of captures, or their run.json, on any file system that Spark knows.
    - `only`: names of scenarios, in which * matches anything; without any, all are opened.
    - `spark`: the session to use, which stays as it is. Without one, one is started on `master`, whose
      driver gets `memory`; it ends when the run is closed. A process has one session at a time.

    Scenarios that cannot be analysed are left out: `OpenRun.problems` says which, and why. Raises
    CaptureError if none is left, JavaMissing, and SparkFailed.
    """
    with ExitStack() as stack:
        session = spark or stack.enter_context(start(master, app="kcast notebook", memory=memory))
        captures = open_captures(session, paths, only=only)
        return OpenRun(captures, stack.pop_all())


class OpenRun:
    """Some captures, opened by `open_run`; use it with `with`, or `close` it."""

    def __init__(self, captures: Captures, resources: ExitStack) -> None:
        self._captures = captures
        self._tables = captures.tables
        self._resources = resources
        self._names = {cell.number: cell.scenario.name for cell in captures.cells}
        self._runs = {cell.number: cell.run for cell in captures.cells}

    def __enter__(self) -> "OpenRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session, if `open_run` has started it. Idempotent."""
        self._resources.close()

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self._captures.spark

    @property
    def scenarios(self) -> list[str]:
        """The names of the scenarios that can be analysed, in the order of the captures."""
        return list(self._names.values())

    @property
    def problems(self) -> Sequence[str]:
        """What was left out, and why: a sentence each."""
        return self._captures.problems

    def table(self, name: str) -> DataFrame:
        """Returns a table of all scenarios, with the columns of docs/capture.md behind `run` and `scenario`.

        Raises KeyError, with the names that there are.
        """
        if name not in TABLES:
            raise KeyError(f"there is no table {name}, only {', '.join(TABLES)}")
        rows = self._tables[name]
        named = [mapped("cell", self._runs).alias("run"), mapped("cell", self._names).alias("scenario")]
        return rows.select(*named, *(column for column in rows.columns if column != "cell"))

    @cached_property
    def pairs(self) -> DataFrame:
        """What became of each message and subscriber: a row for each, with the columns of docs/analysis.md.

        Messages are judged whenever the frame is used: `cache` it, or write it, to use it often.
        """
        judge = self._resources.enter_context(judging(self._captures))
        return named_pairs(judge.pairs(), self._captures.cells)

    @property
    def misses(self) -> DataFrame:
        """The rows of `pairs` that were missed."""
        return missed(self.pairs)

    def sql(self, query: str) -> DataFrame:
        """Returns what an SQL query finds, in which each table is a view of its name, as are `pairs` and
        `misses`."""
        for name in TABLES:
            self.table(name).createOrReplaceTempView(name)
        if _MENTIONS_PAIRS.search(query):
            self.pairs.createOrReplaceTempView("pairs")
            self.misses.createOrReplaceTempView("misses")
        return self.spark.sql(query)

    @cached_property
    def findings(self) -> Findings:
        """All that `kcast analyse` finds. The first use takes as long as that does."""
        with damage_named():
            return analyse(self.spark, self._captures)

    def figure(self, name: str) -> Svg:
        """Returns one of the figures delivery, latency, causes and over_time of `findings`: SVG, as a string
        that notebooks show as a drawing.

        Raises KeyError, with the names that there are; and ValueError, if there is nothing to draw.
        """
        return figure(self.findings, name)

    def found(self, name: str) -> "pd.DataFrame":
        """Returns a table of the findings (docs/analysis.md), with `run` and `scenario` in place of `cell`.

        Raises KeyError, with the names that there are.
        """
        import pandas as pd  # takes as long as all else here

        tables = self.findings.tables
        if name not in tables:
            raise KeyError(f"nothing is found of the name {name}, only {', '.join(tables)}")
        frame = pd.DataFrame(tables[name])
        if "cell" in frame and "scenario" not in frame:
            frame.insert(0, "run", frame["cell"].map(self._runs))
            frame.insert(1, "scenario", frame["cell"].map(self._names))
        return frame.drop(columns="cell", errors="ignore")
