"""A trial: a session gets an open-loop load for a moment, and it is told what came of it."""

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.benchmarks.peers.machine import cpu_s
from tests.benchmarks.peers.pacing import Schedule
from tests.benchmarks.peers.session import Poller, Session

GRACE_S = 0.05  # after the last message: a copy that takes longer is not delivered
QUIET_S = 0.25  # without a copy: the rest is lost
DRAIN_S_MAX = 5.0
SAMPLES_PER_S = 20_000


@dataclass(frozen=True)
class Trial:
    """What came of a load. `due` are the copies of all messages that were due, sent or not."""

    due: int
    delivered: int
    copies: int
    seconds: float
    server_cpu_s: float
    load_cpu_s: float
    elapsed_s: float
    latencies_us: "array[int]" = field(repr=False)

    @property
    def share_delivered(self) -> float:
        """The share of copies that came within the schedule, and a grace."""
        return self.delivered / self.due if self.due else 1.0

    @property
    def delivered_per_s(self) -> float:
        return self.delivered / self.seconds

    @property
    def server_us(self) -> float | None:
        """The server's CPU time for each copy that came, late ones too."""
        return self.server_cpu_s / self.copies * 1e6 if self.copies else None

    @property
    def load_us(self) -> float | None:
        return self.load_cpu_s / self.copies * 1e6 if self.copies else None


def run(
    session: Session,
    poller: Poller,
    process_ids: list[int],
    schedule: Schedule,
    fan_out: int,
    random: Random,
    clock: Callable[[], float] = time.monotonic,
) -> Trial:
    """Loads the session by the schedule; returns when all copies have come, or no more do."""
    session.ring.sample(SAMPLES_PER_S / max(1.0, schedule.rate * fan_out), random)
    arrivals = session.arrivals
    arrivals.latencies_us = array("q")
    copies_before, base = arrivals.copies, session.position
    start_cpu_s, start_load_s = cpu_s(process_ids), time.process_time()
    start_s = clock() + schedule.tick_s
    start_us = (start_s - arrivals.epoch_s) * 1e6
    end_s = start_s + schedule.seconds

    def due_us(message: int) -> int:
        return int(start_us + schedule.due_s(message - base) * 1e6)

    while (now_s := clock()) < end_s and not session.broken:
        tick = int((now_s - start_s) // schedule.tick_s)
        due = base + schedule.due(tick) if tick >= 0 else base
        before = session.position
        if before < due:
            session.send(due, due_us)
        is_behind = before < session.position < due
        poller.turn(0.0 if is_behind else start_s + (tick + 1) * schedule.tick_s - clock())
    while clock() < end_s + GRACE_S and not session.broken:
        poller.turn(end_s + GRACE_S - clock())
    delivered = arrivals.copies - copies_before
    _drain(session, poller, lambda: (session.position - base) * fan_out + copies_before, clock)
    return Trial(
        due=schedule.message_count * fan_out,
        delivered=delivered,
        copies=arrivals.copies - copies_before,
        seconds=schedule.seconds,
        server_cpu_s=cpu_s(process_ids) - start_cpu_s,
        load_cpu_s=time.process_time() - start_load_s,
        elapsed_s=clock() - start_s,
        latencies_us=arrivals.latencies_us,
    )


def _drain(
    session: Session, poller: Poller, awaited: Callable[[], int], clock: Callable[[], float]
) -> None:
    """Takes what still comes, so that the next trial begins with nothing on its way."""
    deadline_s, quiet_at_s = clock() + DRAIN_S_MAX, clock() + QUIET_S
    while not session.broken and (now_s := clock()) < min(deadline_s, quiet_at_s):
        is_whole = session.settle()
        if is_whole and session.arrivals.copies >= awaited():
            return
        if poller.turn(min(quiet_at_s - now_s, 0.02)):
            quiet_at_s = clock() + QUIET_S
    if not session.broken and (not session.settle() or clock() >= deadline_s):
        session.broken = f"it is still busy {DRAIN_S_MAX:g} s later"
