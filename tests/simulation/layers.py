"""Layers on the simulated network: callers, workers and members, in turns of real cores.

A `LayerRun` does for a layer what a client's engine does. `Requests` is a world with workers and callers on
one topic, and the ledger of what they asked, ran and were told; `CHECKERS` judge by that.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any

from kcast.client.events import Delivery, Drop, LeasesChanged
from kcast.client.layers.caller import Caller
from kcast.client.layers.calls import Reply
from kcast.client.layers.host import Layer
from kcast.client.layers.members import MEMBERS_MAX, Member, Members
from kcast.client.layers.service import KEPT_BYTES_MAX, KEPT_S, Job, Service
from kcast.client.layers.words import Answer, Asked, Declined, More, Word, parse_word
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import Guard
from kcast.pubsub.errors import KcastError
from tests.simulation.checkers import LeasedAgain
from tests.simulation.hosts import ClientHost
from tests.simulation.ledger import ClientTurn
from tests.simulation.options import Options
from tests.simulation.world import World

TOPIC = b"calc"
LATE_S = 0.05
AGREE_S = 10.0
REFUSED_S = 2.0  # the longest time that a worker is left in peace, and what the next attempt takes
JOB_BYTES_MAX = 256 * 1024 + 512


class LayerRun:
    """A layer on a simulated client: its host, and its turns. `heard` and `said` see each payload."""

    spins_max = 50

    def __init__(self, world: World, client: ClientHost) -> None:
        self.world = world
        self.client = client
        self.rng = Random(world.rng.getrandbits(64))
        self.drops: Counter[Drop] = Counter()
        self.layer: Any = None
        self.heard: Callable[[Delivery, float], None] = lambda delivery, now: None
        self.said: Callable[[bytes, bytes, float], None] = lambda topic, payload, now: None
        self.after_turn: Callable[[float], None] = lambda now: None
        self._is_turn_planned = False
        self._timer_at = inf

    def begin(self, layer: Layer, guard: Guard | None = None) -> None:
        self.layer = layer
        self.world.watchers.append(self._watch)
        for topic in layer.topics:
            self.client.subscribe(topic, guard)
        self.due()

    def publish(self, topic: bytes, payload: bytes, now: float) -> None:
        self.said(topic, payload, now)
        self.world.ledger.publish(self.client, topic, payload, confirm=False, raw=False)
        self.client.core.publish(topic, payload, now, confirm=False)
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self.world.clock.after(0.0, self._turn)

    def each_leases(self) -> Sequence[tuple[int, int]]:
        return [
            self.client.core.lease_counts(topic) if topic in self.client.subscribed else (0, 1)
            for topic in self.layer.topics
        ]

    def due(self) -> None:
        """Does what is due, and sees to it that it is done later what is due then. Stops a layer that is
        over, as an engine does."""
        if not self.client.can_act or self.layer.is_over:
            return
        now = self.client.now
        spins = 0
        while self.layer.next_at <= now:
            self.layer.handle_timeout(now)
            if self.layer.is_over:
                for topic in self.layer.topics:
                    self.world.clock.after(0.0, partial(self.client.unsubscribe, topic))
                return
            spins += 1
            if spins > self.spins_max:
                self.world.violate("no-spinning", f"a layer of {self.client.name} is due again and again")
        at = self.layer.next_at
        self.after_turn(now)
        if at < self._timer_at or self._timer_at <= now:
            self._timer_at = at
            if at < inf:
                self.world.clock.at(at - self.client.clock_offset_s + 1e-9, partial(self._timer, at))

    def _timer(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = inf
            self.due()

    def _turn(self) -> None:
        self._is_turn_planned = False
        if self.client.can_act:
            self.client.turn()

    def _watch(self, turn: ClientTurn) -> None:
        if turn.host is not self.client or self.layer is None or self.layer.is_over:
            return
        has_changed = False
        for event in turn.events:
            if isinstance(event, Delivery) and event.topic in self.layer.topics:
                self.heard(event, turn.now)
                self.layer.hear(event, turn.now)
            has_changed = has_changed or isinstance(event, LeasesChanged)
        if has_changed:
            self.layer.handle_timeout(turn.now)
        self.due()


@dataclass(eq=False)
class Asking:
    """A request of an application: its end, as it was told. It is the waiter, too."""

    caller: LayerRun
    deadline: float  # on the caller's own clock
    ends: list[tuple[float, object]] = field(default_factory=list)

    def done(self) -> bool:
        return False

    def set_result(self, result: Reply, /) -> None:
        self.ends.append((self.caller.client.now, result))

    def set_exception(self, error: BaseException, /) -> None:
        self.ends.append((self.caller.client.now, error))

    def exception(self) -> BaseException | None:
        return None

    @property
    def found(self) -> object:
        """What it ended with; None as long as it has not."""
        return self.ends[0][1] if self.ends else None


@dataclass(eq=False)
class Worker:
    """A worker of the world: what it read, and what ran."""

    run: LayerRun
    service: Service
    concurrency: int
    until: dict[str, float] = field(default_factory=dict)  # of each q, by when it is to begin
    answer_until: dict[str, float] = field(
        default_factory=dict
    )  # and to be answered, where it was read again
    reads: deque[float] = field(default_factory=deque)
    kept_s: float = KEPT_S
    ran: Counter[tuple[str, str]] = field(default_factory=Counter)


class LayerChecker:
    """An invariant of layers; `name` is what a violation says."""

    name = ""

    def __init__(self, requests: "Requests") -> None:
        self.requests = requests

    def began(self, worker: Worker, job: Job, now: float) -> None:
        """A job begins."""

    def said(self, worker: Worker, word: Word, now: float) -> None:
        """A worker says something to a caller."""

    def caller_turn(self, run: LayerRun, now: float) -> None:
        """A caller has done what was due."""

    def finish(self) -> None:
        """Looks at the whole, at its end."""

    def fail(self, facts: str) -> None:
        self.requests.world.violate(self.name, facts)


class OneEnd(LayerChecker):
    """A request ends once, by its deadline and 50 ms; a machine that stands still ends it when it goes on."""

    name = "one-end"

    def caller_turn(self, run: LayerRun, now: float) -> None:
        for asking in self.requests.open[run]:
            if (
                now > asking.deadline + LATE_S
                and not self.requests.stood(run, asking.deadline)
                and not asking.ends
            ):
                self.fail(f"{run.client.name} has a request that is over since {now - asking.deadline:.3f} s")

    def finish(self) -> None:
        for asking in self.requests.askings:
            if len(asking.ends) != 1:
                self.fail(f"{asking.caller.client.name} has a request with {len(asking.ends)} ends")
            at, found = asking.ends[0]
            if at > asking.deadline + LATE_S and not self.requests.stood(asking.caller, asking.deadline):
                self.fail(f"{asking.caller.client.name} was told {found!r} {at - asking.deadline:.3f} s late")


class OncePerWorker(LayerChecker):
    """A worker runs a q once."""

    name = "once-per-worker"

    def began(self, worker: Worker, job: Job, now: float) -> None:
        _, member, q = job.key
        if worker.ran[member, q] > 1:
            self.fail(f"{worker.run.client.name} runs {q} of {member} again")


class NoneAfterDeadline(LayerChecker):
    """Nothing begins, and nothing is answered, when a request was read too long ago."""

    name = "none-after-deadline"

    def began(self, worker: Worker, job: Job, now: float) -> None:
        _, _, q = job.key
        if now >= worker.until[q]:
            self.fail(f"{worker.run.client.name} begins with {q} {now - worker.until[q]:.3f} s late")

    def said(self, worker: Worker, word: Word, now: float) -> None:
        if isinstance(word, Answer) and not word.part and now > worker.answer_until[word.q]:
            late_s = now - worker.answer_until[word.q]
            self.fail(f"{worker.run.client.name} answers {word.q} {late_s:.3f} s late")


class FreeBeforeBusy(LayerChecker):
    """No request waits while its caller knows a worker that has refused none of late, was not silent, and is
    not being tried just now."""

    name = "free-before-busy"

    def caller_turn(self, run: LayerRun, now: float) -> None:
        caller = run.layer
        if not caller._is_ready:
            return
        tried = {call.worker.key for call in caller._calls.values() if call.worker and call.is_trial}
        for call in caller._calls.values():
            if call.worker is not None or call.is_to_all:
                continue
            for key, member in caller._here.roster:
                if (
                    call.method in member.methods
                    and key not in tried
                    and caller._workers.known[key].takes_one
                    and self.requests.refused_at.get((run, key[1]), -inf) < now - REFUSED_S
                ):
                    self.fail(f"{run.client.name} lets {call.q} wait, and knows {key[1]}")


class Bounded(LayerChecker):
    """What workers and callers keep is bounded, and callers keep nothing of what has ended."""

    name = "bounded"

    def said(self, worker: Worker, word: Word, now: float) -> None:
        service = worker.service
        if service.running > worker.concurrency:
            self.fail(f"{worker.run.client.name} runs {service.running} at a time")
        if service._bytes_kept > KEPT_BYTES_MAX + JOB_BYTES_MAX * (1 + service.running):
            self.fail(f"{worker.run.client.name} keeps {service._bytes_kept} bytes")
        while worker.reads and worker.reads[0] <= now - worker.kept_s:
            worker.reads.popleft()
        young = len(worker.reads)
        if isinstance(word, Answer) and len(service) > young + service.running + 1:
            self.fail(f"{worker.run.client.name} keeps {len(service)} requests, and {young} are young")

    def caller_turn(self, run: LayerRun, now: float) -> None:
        if len(run.layer._here.roster) > MEMBERS_MAX:
            self.fail(f"{run.client.name} knows {len(run.layer._here.roster)} members")

    def finish(self) -> None:
        for run in self.requests.callers:
            if len(run.layer):
                self.fail(f"{run.client.name} keeps {len(run.layer)} requests that have ended")


class MembersAgree(LayerChecker):
    """10 s after the last fault all members know the same, which are those who are there."""

    name = "members-agree"

    def finish(self) -> None:
        there = {name for name, run in self.requests.members.items() if run.client.can_act}
        there |= {worker.service.name for worker in self.requests.workers if worker.run.client.can_act}
        for run in self.requests.members.values():
            layer: Members = run.layer
            known = {member.name for member in layer.alive}
            if run.client.can_act and known != there:
                self.fail(f"{run.client.name} knows {sorted(known)}, and there are {sorted(there)}")


CHECKERS = (OneEnd, OncePerWorker, NoneAfterDeadline, FreeBeforeBusy, Bounded, MembersAgree)


@dataclass(frozen=True)
class Work:
    """How the requests of a run are: how many callers and workers, and what handlers do."""

    workers: int = 2
    callers: int = 2
    members: int = 1
    concurrency: int = 2
    interval_s: float = 0.3
    timeout_s: tuple[float, ...] = (0.3, 2.0, 5.0)
    job_s: tuple[float, ...] = (0.0, 0.0, 0.0, 0.01, 0.1, 0.2, 1.5)
    starts_s: tuple[float, ...] = (0.0, 0.0, 0.0, 0.4)  # until a thread begins with it
    fails: float = 0.05  # of all handlers
    answer_bytes: tuple[int, ...] = (0, 10, 5_000, 40_000)


class Requests:
    """Callers, workers and members of one topic in a world, each on a client of its own."""

    def __init__(
        self,
        options: Options,
        work: Work = Work(),
        *,
        make_caller: Callable[..., Caller] = Caller,
        make_service: Callable[..., Service] = Service,
        make_members: Callable[..., Members] = Members,
        make_world: Callable[[Options], World] = World,
    ) -> None:
        self.world = world = make_world(options)
        world.checkers = [world.checker(LeasedAgain)]  # the others have seeds of their own, and take time
        self.work = work
        self.rng = Random(f"requests {options.seed}")
        self.askings: list[Asking] = []
        self.open: dict[LayerRun, list[Asking]] = {}
        self.refused_at: dict[tuple[LayerRun, str], float] = {}
        self.members: dict[str, LayerRun] = {}
        self._runs: list[LayerRun] = []
        self._paused: dict[ClientHost, list[tuple[float, float]]] = {}
        self.checkers = [make(self) for make in CHECKERS]
        self._make_service, self._make_caller = make_service, make_caller
        self.workers = [self.add_worker() for _ in range(work.workers)]
        self.callers = [self.add_caller() for _ in range(work.callers)]
        for number in range(work.members):
            run = self._run()
            name = new_publisher(run.rng)
            self.members[name] = run
            run.begin(make_members(run, TOPIC, name, f"number {number}", _ignore))

    def _run(self) -> LayerRun:
        client = self.world.add_client(*self.world.new_client_addresses())
        _note_pauses(client, self._paused.setdefault(client, []))
        self._runs.append(LayerRun(self.world, client))
        return self._runs[-1]

    def subscribe_again(self) -> None:
        """Ends the last fault: who left a topic comes back, also where its machine stood still when it was to
        do that."""
        for run in self._runs:
            for topic in run.layer.topics:
                run.client.subscribe(topic)

    def stood(self, run: LayerRun, since: float) -> bool:
        """Whether the machine of a layer has stood still since some time, on its own clock."""
        client = run.client
        return client.is_paused or any(end >= since for _, end in self._paused[client])

    # --- Workers --------------------------------------------------------------------------------------

    def add_worker(self) -> Worker:
        run = self._run()
        begun: list[Worker] = []
        service = self._make_service(
            run, TOPIC, new_publisher(run.rng), ("add",), lambda job: self._start(begun[0], job),
            concurrency=self.work.concurrency,
        )  # fmt: skip
        worker = Worker(run, service, self.work.concurrency)
        begun.append(worker)
        run.heard = partial(self._worker_heard, worker)
        run.said = partial(self._worker_said, worker)
        run.begin(service)
        return worker

    def _worker_heard(self, worker: Worker, delivery: Delivery, now: float) -> None:
        word = parse_word(delivery.payload)
        if isinstance(word, Asked) and delivery.topic == worker.service.topics[1]:
            left_s = word.ms / 1000
            worker.reads.append(now)
            worker.kept_s = max(worker.kept_s, 2 * left_s)
            worker.answer_until[word.q] = max(now + left_s, worker.answer_until.get(word.q, 0.0))
            if (delivery.sender, word.member, word.q) not in worker.service._jobs:  # it was refused before
                worker.until[word.q] = now + left_s
        elif isinstance(word, More) and delivery.topic == worker.service.topics[1]:
            worker.answer_until[word.q] = max(now, worker.answer_until.get(word.q, 0.0))

    def _worker_said(self, worker: Worker, topic: bytes, payload: bytes, now: float) -> None:
        word = parse_word(payload)
        if word is not None and topic != worker.service.topics[0]:
            for checker in self.checkers:
                checker.said(worker, word, now)

    def _start(self, worker: Worker, job: Job) -> None:
        self.world.clock.after(self.rng.choice(self.work.starts_s), partial(self._go, worker, job))

    def _go(self, worker: Worker, job: Job) -> None:
        if not worker.run.client.is_up:
            return
        if worker.run.client.is_paused:
            self.world.clock.after(0.05, partial(self._go, worker, job))
            return
        now = worker.run.client.now
        if worker.service.may_begin(job, now):
            _, member, q = job.key
            worker.ran[member, q] += 1
            for checker in self.checkers:
                checker.began(worker, job, now)
            self.world.clock.after(self.rng.choice(self.work.job_s), partial(self._finish, worker, job))
        else:
            worker.service.finish(job, b"", now)

    def _finish(self, worker: Worker, job: Job) -> None:
        if not worker.run.client.is_up:
            return
        if worker.run.client.is_paused:
            self.world.clock.after(0.05, partial(self._finish, worker, job))
            return
        now = worker.run.client.now
        if self.rng.random() < self.work.fails:
            worker.service.fail(job, "failed", "ValueError", now)
        else:
            worker.service.finish(job, bytes(self.rng.choice(self.work.answer_bytes)), now)
        worker.run.due()

    # --- Callers --------------------------------------------------------------------------------------

    def add_caller(self) -> LayerRun:
        run = self._run()
        self.open[run] = []
        run.heard = partial(self._caller_heard, run)
        run.after_turn = partial(self._caller_turn, run)
        run.begin(self._make_caller(run, TOPIC, new_publisher(run.rng)))
        return run

    def ask(self, run: LayerRun, timeout_s: float, payload: bytes = b"1 2") -> Asking:
        """One request, at once."""
        now = run.client.now
        asking = Asking(run, now + timeout_s)
        self.askings.append(asking)
        self.open[run].append(asking)
        run.layer.ask(asking, payload, "add", timeout_s, now)
        run.due()
        return asking

    def keep_asking(self, run: LayerRun, until: float) -> None:
        """Asks at random times, until some virtual time."""
        if self.world.clock.time < until:
            if run.client.can_act:
                self.ask(run, self.rng.choice(self.work.timeout_s))
            delay_s = self.rng.expovariate(1 / self.work.interval_s)
            self.world.clock.after(delay_s, partial(self.keep_asking, run, until))

    def _caller_heard(self, run: LayerRun, delivery: Delivery, now: float) -> None:
        word = parse_word(delivery.payload)
        if isinstance(word, Declined) and word.code in ("busy", "leaving"):
            self.refused_at[run, word.member] = now

    def _caller_turn(self, run: LayerRun, now: float) -> None:
        for checker in self.checkers:
            checker.caller_turn(run, now)
        self.open[run] = [asking for asking in self.open[run] if not asking.ends]

    def finish(self) -> None:
        for checker in self.checkers:
            checker.finish()


def _note_pauses(client: ClientHost, pauses: list[tuple[float, float]]) -> None:
    """Keeps when a client's machine stood still, on its own clock."""
    pause, resume = client.pause, client.resume
    since: list[float] = []

    def paused() -> None:
        if not client.is_paused:
            since.append(client.now)
        pause()

    def resumed() -> None:
        if client.is_paused:
            pauses.append((since.pop(), client.now))
        resume()

    client.pause, client.resume = paused, resumed  # type: ignore[method-assign]


def _ignore(change: object) -> None:
    """Nobody iterates over the members."""


def replies(askings: Sequence[Asking]) -> list[Reply]:
    """Those that were answered."""
    return [asking.found for asking in askings if isinstance(asking.found, Reply)]


def errors(askings: Sequence[Asking]) -> list[KcastError]:
    """What the others ended with."""
    return [asking.found for asking in askings if isinstance(asking.found, KcastError)]


def names(members: Sequence[Member]) -> set[str]:
    return {member.name for member in members}
