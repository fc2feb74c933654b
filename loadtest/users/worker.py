"""The users that run in one process, and what they share: schedule, clock, capture, and who misses what.

A Worker exists for one test; where locust has no workers, its only process has one, too. Its users get their
ids from the coordinator and then begin: in a fixed test all together, at t0, otherwise each when it is ready.
A greenlet meanwhile finds, slot by slot, the messages that have not come in time. Times are ns after t0 by
the coordinator's clock unless a name says otherwise.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from kcast.client import cluster as clusters
from kcast.client.blocking import Client
from kcast.loadtest.capture.recorder import Recorder
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.faults.plan import DownTimes, away, is_away, outages
from kcast.loadtest.scenario import BY_CLIENTS
from kcast.loadtest.users import clocks, messages
from kcast.loadtest.users.assignment import Assignment
from kcast.loadtest.users.clocks import Offset, Ping
from kcast.loadtest.users.expectations import SLOT_NS, Expectations, Received
from kcast.loadtest.users.process_stats import ProcessStats
from kcast.loadtest.users.reachable import any_answers
from kcast.loadtest.users.roster import OPEN, Kind, UserIds
from kcast.loadtest.users.schedule import Schedule
from kcast.loadtest.users.timer import Timer
from kcast.loadtest.users.user_client import UserClient
from kcast.pubsub.errors import KcastError

COORDINATOR_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 3.0  # for the first answer of any server
GRACE_NS = 100_000_000  # after a deadline, for messages that have arrived and were not taken yet
LATE_NS = 5_000_000_000  # after the deadline, how long a delivery is still counted as late
SETTLE_S = 0.5  # after the last deadline, before clients are closed, so that copies on their way are recorded

_LAST_SAMPLE_BEFORE_NS = 250_000_000  # before the load; many clients take a while
_LOOK_AHEAD_EVERY_S = 0.5
_SETTLE_EVERY_S = 0.05
_SETTLE_NS = 500_000  # the longest turn without yielding to other greenlets

logger = logging.getLogger(__name__)


class Missed(Exception):
    """A subscriber has not received a message in time."""


class CoordinatorSilent(KcastError, RuntimeError):
    """The coordinator does not answer."""


class Worker:
    """The users of one process in one test. `process` is its name in the capture.

    `send` sends a message to the coordinator, which may be in this process and answer at once; `report_miss`
    is called for each message that one of these users has missed. Raises ScenarioError and ClusterError.
    """

    def __init__(
        self,
        assignment: Assignment,
        process: str,
        send: Callable[[str, dict[str, Any]], None],
        report_miss: Callable[[Exception], None],
    ) -> None:
        self.assignment = assignment
        self.scenario = assignment.scenario
        self.cluster = clusters.parse(assignment.cluster, "the test's cluster file")
        self.schedule = Schedule(assignment.scenario)
        self.expectations = Expectations(self.schedule)
        self.timer = Timer()
        self.process = process
        self.late = 0
        self.begun = Event()
        self.is_stopping = False  # users are about to be ended: what they do now is not measured
        self.is_over = False
        self.is_written = False  # the capture is written, or the reason why not is known
        self._send_message = send
        self._report_miss = report_miss
        self._problem = Missed(f"not received within {self.scenario.deadline_s:g} s")
        self._deadline_ns = round(self.scenario.deadline_s * 1e9)
        self._duration_ns = round(self.scenario.duration_s * 1e9)
        self._offset = clocks.SAME_CLOCK
        self._is_clock_known = Event()
        self._pongs: AsyncResult[Ping] = AsyncResult()
        self._t0_ns = 0
        self._down: DownTimes | None = None
        self._away: DownTimes | None = None
        self._claims: dict[int, AsyncResult[UserIds]] = {}
        self._claim_count = 0
        self._users: dict[int, UserClient] = {}
        self._writer: CaptureWriter | None = None
        self._recorder: Recorder | None = None
        if assignment.capture:
            self._writer = CaptureWriter(Path(assignment.capture), process)
            self._recorder = Recorder(self._writer)
        self.stats = ProcessStats(process, self._users.values, self._writer, lambda: self._offset.offset_ns)
        self._greenlets = [
            gevent.spawn(each) for each in (self._learn_clock, self.stats.run, self._ask_servers)
        ]

    # --- Time ----------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """The time of the test; meaningless until it has begun here."""
        return monotonic_ns() + self._offset.offset_ns - self._t0_ns

    def clock_ns(self, t_ns: int) -> int:
        """Converts a time of the test to this process's monotonic clock."""
        return t_ns + self._t0_ns - self._offset.offset_ns

    @property
    def deadline_ns(self) -> int:
        """How late a delivery may be."""
        return self._deadline_ns

    def _learn_clock(self) -> None:
        if clocks.clock_id() != self.assignment.clock:
            pings = []
            for _ in range(clocks.PINGS):
                self._pongs = AsyncResult()
                self._send(messages.PING, sent_ns=monotonic_ns())
                pings.append(self._pongs.get(timeout=COORDINATOR_TIMEOUT_S))
            self._set_clock(clocks.offset(pings))
        self._write_clock()
        if not self.assignment.is_fixed:
            self._begin(self.assignment.t0_ns)  # no sooner: until now the time was not known
        self._is_clock_known.set()

    def _set_clock(self, offset: Offset) -> None:
        self._offset = offset
        if self._recorder is not None:
            self._recorder.offset_ns = offset.offset_ns

    def _write_clock(self) -> None:
        now_ns = monotonic_ns() + self._offset.offset_ns
        offset_ns, error_ns = self._offset
        self._write("clock", process=self.process, t_ns=now_ns, offset_ns=offset_ns, error_ns=error_ns)

    # --- Servers -------------------------------------------------------------------------------------

    def _ask_servers(self) -> None:
        """Reports a cluster of which no server answers, so that the test does not go on in vain."""
        if not any_answers(self.cluster, ANSWER_TIMEOUT_S):
            self._send(messages.SILENCE, process=self.process)

    # --- Users come and go ---------------------------------------------------------------------------

    def join(self, kind: Kind) -> UserClient:
        """Adds a user: waits for its ids, and opens its client. Raises CoordinatorSilent and OSError."""
        self._is_clock_known.wait()
        self._claim_count += 1
        token = self._claim_count
        self._claims[token] = claim = AsyncResult()
        self._send(messages.CLAIM, kind=kind, token=token)
        try:
            ids = claim.get(timeout=COORDINATOR_TIMEOUT_S)
        except gevent.Timeout:
            raise CoordinatorSilent(
                f"locust's master has not answered a new user for {COORDINATOR_TIMEOUT_S:g} s"
            ) from None
        finally:
            self._claims.pop(token, None)  # ids that come later are given back
        topics = () if ids.sub_id == NONE else self.schedule.topics_of(ids.sub_id)
        try:
            user = UserClient(self.scenario, self.cluster, ids, self._recorder, topics)
        except BaseException:
            self._give_back(ids)
            raise
        self._users[ids.client_id] = user
        self.write_member(ids, user.client, user.publisher, user.known)
        return user

    def write_member(self, ids: UserIds, client: Client, publisher: str, known: Sequence[int]) -> None:
        """Records whose socket and publisher name these are."""
        self._write(
            "member",
            client_id=ids.client_id,
            pub_id=ids.pub_id,
            sub_id=ids.sub_id,
            port=client.local_port,
            publisher=publisher,
            process=self.process,
            t_ns=monotonic_ns() + self._offset.offset_ns,
            servers=list(known),
        )

    def write_entry(self, user: UserClient, msg_id: int) -> None:
        """Records that a subscriber's log has told it an entry."""
        t_ns = monotonic_ns() + self._offset.offset_ns
        self._write("entry", sub_id=user.ids.sub_id, msg_id=msg_id, t_ns=t_ns)

    def write_sighting(self, user: UserClient, what: str, name: str) -> None:
        """Records what a subscriber's client has told of somebody."""
        t_ns = monotonic_ns() + self._offset.offset_ns
        self._write("sighting", sub_id=user.ids.sub_id, t_ns=t_ns, what=what, name=name)

    def ready(self, user: UserClient) -> None:
        """Reports that a user is ready. Returns when it is to begin."""
        if not self.assignment.is_fixed:
            self.begin_user(user)
        self._send(messages.READY, client_id=user.ids.client_id)
        self.begun.wait()

    def begin_user(self, user: UserClient) -> None:
        """Applies faults to a user's client, and begins to expect messages for it."""
        user.begin(self._down, self._away if is_away(self.scenario, user.ids.sub_id) else None)
        if user.topics:
            between = (0, self._duration_ns) if self.assignment.is_fixed else (self.now_ns(), OPEN)
            user.received = Received(user.topics, self.scenario.topics, *between)

    def leave(self, user: UserClient, t_ns: int) -> None:
        """Removes a user, which has published all that was due before `t_ns`. Idempotent."""
        if user.is_gone:
            return
        user.is_gone = True
        self._users.pop(user.ids.client_id, None)
        self._write_intent(user)
        try:
            self.stats.sample_user(user, is_last=True)
            user.close()
        finally:
            self._send(messages.LEFT, client_id=user.ids.client_id, t_ns=t_ns)

    def _give_back(self, ids: UserIds) -> None:
        self._send(messages.LEFT, client_id=ids.client_id, t_ns=0)

    def _write_intent(self, user: UserClient) -> None:
        received = user.received
        if received is None or received.settled_ns <= received.from_ns or self._writer is None:
            return
        count = len(user.topics)
        self._writer.append(
            "intent",
            {
                "sub_id": [user.ids.sub_id] * count,
                "topic_id": list(user.topics),
                "t_from_ns": [received.from_ns + self._t0_ns] * count,
                "t_to_ns": [min(received.settled_ns, received.to_ns) + self._t0_ns] * count,
            },
        )

    # --- Messages from the coordinator ---------------------------------------------------------------

    def receive(self, kind: str, data: dict[str, Any]) -> None:
        """Takes one of messages.TO_WORKERS."""
        if data["test"] != self.assignment.number or self.is_over:
            return
        match kind:
            case messages.IDS:
                ids, claim = UserIds(*data["ids"]), self._claims.get(data["token"])
                if claim is None:
                    self._give_back(ids)
                else:
                    claim.set(ids)
            case messages.WINDOWS:
                self.expectations.update(messages.to_windows(data["windows"]))
            case messages.BEGIN:
                self._begin(data["t0_ns"])
            case messages.PONG:
                self._pongs.set(Ping(data["sent_ns"], data["coordinator_ns"], monotonic_ns()))

    def _begin(self, t0_ns: int) -> None:
        self._t0_ns = t0_ns
        if self.scenario.outages != "none" and self.scenario.by in BY_CLIENTS:
            self._down = DownTimes(outages(self.scenario), self.clock_ns(0))
        if self.scenario.offline:
            self._away = DownTimes(away(self.scenario), self.clock_ns(0))
        if self.assignment.is_fixed:
            for user in self._users.values():
                self.begin_user(user)
            self._greenlets.append(gevent.spawn(self._sample_before))
        self.begun.set()
        self._greenlets += [gevent.spawn(self._look_ahead), gevent.spawn(self._settle)]

    def _sample_before(self) -> None:
        """Samples what clients have counted before the load: twice, which shows that nothing comes now."""
        self.stats.sample_users()
        gevent.sleep(max(0, self.clock_ns(-_LAST_SAMPLE_BEFORE_NS) - monotonic_ns()) / 1e9)
        self.stats.sample_users()

    def _send(self, kind: str, /, **data: Any) -> None:
        self._send_message(kind, {"test": self.assignment.number, **data})

    # --- Misses --------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Finds misses, slot by slot, as their deadlines pass; then ends a fixed test."""
        # Begins no later than any user does.
        at_ns = 0 if self.assignment.is_fixed else max(0, self.now_ns()) // SLOT_NS * SLOT_NS
        end_ns = self._duration_ns if self.assignment.is_fixed else OPEN
        rest_ns = monotonic_ns()
        while at_ns < end_ns:
            if at_ns + SLOT_NS > self.now_ns() - self._deadline_ns - GRACE_NS:
                gevent.sleep(_SETTLE_EVERY_S)
                rest_ns = monotonic_ns()
                continue
            slot = self.expectations.slot(at_ns, at_ns + SLOT_NS)
            at_ns += SLOT_NS
            for user in tuple(self._users.values()):
                if user.received is not None:
                    for _ in user.received.settle(slot):
                        self._report_miss(self._problem)
                if monotonic_ns() - rest_ns > _SETTLE_NS:
                    gevent.sleep(0)  # yields to other greenlets
                    rest_ns = monotonic_ns()
        gevent.sleep(SETTLE_S)
        gevent.spawn(self._finish)  # which kills this greenlet

    def _look_ahead(self) -> None:
        """Keeps looking up the messages that are published about now."""
        while True:
            now_ns = self.now_ns()
            self.expectations.look_ahead(now_ns, now_ns - self._deadline_ns - LATE_NS)
            gevent.sleep(_LOOK_AHEAD_EVERY_S)

    # --- The end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Ends a fixed test here: closes all clients and the capture, and reports it."""
        for user in tuple(self._users.values()):
            self.leave(user, self._duration_ns)
        self.end()
        failure = self._writer.failure if self._writer is not None else None
        self._send(messages.DONE, process=self.process, failure=failure or "")

    def end(self) -> None:
        """Ends the test here; its users must have left. Returns when its capture is written. Idempotent."""
        gevent.killall(self._greenlets)
        self.timer.close()
        if not self.is_over:
            self.is_over = True
            if self._writer is not None:
                self.stats.sample()
        if self._writer is not None:
            self._writer.close()
        self.is_written = True

    def figures(self) -> dict[str, Any]:
        """Returns the figures that the coordinator adds to locust's own, see `Progress`."""
        writer = self._writer
        return {
            "test": self.assignment.number,
            "is_written": self.is_written,
            **self.stats.counts,
            "late": self.late,
            "lag_max_ns": self.stats.lag_max_ns,
            "rows_waiting": writer.rows_waiting if writer is not None else 0,
            "rows_lost": writer.rows_lost if writer is not None else 0,
            "capture_failure": (writer.failure if writer is not None else None) or "",
        }

    def _write(self, table: str, **row: Any) -> None:
        if self._writer is not None:
            self._writer.append(table, {name: [value] for name, value in row.items()})
