"""The users, as locust spawns them: those who publish, those who subscribe, those who do both.

Each has a socket of its own. Publishers follow their schedule whatever happens (open loop); latencies are
counted from the intended times, so that what delays a publisher shows in them. Locust hears of each message
once at either end, its times in milliseconds:

    PUB      how much later than intended it was published
    DELIVER  from the intended time to the first copy
    MISS     a failure: it has not come within the deadline
    SUB      from subscribing until all leases of the subscriber stand; a failure where they do not in time.
             Legs are good until then, whatever is lost and down later
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from math import ceil
from time import monotonic_ns
from typing import Any, ClassVar

import gevent
from locust import User, task
from locust.env import Environment

from kcast.client.blocking import Client, ClientClosed, Subscription
from kcast.client.errors import Backlog
from kcast.client.events import Outcome, Published
from kcast.client.view import View
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.scenario import ID_CHARS, message_id, payload, topic_name
from kcast.loadtest.users import locust_hooks
from kcast.loadtest.users.roster import Kind, Window
from kcast.loadtest.users.worker import Crew, Seat

READY_TIMEOUT_S = 10.0
NAME = "message"
LEASES = "leases"

_WARM_UP_ID = (1 << 64) - 1  # of no schedule
_WARM_UP_INTERVAL_S = 0.02
_MEET_AGAIN_S = 0.3
_STEP_NS = 200_000_000
_IDLE_S = 0.1
_PUBLISHES_ON_END = 16  # when late: then others have a turn

logger = logging.getLogger(__name__)


class NotLeased(Exception):
    """Not all leases stand in time; the test goes on with those that do."""


class PubSubUser(User):
    """What all have in common. `kind` says what it does."""

    abstract = True
    kind: ClassVar[Kind]

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._crew: Crew | None = None
        self._seat: Seat | None = None
        self._takers: list[gevent.Greenlet] = []
        self._window: Window | None = None
        self._next_ns = 0  # what is due before that is published

    # --- What locust calls ---------------------------------------------------------------------------

    def on_start(self) -> None:
        """Gets ready, and waits for the beginning."""
        self._crew = crew = locust_hooks.crew_of(self.environment)
        if crew is None:
            return  # the test cannot be run: that has been said
        self._seat = seat = crew.join(self.kind)
        try:
            if seat.topics:
                self._subscribe(crew, seat)
            if seat.place.pub_id != NONE:
                meet(crew, seat.contact.client)
            crew.ready(seat)
        except Exception:
            self.on_stop()  # which locust does not call then
            raise

    def on_stop(self) -> None:
        """Leaves."""
        gevent.killall(self._takers)
        if self._crew is not None and self._seat is not None:
            now_ns = self._crew.now_ns()
            self._crew.leave(self._seat, min(now_ns, self._next_ns) if self._window else now_ns)

    @task
    def work(self) -> None:
        """Publishes what is due in the next moments; deliveries are taken all the time."""
        crew, seat = self._crew, self._seat
        if crew is None or seat is None or seat.is_gone or seat.place.pub_id == NONE:
            gevent.sleep(_IDLE_S)
            return
        pub_id = seat.place.pub_id
        window = crew.board.window_of(pub_id)
        # The number may have been another's before. Who is late sends what is left when the time is over.
        is_over = window is not None and window.to_ns <= (
            crew.now_ns() if self._window is None else self._next_ns
        )
        if window is None or is_over:
            gevent.sleep(_IDLE_S)
            return
        if self._window is None:
            self._next_ns = window.from_ns
        self._window = window
        until_ns = min(window.to_ns, max(self._next_ns, crew.now_ns()) + _STEP_NS)
        due = crew.schedule.messages(pub_id, self._next_ns, until_ns)
        if self._publish_all(crew, seat, due.seq.tolist(), due.t_ns.tolist(), due.topic_id.tolist()):
            self._next_ns = until_ns
            crew.alarm.wait_until(crew.clock_ns(until_ns))
        else:
            gevent.sleep(_IDLE_S)

    # --- Subscribing ---------------------------------------------------------------------------------

    def _subscribe(self, crew: Crew, seat: Seat) -> None:
        began_ns = monotonic_ns()
        subscriptions = [seat.contact.client.subscribe(topic_name(topic)) for topic in seat.topics]
        self._takers = [gevent.spawn(self._take, crew, seat, each) for each in subscriptions]
        problem: NotLeased | None = None
        until_ns = began_ns + round(READY_TIMEOUT_S * 1e9)
        for subscription in subscriptions:
            left_s = max(0.0, (until_ns - monotonic_ns()) / 1e9)
            # A fixed test waits for all, and its leader loses patience for it.
            leased, wanted = subscription.ready(None if crew.order.is_fixed else left_s)
            if leased < wanted:
                problem = NotLeased(f"leases do not stand within {READY_TIMEOUT_S:g} s")
        self._fire("SUB", LEASES, (monotonic_ns() - began_ns) / 1e6, 0, problem)

    def _take(self, crew: Crew, seat: Seat, subscription: Subscription) -> None:
        """Takes a topic's deliveries, for ever."""
        intended_ns, fire = crew.board.intended_ns, self._fire
        for delivery in subscription:
            now_ns = crew.now_ns()
            ledger = seat.ledger
            try:
                msg_id = int(delivery.payload[-ID_CHARS:], 16)
            except ValueError:
                continue  # nobody's of this test
            t_ns = intended_ns(msg_id)
            if (
                ledger is None
                or t_ns is None
                or crew.is_stopping
                or not ledger.from_ns <= t_ns < ledger.to_ns
            ):
                continue
            latency_ns = now_ns - t_ns
            if latency_ns <= crew.deadline_ns and ledger.take(msg_id, t_ns):
                fire("DELIVER", NAME, latency_ns / 1e6, len(delivery.payload))
            else:
                crew.late += 1

    # --- Publishing ----------------------------------------------------------------------------------

    def _publish_all(
        self, crew: Crew, seat: Seat, seqs: Sequence[int], times_ns: Sequence[int], topics: Sequence[int]
    ) -> bool:
        """Publishes messages at their times; False where the test was ended meanwhile."""
        scenario, place, client = crew.scenario, seat.place, seat.contact.client
        recorder = seat.contact.recorder
        on_end = 0
        for seq, t_ns, topic_id in zip(seqs, times_ns, topics, strict=True):
            self._next_ns = t_ns
            on_end = 0 if crew.alarm.wait_until(crew.clock_ns(t_ns)) else on_end + 1
            if crew.is_stopping:
                return False
            if on_end == _PUBLISHES_ON_END:
                on_end = 0
                gevent.sleep(0)
            msg_id = message_id(place.pub_id, seq)
            body = payload(msg_id, scenario.payload_bytes)
            sent_ns = monotonic_ns()
            if recorder is not None:
                recorder.publish(msg_id, topic_id, crew.clock_ns(t_ns), sent_ns)
            problem = None
            try:
                client.publish_nowait(
                    topic_name(topic_id),
                    body,
                    repeat=scenario.repeat,
                    repeat_interval_s=scenario.repeat_interval_s,
                    confirm=scenario.confirm,
                )
            except (Backlog, ClientClosed) as error:  # the schedule goes on: it is one that was not published
                problem = error
            delay_ms = (sent_ns - crew.clock_ns(t_ns)) / 1e6
            self._fire("PUB", NAME, delay_ms, len(body), problem)
        return True

    def _fire(
        self, kind: str, name: str, time_ms: float, size_bytes: int, problem: Exception | None = None
    ) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=time_ms,
            response_length=size_bytes,
            exception=problem,
            context=self.context(),
        )


class Publisher(PubSubUser):
    """Publishes on all topics, at its times."""

    kind = "Publisher"
    weight = 1


class Subscriber(PubSubUser):
    """Listens to some of the topics."""

    kind = "Subscriber"
    weight = 4


class Mixed(PubSubUser):
    """Does both, on one socket."""

    kind = "Mixed"
    weight = 1


def meet(crew: Crew, client: Client) -> None:
    """Publishes something beforehand, until all of the topics' servers have answered.

    From then on messages travel bare. What it publishes is on a schedule's topics, and of no schedule.
    """
    body = payload(_WARM_UP_ID, crew.scenario.payload_bytes)
    policy = client.cluster.policy
    view = View(client.cluster)
    unmet: set[str] = set()
    for topic in map(topic_name, range(crew.scenario.topics)):
        unmet.update(server.name for server in view.servers(topic))
        if len(unmet) == len(client.cluster.servers):
            break
    deadline_ns = monotonic_ns() + round(READY_TIMEOUT_S * 1e9)
    while unmet and (crew.order.is_fixed or monotonic_ns() < deadline_ns):
        futures: list[Future[Published]] = []
        covered: set[str] = set()
        for topic in map(topic_name, range(crew.scenario.topics)):
            names = {server.name for server in view.servers(topic)} & unmet
            if names <= covered:
                continue
            covered |= names
            k, publish, _ = policy.sizes(len(view.servers(topic)))
            futures.append(
                client.publish_nowait(
                    topic, body, repeat=ceil(k / publish), repeat_interval_s=_WARM_UP_INTERVAL_S
                )
            )
        for future in futures:
            outcomes: dict[str, Any] = dict(future.result().servers)
            unmet -= {name for name, outcome in outcomes.items() if outcome is Outcome.RECEIPT}
        if unmet:
            gevent.sleep(_MEET_AGAIN_S)
    if unmet:
        logger.warning("%d servers do not answer a publisher: %s", len(unmet), ", ".join(sorted(unmet)[:5]))
