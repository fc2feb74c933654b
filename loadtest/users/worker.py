"""The users that run in one process, and what they share there: schedule, clock, capture, who is late.

A crew lives for one test. Its users get their numbers from the leading process, and then begin: in a fixed
test together, at t0, else each when it is ready. Meanwhile a greenlet looks, slot by slot, for what has not
come in time. Times are ns after t0 by the leader's clock, unless they are called otherwise.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from kcast.client import cluster as clusters
from kcast.loadtest.capture.recorder import Recorder
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.faults.plan import DownTimes, outages
from kcast.loadtest.users import clocks, messages
from kcast.loadtest.users.alarm import Alarm
from kcast.loadtest.users.assignment import Order
from kcast.loadtest.users.clocks import Offset, Ping
from kcast.loadtest.users.expectations import SLOT_NS, Board, Ledger
from kcast.loadtest.users.process_stats import Vitals
from kcast.loadtest.users.roster import OPEN, Kind, Place
from kcast.loadtest.users.schedule import Schedule
from kcast.loadtest.users.user_client import Contact
from kcast.pubsub.errors import KcastError

LEADER_TIMEOUT_S = 30.0
GRACE_NS = 100_000_000  # after a deadline, for what has arrived and was not taken yet
LATE_NS = 5_000_000_000  # so long after the deadline, what comes still counts as late
SETTLE_S = 0.5  # after the last deadline, before clients are closed: a copy on its way is recorded

_LOOK_EVERY_S = 0.5
_JUDGE_EVERY_S = 0.05
_JUDGE_NS = 500_000  # without letting others have a turn

logger = logging.getLogger(__name__)


class Missed(Exception):
    """A message that a subscriber should have received, and has not in time."""


class LeaderSilent(KcastError, RuntimeError):
    """The leading process does not answer."""


class Seat:
    """One user's part in a crew; `ledger` is None for who does not subscribe, or not yet."""

    def __init__(self, contact: Contact, topics: tuple[int, ...]) -> None:
        self.place = contact.place
        self.contact = contact
        self.topics = topics
        self.ledger: Ledger | None = None
        self.is_gone = False


class Crew:
    """The users of one process in one test. `process` names it in the capture.

    `send` carries a word to the leader, which may be in this process and answer at once; `tell_miss` is told
    of each message that a user of these has missed. Raises ScenarioError and ClusterError.
    """

    def __init__(
        self,
        order: Order,
        process: str,
        send: Callable[[str, dict[str, Any]], None],
        tell_miss: Callable[[Exception], None],
    ) -> None:
        self.order = order
        self.scenario = order.scenario
        self.cluster = clusters.parse(order.cluster, "the test's cluster file")
        self.schedule = Schedule(order.scenario)
        self.board = Board(self.schedule)
        self.alarm = Alarm()
        self.process = process
        self.late = 0
        self.begun = Event()
        self.is_stopping = False  # users are about to be ended: what they do now is not measured
        self.is_over = False
        self.is_written = False  # what there is to capture, or why not is known
        self._send_word = send
        self._tell_miss = tell_miss
        self._problem = Missed(f"not received within {self.scenario.deadline_s:g} s")
        self._deadline_ns = round(self.scenario.deadline_s * 1e9)
        self._duration_ns = round(self.scenario.duration_s * 1e9)
        self._offset = clocks.SAME
        self._is_clock_known = Event()
        self._pongs: AsyncResult[Ping] = AsyncResult()
        self._t0_ns = 0
        self._down: DownTimes | None = None
        self._claims: dict[int, AsyncResult[Place]] = {}
        self._claim_count = 0
        self._seats: dict[int, Seat] = {}
        self._writer: CaptureWriter | None = None
        self._recorder: Recorder | None = None
        if order.capture:
            self._writer = CaptureWriter(Path(order.capture), process)
            self._recorder = Recorder(self._writer)
        self.vitals = Vitals(
            process,
            lambda: [seat.contact for seat in self._seats.values()],
            self._writer,
            lambda: self._offset.offset_ns,
        )
        self._greenlets = [gevent.spawn(self._learn_clock), gevent.spawn(self.vitals.run)]

    # --- Time ----------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """The time of the test; before it has begun here it means nothing."""
        return monotonic_ns() + self._offset.offset_ns - self._t0_ns

    def clock_ns(self, t_ns: int) -> int:
        """A time of the test, by this process's monotonic clock."""
        return t_ns + self._t0_ns - self._offset.offset_ns

    @property
    def deadline_ns(self) -> int:
        """How late a delivery may be."""
        return self._deadline_ns

    def _learn_clock(self) -> None:
        if clocks.clock_id() != self.order.clock:
            pings = []
            for _ in range(clocks.PINGS):
                self._pongs = AsyncResult()
                self._send(messages.PING, sent_ns=monotonic_ns())
                pings.append(self._pongs.get(timeout=LEADER_TIMEOUT_S))
            self._set_clock(clocks.offset(pings))
        self._note_clock()
        if not self.order.is_fixed:
            self._begin(self.order.t0_ns)  # no sooner: until now the time was not known
        self._is_clock_known.set()

    def _set_clock(self, offset: Offset) -> None:
        self._offset = offset
        if self._recorder is not None:
            self._recorder.offset_ns = offset.offset_ns

    def _note_clock(self) -> None:
        now_ns = monotonic_ns() + self._offset.offset_ns
        offset_ns, error_ns = self._offset
        self._write("clock", process=self.process, t_ns=now_ns, offset_ns=offset_ns, error_ns=error_ns)

    # --- Users come and go ---------------------------------------------------------------------------

    def join(self, kind: Kind) -> Seat:
        """A user takes part: waits for its numbers, and opens its client. Raises LeaderSilent, OSError."""
        self._is_clock_known.wait()
        self._claim_count += 1
        token = self._claim_count
        self._claims[token] = claim = AsyncResult()
        self._send(messages.CLAIM, kind=kind, token=token)
        try:
            place = claim.get(timeout=LEADER_TIMEOUT_S)
        except gevent.Timeout:
            raise LeaderSilent(f"the leading process has not answered for {LEADER_TIMEOUT_S:g} s") from None
        finally:
            self._claims.pop(token, None)  # an answer that comes later is given back
        try:
            contact = Contact(self.scenario, self.cluster, place, self._recorder)
        except BaseException:
            self._give_back(place)
            raise
        topics = () if place.sub_id == NONE else self.schedule.topics_of(place.sub_id)
        seat = self._seats[place.client_id] = Seat(contact, topics)
        self._write(
            "member",
            client_id=place.client_id,
            pub_id=place.pub_id,
            sub_id=place.sub_id,
            port=contact.client.local_port,
            publisher=contact.publisher,
            process=self.process,
            t_ns=monotonic_ns() + self._offset.offset_ns,
            servers=list(contact.known),
        )
        return seat

    def ready(self, seat: Seat) -> None:
        """A user is prepared. Returns when it is to begin."""
        if not self.order.is_fixed:
            seat.contact.begin(self._down)
            if seat.topics:
                seat.ledger = Ledger(seat.topics, self.scenario.topics, self.now_ns())
        self._send(messages.READY, client_id=seat.place.client_id)
        self.begun.wait()

    def leave(self, seat: Seat, t_ns: int) -> None:
        """A user is gone, and has published all that was due before `t_ns`. Idempotent."""
        if seat.is_gone:
            return
        seat.is_gone = True
        self._seats.pop(seat.place.client_id, None)
        self._note_intent(seat)
        try:
            self.vitals.look_at(seat.contact, is_last=True)
            seat.contact.close()
        finally:
            self._send(messages.LEFT, client_id=seat.place.client_id, t_ns=t_ns)

    def _give_back(self, place: Place) -> None:
        self._send(messages.LEFT, client_id=place.client_id, t_ns=0)

    def _note_intent(self, seat: Seat) -> None:
        ledger = seat.ledger
        if ledger is None or ledger.judged_ns <= ledger.from_ns or self._writer is None:
            return
        count = len(seat.topics)
        self._writer.append(
            "intent",
            {
                "sub_id": [seat.place.sub_id] * count,
                "topic_id": list(seat.topics),
                "t_from_ns": [ledger.from_ns + self._t0_ns] * count,
                "t_to_ns": [min(ledger.judged_ns, ledger.to_ns) + self._t0_ns] * count,
            },
        )

    # --- What the leader says ------------------------------------------------------------------------

    def hear(self, word: str, data: dict[str, Any]) -> None:
        """Takes one of words.TO_CREW."""
        if data["test"] != self.order.number or self.is_over:
            return
        match word:
            case messages.PLACE:
                place, claim = Place(*data["place"]), self._claims.get(data["token"])
                if claim is None:
                    self._give_back(place)
                else:
                    claim.set(place)
            case messages.WINDOWS:
                self.board.update(messages.to_windows(data["windows"]))
            case messages.BEGIN:
                self._begin(data["t0_ns"])
            case messages.PONG:
                self._pongs.set(Ping(data["sent_ns"], data["there_ns"], monotonic_ns()))

    def _begin(self, t0_ns: int) -> None:
        self._t0_ns = t0_ns
        if self.scenario.outages != "none" and self.scenario.by == "isolation":
            self._down = DownTimes(outages(self.scenario), self.clock_ns(0))
        if self.order.is_fixed:
            for seat in self._seats.values():
                seat.contact.begin(self._down)
                if seat.topics:
                    seat.ledger = Ledger(seat.topics, self.scenario.topics, 0, self._duration_ns)
        self.begun.set()
        self._greenlets += [gevent.spawn(self._look_ahead), gevent.spawn(self._judge)]

    def _send(self, word: str, **data: Any) -> None:
        self._send_word(word, {"test": self.order.number, **data})

    # --- Misses --------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Looks, for as long as the crew lives, for messages that have not come by their deadline."""
        # No earlier than any ledger.
        at_ns = 0 if self.order.is_fixed else max(0, self.now_ns()) // SLOT_NS * SLOT_NS
        end_ns = self._duration_ns if self.order.is_fixed else OPEN
        rest_ns = monotonic_ns()
        while at_ns < end_ns:
            if at_ns + SLOT_NS > self.now_ns() - self._deadline_ns - GRACE_NS:
                gevent.sleep(_JUDGE_EVERY_S)
                rest_ns = monotonic_ns()
                continue
            slot = self.board.slot(at_ns, at_ns + SLOT_NS)
            at_ns += SLOT_NS
            for seat in tuple(self._seats.values()):
                if seat.ledger is not None:
                    for _ in seat.ledger.judge(slot):
                        self._tell_miss(self._problem)
                if monotonic_ns() - rest_ns > _JUDGE_NS:
                    gevent.sleep(0)  # others have a turn
                    rest_ns = monotonic_ns()
        gevent.sleep(SETTLE_S)
        gevent.spawn(self._finish)  # which ends this greenlet

    def _look_ahead(self) -> None:
        """Keeps up, for as long as the crew lives, with what is published about now."""
        while True:
            now_ns = self.now_ns()
            self.board.look_ahead(now_ns, now_ns - self._deadline_ns - LATE_NS)
            gevent.sleep(_LOOK_EVERY_S)

    # --- The end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The end of a fixed test here: closes all clients and the capture, and says so."""
        for seat in tuple(self._seats.values()):
            self.leave(seat, self._duration_ns)
        self.end()
        failure = self._writer.failure if self._writer is not None else None
        self._send(messages.DONE, process=self.process, failure=failure or "")

    def end(self) -> None:
        """Ends it: users must have left. Returns when its capture is written. Idempotent."""
        gevent.killall(self._greenlets)
        self.alarm.close()
        if not self.is_over:
            self.is_over = True
            if self._writer is not None:
                self.vitals.note()
        if self._writer is not None:
            self._writer.close()
        self.is_written = True

    def figures(self) -> dict[str, Any]:
        """What the leader tells of, beside what locust counts."""
        writer = self._writer
        return {
            "test": self.order.number,
            "is_written": self.is_written,
            **self.vitals.counts,
            "late": self.late,
            "lag_max_ns": self.vitals.lag_max_ns,
            "rows_waiting": writer.rows_waiting if writer is not None else 0,
            "rows_lost": writer.rows_lost if writer is not None else 0,
            "capture_failure": (writer.failure if writer is not None else None) or "",
        }

    def _write(self, table: str, **row: Any) -> None:
        if self._writer is not None:
            self._writer.append(table, {name: [value] for name, value in row.items()})
