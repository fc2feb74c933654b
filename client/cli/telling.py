"""What commands say on standard error of servers and peers, no faster than
`kcast.client.driving.event_log`."""

import asyncio
from collections.abc import Iterable, Mapping
from time import time

from kcast.client.cli.common import say
from kcast.client.cli.times import utc
from kcast.client.driving.event_log import Line, Pace, and_more
from kcast.client.events import HARMLESS, Drop

WAKE_MARGIN_S = 0.05  # event loops wake up a little early


def listed_drops(drops: Mapping[Drop, int], kernel_drops: int) -> str:
    """Returns `reason=count` for each reason by which something was lost; "" if there is none."""
    counts = {str(reason): count for reason, count in drops.items() if reason not in HARMLESS}
    counts["receive-buffer"] = kernel_drops
    return " ".join(f"{reason}={count}" for reason, count in sorted(counts.items()) if count)


class Telling:
    """Says lines of several kinds from within an event loop. What comes too often is said later: the last
    line of each kind, with the number of the others."""

    def __init__(self, command: str, *, with_time: bool = False) -> None:
        self._command = command
        self._with_time = with_time
        self._pace: Pace[str] = Pace()
        self._timer: asyncio.TimerHandle | None = None

    def say(self, text: str) -> None:
        """Says a line that no peer can cause again and again."""
        say(self._command, text, at=utc(time()) if self._with_time else "")

    def tell(self, kind: str, text: str) -> None:
        """Says a line, now or later."""
        self.tell_of(kind, and_more(text))

    def tell_of(self, kind: str, line: Line[str]) -> None:
        """Says what `line` returns when it is time, given the number of lines of its kind left out before."""
        self._say_all(self._pace.put(kind, line, asyncio.get_running_loop().time()))

    def end(self) -> None:
        """Says at once what still waits."""
        self._say_all(self._pace.end())

    def _say_all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.say(text)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self._pace.next_timeout()) is not None:
            self._timer = asyncio.get_running_loop().call_at(at + WAKE_MARGIN_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._say_all(self._pace.due(asyncio.get_running_loop().time()))
