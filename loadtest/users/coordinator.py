"""The coordinator of a test: gives users their ids, begins and ends the test, and reports its progress.

There is one, in locust's master or in the only process. In a fixed test it waits until all users are ready,
sets t0, and ends locust when all processes have written their captures. In other tests it only keeps
publishers' windows; locust ends them.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from locust.stats import RequestStats, StatsEntry

from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.faults.plan import outages
from kcast.loadtest.scenario import BY_CLIENTS
from kcast.loadtest.users import messages
from kcast.loadtest.users.assignment import Assignment
from kcast.loadtest.users.progress import Phase, Progress, ProgressPipe
from kcast.loadtest.users.roster import Roster
from kcast.loadtest.users.schedule import Schedule

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0  # for captures to be written, after the last deadline
LEAD_NS = 1_000_000_000  # from the BEGIN message to t0
WINDOW_LEAD_NS = 300_000_000  # from READY of a publisher to its window, so that all workers know it by then

HERE = "local"  # locust's name for the only process

_TICK_S = 0.1
_TICKS_A_SECOND = 10

logger = logging.getLogger(__name__)


class Coordinator:
    """Coordinates one test.

    `send` sends a message to one worker, or to all if its last argument is None. `present` returns the
    workers that are there, `local_figures` the figures of the worker in this process. `end_locust` is called
    with the reason why the test has failed, or "" when a fixed test has ended well.
    """

    def __init__(
        self,
        assignment: Assignment,
        stats: RequestStats,
        *,
        send: Callable[[str, dict[str, Any], str | None], None],
        present: Callable[[], set[str]],
        local_figures: Callable[[], dict[str, Any] | None],
        end_locust: Callable[[str], None],
        progress_pipe: ProgressPipe | None,
    ) -> None:
        self.assignment = assignment
        self.roster = Roster(assignment.scenario)
        self.phase: Phase = "starting"
        self.error = ""
        self.capture_failure = ""
        self.figures: dict[str, dict[str, Any]] = {}  # Worker.figures, by process
        self._scenario = assignment.scenario
        self._stats = stats
        self._send_message = send
        self._present = present
        self._local_figures = local_figures
        self._end_locust = end_locust
        self._progress_pipe = progress_pipe
        self._t0_ns = assignment.t0_ns
        self._duration_ns = round(assignment.scenario.duration_s * 1e9)
        self._done: set[str] = set()
        self._workers: set[str] = set()  # those with users; they know all windows
        self._is_over = False
        self.stopped_ns: int | None = None  # after t0
        self._phase_began_ns = monotonic_ns()
        self._writer = CaptureWriter(Path(assignment.capture), "coordinator") if assignment.capture else None
        if not assignment.is_fixed:
            self._enter("running")
        self._greenlet = gevent.spawn(self._run)

    @property
    def now_ns(self) -> int:
        """The time of the test; meaningless before a fixed test begins."""
        return monotonic_ns() - self._t0_ns

    # --- Messages from workers -----------------------------------------------------------------------

    def receive(self, kind: str, data: dict[str, Any], node: str) -> None:
        """Takes one of messages.TO_COORDINATOR."""
        if data["test"] != self.assignment.number or self._is_over:
            return
        match kind:
            case messages.CLAIM:
                self._assign_ids(data, node)
            case messages.READY:
                self._user_is_ready(data["client_id"])
            case messages.LEFT:
                self.roster.leave(data["client_id"], data["t_ns"])
            case messages.DONE:
                self._worker_is_done(data, node)
            case messages.SILENCE:
                where = "" if node == HERE else f" {data['process']}"
                self.fail(
                    f"no server of the cluster answers{where}: see what `kcast ping --cluster FILE` says"
                )
            case messages.PING:
                coordinator_ns = monotonic_ns()
                self._send(messages.PONG, node, sent_ns=data["sent_ns"], coordinator_ns=coordinator_ns)

    def _assign_ids(self, data: dict[str, Any], node: str) -> None:
        if node not in self._workers:
            self._workers.add(node)
            self._send(messages.WINDOWS, node, windows=messages.from_windows(self.roster.windows))
        # First, so that the new user does not take the closed window of its predecessor for its own.
        self._send_windows()
        ids = self.roster.claim(data["kind"], node)
        self._send(messages.IDS, node, token=data["token"], ids=list(ids))

    def _user_is_ready(self, client_id: int) -> None:
        ids = self.roster.ready(client_id)
        if ids is None:
            return
        if not self.assignment.is_fixed:
            self.roster.open_window(ids.pub_id, self.now_ns + WINDOW_LEAD_NS)
            return
        if self.phase == "starting":
            self._enter("waiting")
        if self.phase == "waiting" and self._t0_ns == 0 and self.roster.ready_count == self._wanted:
            self._begin()

    @property
    def _wanted(self) -> int:
        """Number of users of a fixed test."""
        return self._scenario.publishers + self._scenario.subscribers + self._scenario.mixed

    def _begin(self) -> None:
        self._t0_ns = monotonic_ns() + LEAD_NS
        self.roster.open_all(self._duration_ns)
        self._send_windows()
        self._send(messages.BEGIN, None, t0_ns=self._t0_ns)
        self._report()

    def _worker_is_done(self, data: dict[str, Any], node: str) -> None:
        if data["failure"]:
            self.fail(f"{data['process']} cannot write the capture: {data['failure']}")
            return
        self._done.add(node)

    def _send_windows(self) -> None:
        changes = self.roster.take_changes()
        if changes:
            self._send(messages.WINDOWS, None, windows=messages.from_windows(changes))

    def _send(self, kind: str, node: str | None, /, **data: Any) -> None:
        self._send_message(kind, {"test": self.assignment.number, **data}, node)

    # --- The course of the test ----------------------------------------------------------------------

    def _run(self) -> None:
        ticks = 0
        while not self._is_over:
            gevent.sleep(_TICK_S)
            ticks += 1
            self._send_windows()
            self._remove_lost_workers()
            if self.assignment.is_fixed:
                self._advance()
            if ticks % _TICKS_A_SECOND == 0:
                self._report()
                self._check_captures()

    def _advance(self) -> None:
        """Moves a fixed test to its next phase, if it is time."""
        in_phase_s = (monotonic_ns() - self._phase_began_ns) / 1e9
        match self.phase:
            case "starting" | "waiting":
                if self._t0_ns:
                    if self.now_ns >= 0:
                        self._enter("running")
                elif in_phase_s > READY_TIMEOUT_S:
                    self.fail(self._not_ready())
            case "running":
                if self.now_ns >= self._duration_ns:
                    self._enter("settling")
            case "settling":
                if self._done >= self._workers and self._has_last_figures():
                    self.end()
                    if not self.error:
                        self._enter("done")
                        self._end_locust("")
                elif in_phase_s > self._scenario.deadline_s + END_TIMEOUT_S:
                    self.fail(f"after {END_TIMEOUT_S:g} s, not all processes have written their captures")

    def _has_last_figures(self) -> bool:
        """True if all workers that are done have also sent their last figures, which come another way."""
        figures = self._all_figures()
        return all(figures.get(node, {}).get("is_written") for node in self._done)

    @property
    def is_complete(self) -> bool:
        """True if all users have left, and all workers have written their captures."""
        figures = self._all_figures()
        return not self.roster.count and all(
            figures.get(node, {}).get("is_written") for node in self._workers
        )

    def _not_ready(self) -> str:
        return (
            f"{self.roster.ready_count} of {self._wanted} users are ready after {READY_TIMEOUT_S:g} s: "
            "do all servers run, and do they grant all leases?"
        )

    def _remove_lost_workers(self) -> None:
        present = self._present()
        for node in self.roster.nodes - present:
            users = self.roster.remove_node(node, self.now_ns)
            what = f"a locust worker has ended, and with it {users} users"
            if self.assignment.is_fixed and self.phase != "done":
                self.fail(what)
            else:
                logger.warning("%s", what)

    def _check_captures(self) -> None:
        failures = [each["capture_failure"] for each in self._all_figures().values()]
        failure = next(filter(None, failures), "")
        if not failure or self.capture_failure:
            return
        self.capture_failure = failure
        if self.assignment.is_fixed:
            self.fail(f"the capture cannot be written: {failure}")
        else:
            logger.error("the capture cannot be written; the test goes on without it: %s", failure)

    def fail(self, error: str) -> None:
        """Ends the test because of an error."""
        if self.phase in ("failed", "done"):
            return
        self.error = error
        logger.error("%s", error)
        self._enter("failed")
        self._end_locust(error)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._phase_began_ns = monotonic_ns()
        self._report()

    # --- The end -------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends all windows now: users are being stopped, and not all of them may report that they left."""
        self.stopped_ns = self.now_ns

    def end(self) -> None:
        """Ends the test. Returns when the coordinator's own tables are written. Idempotent."""
        self._check_captures()
        if not self._is_over:
            # Ctrl-C may come at any moment, and then all of this is done again: so all rows are made before
            # any is written.
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
        """Outages that clients make; `ServerWatch` writes those of real servers."""
        now_ns = self.now_ns
        planned = outages(self._scenario) if self._scenario.by in BY_CLIENTS else ()
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

    def _report(self) -> None:
        if self._progress_pipe is not None:
            self._progress_pipe.write(self._progress())

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
        local = self._local_figures()
        if local is not None:
            self.figures[HERE] = local
        return {node: each for node, each in self.figures.items() if each["test"] == self.assignment.number}

    def _entry(self, kind: str) -> StatsEntry:
        # Not RequestStats.get, which would create an entry.
        entries = self._stats.entries
        found = next((entry for (_, method), entry in entries.items() if method == kind), None)
        return found or StatsEntry(self._stats, "", kind)
