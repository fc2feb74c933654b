"""Progress: a bar for each step on a terminal, lines elsewhere."""

import os
import time
from typing import Any, Self, TextIO

from kcast.client.cli.text import escaped


def can_redraw(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal on which a line can change: not one that calls itself dumb."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


class Bars:
    """Shows how a run goes, in a `with` statement. `are_drawn` says whether there are bars."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._stream = stream
        self._began = time.monotonic()
        self.are_drawn = can_redraw(stream)
        self._bars = Progress(
            TextColumn("{task.description:10}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=stream, highlight=False),
            disable=not self.are_drawn,
        )
        self._task: Any = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Prints a line, with the seconds since the beginning; above the bars, if there are any."""
        line = f"{time.monotonic() - self._began:5.1f} s  {escaped(text)}"
        if self.are_drawn:
            self._bars.console.print(line, markup=False)
        else:
            print(line, file=self._stream, flush=True)

    def add(self, name: str, total: float, figures: str = "") -> None:
        """Begins a bar below the others."""
        self._task = self._bars.add_task(escaped(name), total=total, figures=figures)

    def update(self, figures: str, completed: float | None = None) -> None:
        """Sets the figures beside the last bar, and how far it is."""
        self._bars.update(self._task, completed=completed, figures=escaped(figures))
