"""Progress while Spark works: a bar with tasks on a terminal, a line for each step in a pipe."""

import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple, Self, TextIO

from pyspark.sql import SparkSession

from kcast.client.cli.text import escaped
from kcast.loadtest.charts.terminal import can_redraw

POLL_S = 0.3
PLAIN_EVERY_S = 30.0  # between lines on a step that takes long


class Tasks(NamedTuple):
    """Spark's current task counts."""

    done: int
    total: int


class StepProgress:
    """Shows on `stream` what is being done: call it with each step as it begins, from one thread.

    From `watch` on, Spark's tasks are shown, too.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._step = stream, ""
        self._began = self._said = time.monotonic()
        self._bars: Any = _bars(stream) if can_redraw(stream) else None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unwatch()
        if self._bars is not None:
            self._bars.stop()  # which removes the line

    def __call__(self, step: str) -> None:
        """Shows the next step."""
        self._step = step
        if self._bars is None:
            self._say(step)
        else:
            self._bars.update(0, description=step, tasks="")

    def watch(self, spark: SparkSession) -> None:
        """Shows this session's tasks until `unwatch`."""
        self.unwatch()
        self._ending.clear()
        self._thread = threading.Thread(target=self._poll, args=(spark,), daemon=True)
        self._thread.start()

    def unwatch(self) -> None:
        """Stops showing tasks; must be called before the session ends. Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _poll(self, spark: SparkSession) -> None:
        # Java's errors once the session has ended tell nothing new.
        with suppress(Exception):
            while not self._ending.wait(POLL_S):
                tasks = active_tasks(spark)
                words = f"{tasks.done:,} of {tasks.total:,} tasks" if tasks.total else ""
                if self._bars is not None:
                    self._bars.update(0, tasks=words)
                elif words and time.monotonic() - self._said >= PLAIN_EVERY_S:
                    self._say(f"{self._step}: {words}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"{self._said - self._began:6.1f} s  {escaped(text)}", file=self._stream, flush=True)


def active_tasks(spark: SparkSession) -> Tasks:
    """The tasks of all active stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


def _bars(stream: TextIO) -> Any:
    """A line on a terminal that changes, and is removed at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)
    tasks = TextColumn("{task.fields[tasks]}"), TimeElapsedColumn()
    bars = Progress(*columns, *tasks, console=Console(file=stream), transient=True)
    bars.add_task("", total=None, tasks="")
    bars.start()
    return bars
