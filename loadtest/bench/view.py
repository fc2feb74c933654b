"""The progress of a benchmark on standard error: one line that changes on a terminal, lines in a log."""

import os
import sys
from contextlib import suppress
from time import monotonic
from typing import TextIO

from kcast.client.cli.common import say
from kcast.loadtest.bench.course import Progress
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.charts.terminal import can_redraw

NAME = "bench"
LOG_INTERVAL_S = 5.0  # between lines in a log
_CLEAR = "\r\x1b[K"
_COLUMNS_DEFAULT = 80


class ProgressLine:
    """Shows the progress of a plan."""

    def __init__(self, plan: BenchPlan, stream: TextIO | None = None) -> None:
        self._plan = plan
        self._stream = stream or sys.stderr
        self._is_drawn = self._stream is not None and can_redraw(self._stream)
        self._shown = ""
        self._next_line_at = monotonic() + LOG_INTERVAL_S

    def say(self, text: str) -> None:
        """Prints a line about something that has been done."""
        self.clear()
        say(NAME, text)

    def progress(self, progress: Progress) -> None:
        """Shows how far it has come."""
        text = figures(self._plan, progress)
        if not self._is_drawn:
            if monotonic() >= self._next_line_at:
                self._next_line_at = monotonic() + LOG_INTERVAL_S
                say(NAME, text)
        elif text != self._shown:
            self._write(f"{_CLEAR}{text[: self._columns() - 1]}")
            self._shown = text

    def clear(self) -> None:
        """Takes the line away, where one is drawn."""
        if self._shown:
            self._write(_CLEAR)
            self._shown = ""

    def _columns(self) -> int:
        """The width of the terminal: a line that does not fit could not be taken away."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS_DEFAULT
        except (OSError, ValueError):
            return _COLUMNS_DEFAULT

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def counted(number: int, noun: str) -> str:
    """Returns `1 message`, `20,000 messages`."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def figures(plan: BenchPlan, progress: Progress) -> str:
    """Returns the progress in one line."""
    words = [f"{max(0.0, progress.seconds):.1f} s"]
    if plan.publishes:
        of = "" if plan.count is None else f" of {plan.count:,}"
        words.append(f"{progress.published:,}{of} published")
        if progress.unheard:
            words.append(f"{progress.unheard:,} without a receipt")
    if plan.subscribes:
        if plan.kind == "sub" and not progress.delivered:
            words.append("nothing has come yet")
        else:
            words.append(f"{progress.delivered:,} delivered")
        # What had no receipt is not missed.
        missing = progress.missing - progress.unheard * plan.subscribers
        if missing > 0:
            words.append(f"{missing:,} missing")
    return ", ".join(words)
