"""A trial: sessions get an open-loop load for a moment, and it is told what came of it."""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from bench.peers.machine import cpu_s
from bench.peers.pacing import Schedule
from bench.peers.session import Poller, Session

# After the last message: a copy that takes longer is not delivered. A message to many takes a while itself.
GRACE_S, GRACE_S_PER_COPY = 0.05, 1e-5
QUIET_S = 0.25  # without a copy: the rest is lost
DRAIN_S_MAX = 1.5
SAMPLED_COPIES_PER_S = 20_000  # more would cost the load too much
SAMPLED_MESSAGES_MIN = 30

Clock = Callable[[], float]


@dataclass(frozen=True)
class Trial:
    """What came of a load. `due` are the copies of all messages that were due, sent or not.

    `in_time` came before the end of the schedule, `delivered` before the end of the grace after it.
    `quiet_us` are latencies on a topic of its own, with little traffic.
    """

    due: int
    in_time: int
    delivered: int
    copies: int
    seconds: float
    server_cpu_s: float
    load_cpu_s: float
    elapsed_s: float
    latencies_us: Sequence[int] = field(repr=False)
    quiet_us: Sequence[int] = field(repr=False, default=())

    @property
    def share_delivered(self) -> float:
        """The share of copies that came within the schedule, and a grace."""
        return self.delivered / self.due if self.due else 1.0

    @property
    def copies_per_s(self) -> float:
        """Copies a second that came in time."""
        return self.in_time / self.seconds

    @property
    def server_us(self) -> float | None:
        """The server's CPU time for each copy that came, late ones too."""
        return self.server_cpu_s / self.copies * 1e6 if self.copies else None

    @property
    def load_us(self) -> float | None:
        """The load's own CPU time for each copy that came."""
        return self.load_cpu_s / self.copies * 1e6 if self.copies else None


class Lane:
    """A session with its schedule, in a trial that begins at `start_s`."""

    def __init__(self, session: Session, schedule: Schedule, fan_out: int, start_s: float) -> None:
        self.session = session
        self.schedule = schedule
        self._fan_out = fan_out
        self._base = session.position
        self._copies_before = session.arrivals.copies
        self._start_us = (start_s - session.arrivals.epoch_s) * 1e6
        session.arrivals.latencies_us = array("q")

    def _due_us(self, message: int) -> int:
        return int(self._start_us + self.schedule.due_s(message - self._base) * 1e6)

    def send(self, tick: int) -> bool:
        """Sends what is due by this tick, or a part of it; whether to go on at once with the rest."""
        due = self._base + self.schedule.due(tick)
        before = self.session.position
        if before >= due:
            return False
        self.session.send(due, self._due_us)
        return before < self.session.position < due

    @property
    def copies(self) -> int:
        """Those that have come in this trial."""
        return self.session.arrivals.copies - self._copies_before

    @property
    def due(self) -> int:
        """The copies of all messages of the schedule."""
        return self.schedule.message_count * self._fan_out

    @property
    def is_done(self) -> bool:
        """Whether all messages of the schedule have been sent, and all copies of these have come."""
        return self.copies >= self.due

    @property
    def awaited(self) -> int:
        """The copies of all messages that have been sent."""
        return (self.session.position - self._base) * self._fan_out


def sampled_share(schedule: Schedule, fan_out: int) -> float:
    """Returns what share of messages tells when it was due."""
    messages = max(1, schedule.message_count)
    copies_per_s = messages * fan_out / schedule.seconds
    return max(SAMPLED_COPIES_PER_S / copies_per_s, SAMPLED_MESSAGES_MIN / messages)


def run(
    sessions: Sequence[tuple[Session, Schedule, int]],
    poller: Poller,
    process_ids: Sequence[int],
    random: Random,
    *,
    quiet: tuple[Session, Schedule] | None = None,
    is_spinning: bool = False,
    grace_s: float = GRACE_S,
    clock: Clock = time.monotonic,
) -> Trial:
    """Loads sessions by their schedules, which have the same ticks; each has its number of copies a message.

    Returns when all copies have come, or no more do. A load that `is_spinning` does not sleep between ticks.
    """
    for session, schedule, fan_out in sessions:
        session.ring.sample(sampled_share(schedule, fan_out), random)
    pace = sessions[0][1]
    start_s = clock() + pace.tick_s
    lanes = [Lane(session, schedule, fan_out, start_s) for session, schedule, fan_out in sessions]
    if quiet is not None:
        quiet[0].ring.sample(1.0, random)
        aside = [Lane(*quiet, 1, start_s)]
    else:
        aside = []
    start_cpu_s, start_load_s = cpu_s(process_ids), time.process_time()
    end_s = start_s + pace.seconds
    grace_end_s = end_s + grace_s + GRACE_S_PER_COPY * max(fan_out for _, _, fan_out in sessions)
    in_time: int | None = None
    while (now_s := clock()) < grace_end_s and not _broken(lanes):
        if now_s >= end_s:
            in_time = sum(lane.copies for lane in lanes) if in_time is None else in_time
            if all(lane.is_done for lane in lanes):
                break
        tick = int((now_s - start_s) // pace.tick_s)
        is_behind = [lane.send(tick) for lane in (*lanes, *aside)] if tick >= 0 else ()
        wait_s = 0.0 if is_spinning or any(is_behind) else start_s + (tick + 1) * pace.tick_s - clock()
        poller.turn(wait_s)
    delivered = sum(lane.copies for lane in lanes)
    elapsed_s = clock() - start_s
    _drain(lanes, poller, clock)
    return Trial(
        due=sum(lane.due for lane in lanes),
        delivered=delivered,
        in_time=delivered if in_time is None else in_time,
        copies=sum(lane.copies for lane in lanes),
        seconds=pace.seconds,
        server_cpu_s=cpu_s(process_ids) - start_cpu_s,
        load_cpu_s=time.process_time() - start_load_s,
        elapsed_s=max(elapsed_s, clock() - start_s - QUIET_S),
        latencies_us=[each for lane in lanes for each in lane.session.arrivals.latencies_us],
        quiet_us=[each for lane in aside for each in lane.session.arrivals.latencies_us],
    )


def _broken(lanes: Sequence[Lane]) -> str:
    return next((lane.session.broken for lane in lanes if lane.session.broken), "")


def _drain(lanes: Sequence[Lane], poller: Poller, clock: Clock) -> None:
    """Takes what still comes, so that the next trial begins with nothing on its way."""
    deadline_s, quiet_at_s = clock() + DRAIN_S_MAX, clock() + QUIET_S
    while not _broken(lanes) and (now_s := clock()) < min(deadline_s, quiet_at_s):
        if all(lane.session.settle() and lane.copies >= lane.awaited for lane in lanes):
            return
        if poller.turn(min(quiet_at_s - now_s, 0.02)):
            quiet_at_s = clock() + QUIET_S
    for lane in lanes:
        if not _broken(lanes) and (not lane.session.settle() or clock() >= deadline_s):
            lane.session.broken = f"it is still busy {DRAIN_S_MAX:g} s later"
