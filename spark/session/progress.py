"""What is shown while Spark works: a bar with tasks on a terminal, a line for each step in a pipe."""

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TextIO

from pyspark.sql import SparkSession

POLL_S = 0.3
PLAIN_EVERY_S = 30.0  # between lines on a step that takes long


class Tasks(NamedTuple):
    """Of what Spark does at the moment."""

    done: int
    total: int


class View(Protocol):
    """What people see."""

    def begin(self, step: str, number: int) -> None:
        """Another step begins, the number-th."""

    def tasks(self, tasks: Tasks) -> None:
        """How far Spark is with it."""

    def close(self) -> None:
        """Nothing more is shown."""


class Progress:
    """Tells on `stream` what is done: call it with each step as it begins. For one thread.

    `steps` is how many there will be, 0 if that is not known. Tasks are told from `watch` on.
    """

    def __init__(self, stream: TextIO, steps: int = 0) -> None:
        self._view: View = TerminalView(stream, steps) if stream.isatty() else PlainView(stream)
        self._number = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unwatch()
        self._view.close()

    def __call__(self, step: str) -> None:
        """The next step begins."""
        self._number += 1
        self._view.begin(step, self._number)

    def watch(self, spark: SparkSession) -> None:
        """Tells of this session's tasks from now on, until `unwatch`."""
        self.unwatch()
        self._ending.clear()
        self._thread = threading.Thread(target=self._poll, args=(spark,), daemon=True)
        self._thread.start()

    def unwatch(self) -> None:
        """Does so no more: to be called before the session ends. Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _poll(self, spark: SparkSession) -> None:
        # What Java tells once the session has ended is no news.
        with suppress(Exception):
            while not self._ending.wait(POLL_S):
                self._view.tasks(active_tasks(spark))


def active_tasks(spark: SparkSession) -> Tasks:
    """Those of all stages that are being worked on."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return Tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


class PlainView:
    """For pipes and logs: a line when a step begins, and now and then while it lasts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = self._said = time.monotonic()
        self._step = ""

    def begin(self, step: str, number: int) -> None:
        """One line, with the time since the beginning."""
        self._step = step
        self._say(step)

    def tasks(self, tasks: Tasks) -> None:
        """A line, if the last one is long ago."""
        if tasks.total and time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._say(f"{self._step}: {tasks.done:,} of {tasks.total:,} tasks")

    def close(self) -> None:
        """Nothing."""

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(f"{self._said - self._began:6.1f} s  {text}", file=self._stream, flush=True)


class TerminalView:
    """For people: one line that changes, and goes at the end."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            *(TextColumn("{task.description}", markup=False), BarColumn(bar_width=24)),
            *(TextColumn("{task.fields[tasks]}"), TimeElapsedColumn()),
            console=Console(file=stream),
            transient=True,
        )
        self._bar = self._bars.add_task("", total=steps or None, tasks="")
        self._bars.start()

    def begin(self, step: str, number: int) -> None:
        """Shows it."""
        self._bars.update(self._bar, description=step, completed=number - 1, tasks="")

    def tasks(self, tasks: Tasks) -> None:
        """Shows them."""
        self._bars.update(self._bar, tasks=f"{tasks.done:,} of {tasks.total:,} tasks" if tasks.total else "")

    def close(self) -> None:
        """Takes the line away."""
        self._bars.stop()
