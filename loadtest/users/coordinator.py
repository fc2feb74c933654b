"""The leading process's side of a test: who is who, when all begin, how it goes, and its end.

There is one leader, in locust's master or in the only process. Of a fixed test it waits until all users
stand ready, names t0, and ends locust when all processes have written what they have. Of others it keeps
publishers' windows, and nothing else; locust ends them.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from locust.stats import RequestStats, StatsEntry

from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.faults.plan import outages
from kcast.loadtest.users import messages
from kcast.loadtest.users.assignment import Order
from kcast.loadtest.users.progress import Leash, Phase, Progress
from kcast.loadtest.users.roster import Place, Roster
from kcast.loadtest.users.schedule import Schedule

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0  # for captures to be written, after the last deadline
LEAD_NS = 1_000_000_000  # from the word to begin to t0
WINDOW_LEAD_NS = 300_000_000  # from a publisher's being ready to its window: all are to know of it by then

HERE = "local"  # what locust calls the only process

_TICK_S = 0.1
_TICKS_A_SECOND = 10

logger = logging.getLogger(__name__)


class Leader:
    """Leads one test. `send` carries a word to a process with users, or to all where that is None.

    `present` tells which processes with users there are, `figures_here` has the figures of those in this one;
    `end_locust` ends all, with an exit code.
    """

    def __init__(
        self,
        order: Order,
        stats: RequestStats,
        *,
        send: Callable[[str, dict[str, Any], str | None], None],
        present: Callable[[], set[str]],
        figures_here: Callable[[], dict[str, Any] | None],
        end_locust: Callable[[int], None],
        leash: Leash | None,
    ) -> None:
        self.order = order
        self.roster = Roster(order.scenario)
        self.phase: Phase = "starting"
        self.error = ""
        self.capture_failure = ""
        self.figures: dict[str, dict[str, Any]] = {}  # by process, as Crew.figures has them
        self._scenario = order.scenario
        self._stats = stats
        self._send_word = send
        self._present = present
        self._figures_here = figures_here
        self._end_locust = end_locust
        self._leash = leash
        self._t0_ns = order.t0_ns
        self._duration_ns = round(order.scenario.duration_s * 1e9)
        self._done: set[str] = set()
        self._told_all: set[str] = set()  # who knows all windows that were
        self._is_over = False
        self.stopped_ns: int | None = None  # after t0
        self._phase_began_ns = monotonic_ns()
        self._writer = CaptureWriter(Path(order.capture), "leader") if order.capture else None
        if not order.is_fixed:
            self._enter("running")
        self._greenlet = gevent.spawn(self._run)

    @property
    def now_ns(self) -> int:
        """The time of the test; before a fixed one begins it means nothing."""
        return monotonic_ns() - self._t0_ns

    # --- What processes with users say ---------------------------------------------------------------

    def hear(self, word: str, data: dict[str, Any], node: str) -> None:
        """Takes one of words.TO_LEADER."""
        if data["test"] != self.order.number or self._is_over:
            return
        match word:
            case messages.CLAIM:
                self._place(data, node)
            case messages.READY:
                self._ready(data["client_id"])
            case messages.LEFT:
                self.roster.leave(data["client_id"], data["t_ns"])
            case messages.DONE:
                self._note_done(data, node)
            case messages.PING:
                there_ns = monotonic_ns()
                self._send(messages.PONG, node, sent_ns=data["sent_ns"], there_ns=there_ns)

    def _place(self, data: dict[str, Any], node: str) -> None:
        if node not in self._told_all:
            self._told_all.add(node)
            self._send(messages.WINDOWS, node, windows=messages.from_windows(self.roster.windows))
        self._tell_windows()  # who gets a number must not take the window of who had it for its own
        place = self.roster.claim(data["kind"], node)
        self._send(messages.PLACE, node, token=data["token"], place=list(place))

    def _ready(self, client_id: int) -> None:
        place = self.roster.ready(client_id)
        if place is None:
            return
        if not self.order.is_fixed:
            self._open_window(place)
            return
        if self.phase == "starting":
            self._enter("waiting")
        wanted = self._scenario.publishers + self._scenario.subscribers + self._scenario.mixed
        if self.phase == "waiting" and self._t0_ns == 0 and self.roster.ready_count == wanted:
            self._begin()

    def _open_window(self, place: Place) -> None:
        if place.pub_id != NONE:
            self.roster.open_window(place.pub_id, self.now_ns + WINDOW_LEAD_NS)

    def _begin(self) -> None:
        self._t0_ns = monotonic_ns() + LEAD_NS
        self.roster.open_all(self._duration_ns)
        self._tell_windows()
        self._send(messages.BEGIN, None, t0_ns=self._t0_ns)
        self._tell()

    def _note_done(self, data: dict[str, Any], node: str) -> None:
        if data["failure"]:
            self.fail(f"{data['process']} cannot write the capture: {data['failure']}")
            return
        self._done.add(node)

    def _tell_windows(self) -> None:
        changes = self.roster.take_changes()
        if changes:
            self._send(messages.WINDOWS, None, windows=messages.from_windows(changes))

    def _send(self, word: str, node: str | None, **data: Any) -> None:
        self._send_word(word, {"test": self.order.number, **data}, node)

    # --- The course ----------------------------------------------------------------------------------

    def _run(self) -> None:
        ticks = 0
        while not self._is_over:
            gevent.sleep(_TICK_S)
            ticks += 1
            self._tell_windows()
            self._miss_processes()
            if self.order.is_fixed:
                self._go_on()
            if ticks % _TICKS_A_SECOND == 0:
                self._tell()
                self._look_at_captures()

    def _go_on(self) -> None:
        """Of a fixed test: what the time has brought."""
        in_phase_s = (monotonic_ns() - self._phase_began_ns) / 1e9
        match self.phase:
            case "starting" | "waiting":
                if self._t0_ns:
                    if self.now_ns >= 0:
                        self._enter("running")
                elif in_phase_s > READY_TIMEOUT_S:
                    self.fail(self._who_is_not_ready())
            case "running":
                if self.now_ns >= self._duration_ns:
                    self._enter("settling")
            case "settling":
                if self._done >= self._told_all and self._has_last_figures():
                    self.end()
                    if not self.error:
                        self._enter("done")
                        self._end_locust(0)
                elif in_phase_s > self._scenario.deadline_s + END_TIMEOUT_S:
                    self.fail(f"after {END_TIMEOUT_S:g} s, not all processes have written their captures")

    def _has_last_figures(self) -> bool:
        """Whether all that is done has told what it counted, too, which goes another way."""
        figures = self._all_figures()
        return all(figures.get(node, {}).get("is_written") for node in self._done)

    @property
    def has_heard_all(self) -> bool:
        """Whether all users have said that they are gone, and their processes how their captures ended."""
        figures = self._all_figures()
        return not self.roster.count and all(
            figures.get(node, {}).get("is_written") for node in self._told_all
        )

    def _who_is_not_ready(self) -> str:
        wanted = self._scenario.publishers + self._scenario.subscribers + self._scenario.mixed
        return (
            f"{self.roster.ready_count} of {wanted} users are ready after {READY_TIMEOUT_S:g} s: "
            "do all servers run, and do they grant all leases?"
        )

    def _miss_processes(self) -> None:
        present = self._present()
        for node in self.roster.nodes - present:
            users = self.roster.lose(node, self.now_ns)
            what = f"a process is gone, and with it {users} users"
            if self.order.is_fixed and self.phase != "done":
                self.fail(what)
            else:
                logger.warning("%s", what)

    def _look_at_captures(self) -> None:
        failures = [each["capture_failure"] for each in self._all_figures().values()]
        failure = next(filter(None, failures), "")
        if not failure or self.capture_failure:
            return
        self.capture_failure = failure
        if self.order.is_fixed:
            self.fail(f"the capture cannot be written: {failure}")
        else:
            logger.error("the capture cannot be written, and the test goes on without: %s", failure)

    def fail(self, error: str) -> None:
        """The test cannot go on; ends it."""
        if self.phase in ("failed", "done"):
            return
        self.error = error
        logger.error("%s", error)
        self._enter("failed")
        self._end_locust(1)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._phase_began_ns = monotonic_ns()
        self._tell()

    # --- The end -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Users are told to end: no window goes on beyond now, whether or not we hear of each that leaves."""
        self.stopped_ns = self.now_ns

    def end(self) -> None:
        """Ends the test here. Returns when what the leader has to capture is written. Idempotent."""
        self._look_at_captures()
        if not self._is_over:
            # Ctrl-C may come at any moment, and then all of this is done again: so nothing is written before
            # everything is known.
            if self._t0_ns:
                self.roster.close_all(self.now_ns if self.stopped_ns is None else self.stopped_ns)
            if self._writer is not None and self._t0_ns:
                tables = {"window": self._window_rows(), "outage": self._outage_rows()}
                for table, rows in tables.items():
                    self._writer.append(table, rows)
            self._is_over = True
        if self._writer is not None:
            self._writer.close()
            if self._writer.failure is not None:
                self.fail(f"the capture cannot be written: {self._writer.failure}")

    def _window_rows(self) -> dict[str, list[Any]]:
        windows = [window for window in self.roster.windows if window.to_ns > window.from_ns]
        schedule = Schedule(self._scenario)
        return {
            "pub_id": [window.pub_id for window in windows],
            "t_from_ns": [window.from_ns + self._t0_ns for window in windows],
            "t_to_ns": [window.to_ns + self._t0_ns for window in windows],
            "scheduled": [schedule.count(*window) for window in windows],
        }

    def _outage_rows(self) -> dict[str, list[Any]]:
        """Those that clients' own sockets made; who ends real servers writes down real ones."""
        now_ns = self.now_ns
        is_ours = self._scenario.by == "isolation"
        planned = outages(self._scenario) if is_ours else ()
        happened = [outage for outage in planned if outage.from_ns < now_ns]
        return {
            "server_id": [outage.server for outage in happened],
            "epoch": [outage.epoch for outage in happened],
            "t_down_ns": [outage.from_ns + self._t0_ns for outage in happened],
            "t_up_ns": [min(outage.to_ns, now_ns) + self._t0_ns for outage in happened],
            "kind": [self._scenario.by] * len(happened),
            "plan": [self._scenario.outages] * len(happened),
        }

    # --- Progress ------------------------------------------------------------------------------------

    def _tell(self) -> None:
        if self._leash is not None:
            self._leash.tell(self._progress())

    def _progress(self) -> Progress:
        figures = self._all_figures().values()

        def total(name: str) -> int:
            return sum(each.get(name, 0) for each in figures)

        published, delivered, missed = (self._entry(kind) for kind in ("PUB", "DELIVER", "MISS"))
        failures = (each["capture_failure"] for each in figures if each["capture_failure"])
        return {
            "phase": self.phase,
            "t0_ns": self._t0_ns,
            "t_s": round(self.now_ns / 1e9, 3) if self._t0_ns else 0.0,
            "users": self.roster.count,
            "ready": self.roster.ready_count,
            "published": published.num_requests - published.num_failures,
            "delivered": delivered.num_requests,
            "missed": missed.num_requests,
            "late": total("late"),
            "latency_p50_ms": delivered.get_response_time_percentile(0.5),
            "latency_p99_ms": delivered.get_response_time_percentile(0.99),
            "publish_delay_p99_ms": published.get_response_time_percentile(0.99),
            "copies": total("copies"),
            "overflows": total("overflows"),
            "slow_consumer": total("slow_consumer"),
            "send_errors": total("send_errors"),
            "lag_max_ms": max((each["lag_max_ns"] for each in figures), default=0) / 1e6,
            "rows_waiting": total("rows_waiting"),
            "rows_lost": total("rows_lost"),
            "error": self.error or next(failures, ""),
        }

    def _all_figures(self) -> dict[str, dict[str, Any]]:
        here = self._figures_here()
        if here is not None:
            self.figures[HERE] = here
        return {node: each for node, each in self.figures.items() if each["test"] == self.order.number}

    def _entry(self, kind: str) -> StatsEntry:
        # Not by `get`, which would make an entry.
        entries = self._stats.entries
        found = next((entry for (_, method), entry in entries.items() if method == kind), None)
        return found or StatsEntry(self._stats, "", kind)
