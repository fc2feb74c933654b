"""Progress while Spark works: a bar with tasks on a terminal, a line for each step in a pipe."""

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TextIO

from pyspark.sql import SparkSession

from kcast.client.cli.text import escaped
from kcast.loadtest.charts.terminal import can_redraw

POLL_S = 0.3
PLAIN_EVERY_S = 30.0  # between lines on a step that takes long


class Tasks(NamedTuple):
    """Spark's current task counts."""

    done: int
    total: int


class Display(Protocol):
    """What people see of the progress."""

    def begin(self, step: str) -> None:
        """Shows the next step."""

    def tasks(self, tasks: Tasks) -> None:
        """Shows Spark's tasks of the current step."""

    def close(self) -> None:
        """Shows nothing more."""


class StepProgress:
    """Shows on `stream` what is being done: call it with each step as it begins, from one thread.

    From `watch` on, Spark's tasks are shown, too.
    """

    def __init__(self, stream: TextIO) -> None:
        self._display: Display = TerminalDisplay(stream) if can_redraw(stream) else PlainDisplay(stream)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unwatch()
        self._display.close()

    def __call__(self, step: str) -> None:
        """Shows the next step."""
        self._display.begin(step)

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
                self._display.tasks(active_tasks(spark))


def active_tasks(spark: SparkSession) -> Tasks:
    """The tasks of all active stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


class PlainDisplay:
    """The view for pipes and logs: a line when a step begins, one every `PLAIN_EVERY_S` while it lasts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = self._said = time.monotonic()
        self._step = ""

    def begin(self, step: str) -> None:
        """Prints a line, with the time since the beginning."""
        self._step = step
        self._say(step)

    def tasks(self, tasks: Tasks) -> None:
        """Prints a line if the last one is long ago."""
        if tasks.total and time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._say(f"{self._step}: {tasks.done:,} of {tasks.total:,} tasks")

    def close(self) -> None:
        """Does nothing."""

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"{self._said - self._began:6.1f} s  {escaped(text)}", file=self._stream, flush=True)


class TerminalDisplay:
    """The view for terminals: one line that changes, and is removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            *(TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)),
            *(TextColumn("{task.fields[tasks]}"), TimeElapsedColumn()),
            console=Console(file=stream),
            transient=True,
        )
        self._bar = self._bars.add_task("", total=None, tasks="")
        self._bars.start()

    def begin(self, step: str) -> None:
        """Shows the step."""
        self._bars.update(self._bar, description=step, tasks="")

    def tasks(self, tasks: Tasks) -> None:
        """Shows the tasks."""
        self._bars.update(self._bar, tasks=f"{tasks.done:,} of {tasks.total:,} tasks" if tasks.total else "")

    def close(self) -> None:
        """Removes the line."""
        self._bars.stop()
