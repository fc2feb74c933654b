"""An open-loop schedule: what is due when, whatever became of what was due before."""

from dataclasses import dataclass
from math import ceil

TICK_S = 0.0005


@dataclass(frozen=True)
class Schedule:
    """Messages at `rate` a second for `seconds`; those of a tick are due together, at its beginning.

    A load that is late is not excused: a message's latency counts from when it was due.
    """

    rate: float
    seconds: float
    tick_s: float = TICK_S

    @property
    def tick_count(self) -> int:
        return max(1, round(self.seconds / self.tick_s))

    @property
    def message_count(self) -> int:
        """Those of all ticks."""
        return self.due(self.tick_count - 1)

    def due(self, tick: int) -> int:
        """Returns how many messages are due in the ticks from 0 to this one."""
        return int(self.rate * self.tick_s * (min(tick, self.tick_count - 1) + 1))

    def due_s(self, message: int) -> float:
        """Returns when a message (the first is 0) is due, in seconds after the beginning."""
        per_tick = self.rate * self.tick_s
        tick = max(0, ceil((message + 1) / per_tick) - 1)
        # Division and multiplication need not round alike.
        while self.due(tick) <= message:
            tick += 1
        while tick and self.due(tick - 1) > message:
            tick -= 1
        return tick * self.tick_s
