"""What commands say on standard error of servers and peers, at a bounded rate (`kcast.client.pace`)."""

import asyncio
from time import time

from kcast.client.cli.common import say
from kcast.client.cli.times import utc
from kcast.client.pace import INTERVAL_S, Pace, and_more


class Telling:
    """Says lines of several kinds from within an event loop. Of a kind that comes too often, the last line is
    said a while later, with the number of the others."""

    def __init__(self, command: str, *, with_time: bool = False) -> None:
        self._command = command
        self._with_time = with_time
        self._pace = Pace()
        self._latest: dict[str, str] = {}  # lines that were withheld
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def say(self, text: str) -> None:
        """Says a line that no peer can cause again and again."""
        say(self._command, text, at=utc(time()) if self._with_time else "")

    def tell(self, kind: str, text: str) -> bool:
        """Says a line, now or later; returns whether that was now."""
        more = self._pace.admit(kind, asyncio.get_running_loop().time())
        if more is None:
            self._latest[kind] = text
            if kind not in self._timers:
                self._tell_later(kind)
            return False
        self._forget(kind)
        self.say(text + and_more(more))
        return True

    def end(self) -> None:
        """Says at once what was withheld."""
        for kind, text in list(self._latest.items()):
            self._forget(kind)
            self.say(text + and_more(self._pace.withheld(kind) - 1))

    def _tell_later(self, kind: str) -> None:
        # A little later than it may be said, since event loops wake up a little early.
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(1.05 * INTERVAL_S, self._tell_withheld, kind)

    def _tell_withheld(self, kind: str) -> None:
        more = self._pace.admit(kind, asyncio.get_running_loop().time())
        if more is None:
            self._tell_later(kind)
            return
        text = self._latest[kind]
        self._forget(kind)
        self.say(text + and_more(more - 1))

    def _forget(self, kind: str) -> None:
        self._latest.pop(kind, None)
        timer = self._timers.pop(kind, None)
        if timer is not None:
            timer.cancel()
