"""The progress of `kcast load`: bars with live figures on a terminal, lines in a pipe."""

import time
from typing import TYPE_CHECKING, TextIO

from kcast.client.cli.common import count_of
from kcast.loadtest.charts.terminal import Bars
from kcast.loadtest.charts.words import percent_digits, significant
from kcast.loadtest.scenario import Scenario

if TYPE_CHECKING:
    from kcast.loadtest.users.progress import Progress

PLAIN_EVERY_S = 10.0  # between lines of figures in a pipe
LAG_MS_SHOWN = 50.0  # a smaller lag is not shown


class Watcher(Bars):
    """Shows the progress of a run. Use it with `with`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._next_figures = 0.0
        self._users_phase = ""
        self._duration_s = 0.0

    def begin(self, scenario: Scenario, number: int, count: int) -> None:
        """Shows that a scenario begins, number `number` of `count`."""
        self._users_phase, self._duration_s = "", scenario.duration_s
        if self.are_drawn:
            self.add(f"{number}/{count} {scenario.name}", scenario.duration_s)
        else:
            self.say(f"{scenario.name} ({number} of {count}): {described(scenario)}")

    def phase(self, text: str) -> None:
        """Shows what is being done for the scenario; not in a log, which it would only fill."""
        if self.are_drawn:
            self.update(text)

    def progress(self, progress: "Progress") -> None:
        """Shows the progress of its users, about once a second; in a log when the load begins and ends, and
        every ten seconds."""
        phase, now = progress["phase"], time.monotonic()
        if self.are_drawn:
            done = min(max(0.0, progress["t_s"]), self._duration_s) if progress["t0_ns"] else 0.0
            self.update(figures(progress), done)
        elif phase not in ("starting", "waiting", "done") and (
            phase != self._users_phase or now >= self._next_figures
        ):
            begins = phase == "running" != self._users_phase
            self._users_phase, self._next_figures = phase, now + PLAIN_EVERY_S
            ready = f"{count_of(progress['users'], 'user')} ready, the load begins"
            self.say("  " + (ready if begins else figures(progress)))

    def end(self, text: str) -> None:
        """Shows the result of the scenario, one line."""
        if self.are_drawn:
            self.update(text, self._duration_s)
        else:
            self.say(f"  {text}")


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
