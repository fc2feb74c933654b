"""The locust users: those that publish, those that subscribe, and those that do both.

Each has a socket of its own. Publishers follow their schedule whatever happens (open loop). Latencies count
from the intended times, so they include what delays a publisher. Locust gets one event for each message that
is published, and one for each that is delivered or missed; times are in milliseconds:

    PUB      how much later than intended it was published
    DELIVER  from the intended time to the first copy
    MISS     a failure: it has not come within the deadline
    SUB      from subscribing until all leases of the subscriber stand; a failure if they do not in time,
             or if none does when the test ends. There are no faults until then

A publisher of which no server takes note is a failure, too, of PUB.
"""

import logging
from concurrent.futures import Future
from math import ceil
from random import SystemRandom
from time import monotonic, monotonic_ns
from typing import Any, ClassVar

import gevent
from gevent.event import Event
from locust import User, task
from locust.env import Environment

from kcast.client.blocking import Client, ClientClosed, Subscription
from kcast.client.clusters.view import View
from kcast.client.driving.blocking_log import Log
from kcast.client.driving.blocking_service import Members
from kcast.client.errors import Backlog
from kcast.client.events import Limited, Outcome, Published
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.members import MemberJoined
from kcast.client.messages.envelope import new_publisher
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.scenario import ID_CHARS, SPAM_LIMIT, SPAM_WINDOW_S, message_id, payload, topic_name
from kcast.loadtest.users import locust_hooks
from kcast.loadtest.users.roster import Kind, UserIds, Window
from kcast.loadtest.users.schedule import Messages
from kcast.loadtest.users.user_client import UserClient
from kcast.loadtest.users.worker import Worker

READY_TIMEOUT_S = 10.0
PATIENCE_S = 2.0  # a user that begins later than this before the end may be without leases
NAME = "message"
LEASES = "leases"

_WARM_UP_ID = (1 << 64) - 1  # in no schedule
_WARM_UP_INTERVAL_S = 0.02
_WARM_UP_RETRY_S = 0.3
_STEP_NS = 200_000_000
_IDLE_S = 0.1
_PUBLISHES_IN_A_ROW = 16  # when late; then other greenlets run

logger = logging.getLogger(__name__)


class NotLeased(Exception):
    """Leases of a user do not stand in time. The test goes on without them."""


class NobodyAnswers(Exception):
    """No server takes note of a publisher. It publishes all the same."""


class PubSubUser(User):
    """The base of all users. `kind` says what a user does."""

    abstract = True
    kind: ClassVar[Kind]

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._worker: Worker | None = None
        self._user: UserClient | None = None
        self._receivers: list[gevent.Greenlet] = []
        self._logs: dict[int, Log] = {}
        self._window: Window | None = None
        self._next_ns = 0  # all that is due before is published

    # --- What locust calls ---------------------------------------------------------------------------

    def on_start(self) -> None:
        """Subscribes, lets servers get to know a publisher, and waits for the test to begin."""
        self._worker = worker = locust_hooks.worker_of(self.environment)
        if worker is None:
            return  # the test could not begin, and locust has said why
        self._user = user = worker.join(self.kind)
        try:
            if worker.scenario.offline:
                topics = user.topics if user.ids.pub_id == NONE else range(worker.scenario.topics)
                self._logs = {topic: user.client.history(topic_name(topic)) for topic in topics}
            if user.topics:
                self._subscribe(worker, user)
            if user.ids.pub_id != NONE:
                self._warm_up(worker, user.client)
                if user.ids.pub_id == 0:
                    beside = ((spam, worker.scenario.spam), (keep, worker.scenario.offline))
                    self._receivers += [gevent.spawn(each, worker) for each, wanted in beside if wanted]
            worker.ready(user)
        except Exception:
            self.on_stop()  # locust does not call it after an error
            raise

    def on_stop(self) -> None:
        """Leaves the test."""
        gevent.killall(self._receivers)
        if self._worker is not None and self._user is not None:
            now_ns = self._worker.now_ns()
            self._worker.leave(self._user, min(now_ns, self._next_ns) if self._window else now_ns)

    @task
    def work(self) -> None:
        """Publishes what is due in the next moments. Other greenlets receive meanwhile."""
        worker, user = self._worker, self._user
        if worker is None or user is None or user.is_gone or user.ids.pub_id == NONE:
            gevent.sleep(_IDLE_S)
            return
        pub_id = user.ids.pub_id
        window = worker.expectations.window_of(pub_id)
        # The number may be reused. A late publisher still sends its backlog after the window closes.
        is_over = window is not None and window.to_ns <= (
            worker.now_ns() if self._window is None else self._next_ns
        )
        if window is None or is_over:
            gevent.sleep(_IDLE_S)
            return
        if self._window is None:
            self._next_ns = window.from_ns
        self._window = window
        until_ns = min(window.to_ns, max(self._next_ns, worker.now_ns()) + _STEP_NS)
        if self._publish_all(worker, user, worker.schedule.messages(pub_id, self._next_ns, until_ns)):
            self._next_ns = until_ns
            worker.timer.wait_until(worker.clock_ns(until_ns))
        else:
            gevent.sleep(_IDLE_S)

    # --- Subscribing ---------------------------------------------------------------------------------

    def _subscribe(self, worker: Worker, user: UserClient) -> None:
        began_ns = monotonic_ns()
        limit, rate = None, worker.scenario.rate
        if worker.scenario.spam:
            limit = FixedWindow(ceil(SPAM_LIMIT * rate * SPAM_WINDOW_S), SPAM_WINDOW_S)
            self._receivers = [gevent.spawn(self._watch, worker, user)]
        subscriptions = [user.client.subscribe(topic_name(topic), limit=limit) for topic in user.topics]
        if self._logs:
            user.members = user.client.members(topic_name(user.topics[0]), info=user.publisher)
            self._receivers.append(gevent.spawn(self._meet, worker, user, user.members))
        logs = [self._logs[topic] for topic in user.topics if topic in self._logs]
        self._receivers += [gevent.spawn(self._read, worker, user, log) for log in logs]
        self._receivers += [gevent.spawn(self._receive, worker, user, each) for each in subscriptions]
        until_ns = began_ns + round(READY_TIMEOUT_S * 1e9)
        problem: NotLeased | None = None
        try:
            for subscription in subscriptions:
                left_s = max(0.0, (until_ns - monotonic_ns()) / 1e9)
                # A fixed test waits without limit here; the coordinator applies the timeout.
                leased, wanted = subscription.ready(None if worker.assignment.is_fixed else left_s)
                if leased < wanted:
                    problem = NotLeased(f"leases do not stand within {READY_TIMEOUT_S:g} s")
        except gevent.GreenletExit:  # the test ends
            if _is_patient(began_ns) and not any(each.leases[0] for each in subscriptions):
                self._fire("SUB", LEASES, None, 0, NotLeased("no lease stands when the test ends"))
            raise
        self._fire("SUB", LEASES, (monotonic_ns() - began_ns) / 1e6, 0, problem)

    def _read(self, worker: Worker, user: UserClient, log: Log) -> None:
        """Records what a log has, for ever."""
        for entry in log.entries():
            worker.write_entry(user, int(entry.payload[-ID_CHARS:], 16))

    def _meet(self, worker: Worker, user: UserClient, members: Members) -> None:
        """Records who is there and who is not, until the end."""
        for event in members:
            what = "joined" if isinstance(event, MemberJoined) else event.why
            worker.write_sighting(user, what, event.member.info)

    def _watch(self, worker: Worker, user: UserClient) -> None:
        """Records who is limited, for ever."""
        for event in user.client.events():
            if isinstance(event, Limited):
                worker.write_sighting(user, "limited", event.sender)

    def _receive(self, worker: Worker, user: UserClient, subscription: Subscription) -> None:
        """Takes a topic's deliveries, for ever."""
        intended_ns, fire = worker.expectations.intended_ns, self._fire
        for delivery in subscription:
            now_ns = worker.now_ns()
            received = user.received
            try:
                msg_id = int(delivery.payload[-ID_CHARS:], 16)
            except ValueError:
                continue  # not from this test
            t_ns = intended_ns(msg_id)
            if (
                received is None
                or t_ns is None
                or worker.is_stopping
                or not received.from_ns <= t_ns < received.to_ns
            ):
                continue
            latency_ns = now_ns - t_ns
            if latency_ns <= worker.deadline_ns and received.add(msg_id, t_ns):
                fire("DELIVER", NAME, latency_ns / 1e6, len(delivery.payload))
            else:
                worker.late += 1

    # --- Publishing ----------------------------------------------------------------------------------

    def _warm_up(self, worker: Worker, client: Client) -> None:
        began_ns = monotonic_ns()
        answering: set[str] = set()
        try:
            warm_up(worker, client, answering)
        finally:
            if not answering and _is_patient(began_ns):
                self._fire("PUB", NAME, None, 0, NobodyAnswers("no server answers this publisher"))

    def _publish_all(self, worker: Worker, user: UserClient, due: Messages) -> bool:
        """Publishes messages at their times. False if the test was stopped meanwhile."""
        scenario, ids, client = worker.scenario, user.ids, user.client
        recorder = user.recorder
        in_a_row = 0
        for seq, t_ns, topic_id in zip(*(column.tolist() for column in due), strict=True):
            self._next_ns = t_ns
            in_a_row = 0 if worker.timer.wait_until(worker.clock_ns(t_ns)) else in_a_row + 1
            if worker.is_stopping:
                return False
            if in_a_row == _PUBLISHES_IN_A_ROW:
                in_a_row = 0
                gevent.sleep(0)
            msg_id = message_id(ids.pub_id, seq)
            body = payload(msg_id, scenario.payload_bytes)
            sent_ns = monotonic_ns()
            if recorder is not None:
                recorder.publish(msg_id, topic_id, worker.clock_ns(t_ns), sent_ns)
            problem = None
            try:
                if self._logs:
                    self._receivers.append(gevent.spawn(self._logs[topic_id].append, body))
                else:
                    client.publish_nowait(
                        topic_name(topic_id),
                        body,
                        repeat=scenario.repeat,
                        repeat_interval_s=scenario.repeat_interval_s,
                        confirm=scenario.confirm,
                    )
            except (Backlog, ClientClosed) as error:  # this one is not published, and the schedule goes on
                problem = error
            delay_ms = (sent_ns - worker.clock_ns(t_ns)) / 1e6
            self._fire("PUB", NAME, delay_ms, len(body), problem)
        return True

    def _fire(
        self, kind: str, name: str, time_ms: float | None, size_bytes: int, problem: Exception | None = None
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
    """Publishes on all topics, by its schedule."""

    kind = "Publisher"
    weight = 1


class Subscriber(PubSubUser):
    """Subscribes to some of the topics."""

    kind = "Subscriber"
    weight = 4


class Mixed(PubSubUser):
    """Does both, on one socket."""

    kind = "Mixed"
    weight = 1


def _is_patient(began_ns: int) -> bool:
    return monotonic_ns() - began_ns >= PATIENCE_S * 1e9


def spam(worker: Worker) -> None:
    """Sends much, beside the schedule, until the load ends. The capture has it as a member without ids."""
    name = new_publisher(SystemRandom())
    with Client(worker.cluster, publisher=name) as client:
        worker.write_member(UserIds(NONE, NONE, NONE), client, name, range(len(worker.cluster.servers)))
        body = payload(_WARM_UP_ID, worker.scenario.payload_bytes)
        worker.begun.wait()
        due_s = monotonic()
        while worker.now_ns() < worker.scenario.duration_s * 1e9:
            client.publish_nowait(topic_name(0), body)
            due_s += 1 / worker.scenario.spam
            gevent.sleep(max(0.0, due_s - monotonic()))  # others run, however late it is


def keep(worker: Worker) -> None:
    """Holds all topics, on a path such as all have, until it is killed."""
    user = UserClient(worker.scenario, worker.cluster, UserIds(NONE, NONE, NONE))
    try:
        for topic in range(worker.scenario.topics):
            user.client.history(topic_name(topic))
        worker.begun.wait()
        worker.begin_user(user)
        Event().wait()
    finally:
        user.close()


def warm_up(worker: Worker, client: Client, answering: set[str]) -> None:
    """Publishes until every server of the topics has sent a receipt, so that the test's messages travel bare.

    Adds the names of those that have to `answering`.
    These messages are on the schedule's topics, with an id that no schedule has.
    """
    body = payload(_WARM_UP_ID, worker.scenario.payload_bytes)
    policy = client.cluster.policy
    view = View(client.cluster)
    silent: set[str] = set()
    for topic in map(topic_name, range(worker.scenario.topics)):
        silent.update(server.name for server in view.servers(topic))
        if len(silent) == len(client.cluster.servers):
            break
    deadline_ns = monotonic_ns() + round(READY_TIMEOUT_S * 1e9)
    while silent and (worker.assignment.is_fixed or monotonic_ns() < deadline_ns):
        futures: list[Future[Published]] = []
        covered: set[str] = set()
        for topic in map(topic_name, range(worker.scenario.topics)):
            names = {server.name for server in view.servers(topic)} & silent
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
            answering |= {name for name, outcome in outcomes.items() if outcome is Outcome.RECEIPT}
        silent -= answering
        if silent:
            gevent.sleep(_WARM_UP_RETRY_S)
    if silent:
        logger.warning("%d servers do not answer a publisher: %s", len(silent), ", ".join(sorted(silent)[:5]))
