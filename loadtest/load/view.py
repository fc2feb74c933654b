"""The progress of `kcast load`: bars with live figures on a terminal, lines in a pipe."""

import time
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from kcast.client.cli.common import count_of
from kcast.client.cli.text import escaped
from kcast.loadtest.charts.words import percent_digits, significant
from kcast.loadtest.scenario import Scenario

if TYPE_CHECKING:
    from rich.progress import TaskID

    from kcast.loadtest.users.progress import Progress

PLAIN_EVERY_S = 10.0  # between lines of figures in a pipe
LAG_MS_SHOWN = 50.0  # a smaller lag is not shown


class Watcher(Protocol):
    """Shows the progress of a run."""

    def say(self, text: str) -> None:
        """Shows a message of one line."""

    def begin(self, scenario: Scenario, number: int, count: int) -> None:
        """Shows that a scenario begins, number `number` of `count`."""

    def phase(self, text: str) -> None:
        """Shows what is being done for the scenario."""

    def progress(self, progress: "Progress") -> None:
        """Shows the progress of its users; called about once a second."""

    def end(self, text: str) -> None:
        """Shows the result of the scenario, one line."""


class PlainWatcher:
    """Prints lines: for pipes and logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._next_figures = 0.0
        self._users_phase = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Prints a line, with the time since the beginning."""
        print(f"{time.monotonic() - self._began:6.1f} s  {escaped(text)}", file=self._stream, flush=True)

    def begin(self, scenario: Scenario, number: int, count: int) -> None:
        """Prints a line about the scenario."""
        self._users_phase = ""
        self.say(f"{scenario.name} ({number} of {count}): {described(scenario)}")

    def phase(self, text: str) -> None:
        """Does nothing: phases are short, and would only fill a log."""

    def progress(self, progress: "Progress") -> None:
        """Prints a line when the load begins and ends, and every ten seconds."""
        now = time.monotonic()
        if progress["phase"] in ("starting", "waiting", "done"):
            return
        if progress["phase"] != self._users_phase or now >= self._next_figures:
            begins = progress["phase"] == "running" != self._users_phase
            self._users_phase = progress["phase"]
            self._next_figures = now + PLAIN_EVERY_S
            ready = f"{count_of(progress['users'], 'user')} ready, the load begins"
            self.say("  " + (ready if begins else figures(progress)))

    def end(self, text: str) -> None:
        """Prints a line."""
        self.say(f"  {text}")


class LiveWatcher(PlainWatcher):
    """Shows a bar with live figures for each scenario, on terminals. Use it with `with`."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__(stream)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=stream, highlight=False),
        )
        self._task: TaskID | None = None
        self._duration_s = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self._bars.console.print(escaped(text), markup=False)

    def begin(self, scenario: Scenario, number: int, count: int) -> None:
        """Adds a bar."""
        self._duration_s = scenario.duration_s
        self._task = self._bars.add_task(
            f"{number}/{count} {escaped(scenario.name)}", total=scenario.duration_s, figures=""
        )

    def phase(self, text: str) -> None:
        """Shows the phase beside the bar."""
        assert self._task is not None
        self._bars.update(self._task, figures=escaped(text))

    def progress(self, progress: "Progress") -> None:
        """Updates the bar and its figures."""
        assert self._task is not None
        done = min(max(0.0, progress["t_s"]), self._duration_s) if progress["t0_ns"] else 0.0
        self._bars.update(self._task, completed=done, figures=figures(progress))

    def end(self, text: str) -> None:
        """Fills the bar."""
        assert self._task is not None
        self._bars.update(self._task, completed=self._duration_s, figures=escaped(text))


def described(scenario: Scenario) -> str:
    """Describes a scenario in one line."""
    words = [
        f"{count_of(scenario.servers, 'server')}, policy {scenario.policy}",
        f"{scenario.publishing_users * scenario.rate:g} messages/s for {scenario.duration_s:g} s",
        f"{count_of(scenario.subscribing_users, 'subscriber')}",
    ]
    return ", ".join(words)


def figures(progress: "Progress") -> str:
    """Formats the progress of users in one line."""
    if progress["phase"] in ("starting", "waiting"):
        return f"{progress['ready']} of {count_of(progress['users'], 'user')} ready"
    settled = progress["delivered"] + progress["missed"]
    share = f"{percent_digits(progress['delivered'] / settled)} %" if settled else "-"
    words = [
        f"{progress['published']:,} published",
        f"delivered {share}",
        f"p50 {significant(progress['latency_p50_ms'])} ms",
        f"p99 {significant(progress['latency_p99_ms'])} ms",
    ]
    if progress["lag_max_ms"] >= LAG_MS_SHOWN:
        words.append(f"lag {significant(progress['lag_max_ms'])} ms")
    if progress["overflows"]:
        words.append(f"{progress['overflows']:,} overflows")
    if progress["rows_lost"]:
        words.append(f"{progress['rows_lost']:,} rows lost")
    return ", ".join(words)
