"""Members and requests on the simulated network: seeds, the checkers with their saboteurs, and figures."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from kcast.client.events import Drop
from kcast.client.layers.caller import UNUSED_S, Caller
from kcast.client.layers.calls import Call, Worker
from kcast.client.layers.members import Members
from kcast.client.layers.service import Job, Service
from kcast.client.layers.words import More
from kcast.hashring import model
from kcast.hashring.intervals import wilson
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import Limits
from tests.simulation import scenario
from tests.simulation.checker import InvariantViolation
from tests.simulation.layers import (
    AGREE_S,
    CHECKERS,
    LayerRun,
    Requests,
    Work,
    errors,
    replies,
)
from tests.simulation.options import Options, options_of_seed
from tests.support.forms import Seeds, few_of

USUAL = Work()
CALM = Options(seed=1, servers=5, clients=0, policy=Policy(5, 2, 5), delay_s=0.002, ttl_s=15, fault_s=8.0)


def run(requests: Requests) -> Requests:
    """The whole scenario, with all the faults of its options; then all that must hold is looked at."""
    world = requests.world
    for caller in requests.callers:
        world.clock.after(1.0, partial(requests.keep_asking, caller, world.options.fault_s + 4.0))
    world.clock.at(world.options.fault_s + 0.01, requests.subscribe_again)
    scenario.run(world)
    world.run_for(AGREE_S)
    requests.finish()
    return requests


def options_of(seed: int) -> Options:
    """The settings of a seed, without what refuses or forges messages: the network, and the faults."""
    return replace(
        options_of_seed(seed),
        clients=0, topics=1, limits=Limits(), diverging=False, hostile_servers=0, rogues=(), attacks=0,
    )  # fmt: skip


@pytest.mark.parametrize("remainder", range(4))
def test_seeds(seeds: Seeds, remainder: int) -> None:
    """In four parts, which several processes can run."""
    for seed in seeds(2, 200):
        if seed % 4 == remainder:
            run(Requests(options_of(seed)))


# --- The checkers find what is wrong -----------------------------------------------------------------


class Forgetful(Caller):
    """Forgets a request when its worker is silent."""

    def _silence(self, call: Call, worker: Worker, now: float) -> None:
        pass


class Repeating(Caller):
    """Tells twice how a request has ended."""

    def _end(self, call: Call, found: Any) -> None:
        call.waiter.set_result(found)
        super()._end(call, found)


class Diligent(Service):
    """Remembers no q once it is answered."""

    def _answer(self, job: Job, first: int, now: float) -> None:
        super()._answer(job, first, now)
        if self._jobs.pop(job.key, None) is not None:
            self._bytes_kept -= job.bytes_kept


class Tardy(Service):
    """Has all the time in the world."""

    def may_begin(self, job: Job, now: float) -> bool:
        return True


class Belated(Service):
    """Answers after the time that a request leaves."""

    def handle_timeout(self, now: float) -> None:
        for job in self._jobs.values():
            job.until = 1e9
        super().handle_timeout(now)


class Resigned(Caller):
    """Waits where the first worker is busy."""

    def _choose(self, call: Call, now: float, last: Any = None) -> None:
        for worker in self._workers.of(call.target):
            worker.is_full = any(each.is_full for each in self._workers.of(call.target))
        super()._choose(call, now, last)


class Greedy(Service):
    """Runs all that comes."""

    def __init__(self, *arguments: Any, concurrency: int, **options: Any) -> None:
        super().__init__(*arguments, concurrency=1000, **options)


class Hoarder(Service):
    """Never forgets an answer."""

    def _forget_old(self, now: float) -> None:
        pass


class Mumbler(Members):
    """Says only once that it is there."""

    def __init__(self, host: LayerRun, *arguments: Any) -> None:
        super().__init__(host, *arguments)
        herald = self._herald
        assert herald is not None
        say = herald.handle_timeout

        def once(now: float) -> None:
            if now >= herald.next_at:
                say(now)
                herald.next_at = float("inf")

        herald.handle_timeout = once  # type: ignore[method-assign]


@dataclass(frozen=True)
class Sabotage:
    """What is broken, in which weather, and which checker must say so."""

    checker: str
    make: dict[str, Any]
    options: Options = CALM
    work: Work = USUAL


ROUGH = replace(CALM, loss=0.3, policy=Policy(5, 1, 5), faults=3)
SLOW = Work(timeout_s=(0.3,), job_s=(0.5,), starts_s=(0.0, 0.4))
CROWDED = Work(workers=3, concurrency=1, interval_s=0.05, job_s=(0.2,))
SABOTAGES = {
    "requests that never end": Sabotage("one-end", {"make_caller": Forgetful}, ROUGH),
    "requests that end twice": Sabotage("one-end", {"make_caller": Repeating}),
    "answers not kept": Sabotage("once-per-worker", {"make_service": Diligent}, ROUGH),
    "begun after its time": Sabotage("none-after-deadline", {"make_service": Tardy}, work=SLOW),
    "answered after its time": Sabotage("none-after-deadline", {"make_service": Belated}, work=SLOW),
    "free workers not asked": Sabotage("free-before-busy", {"make_caller": Resigned}, work=CROWDED),
    "more than its bound": Sabotage("bounded", {"make_service": Greedy}, work=CROWDED),
    "answers without end": Sabotage(
        "bounded", {"make_service": Hoarder}, replace(CALM, fault_s=90.0), Work(interval_s=2.0)
    ),
    "members that do not go on": Sabotage("members-agree", {"make_members": Mumbler}),
}


@pytest.mark.parametrize("name", few_of(SABOTAGES, 7))
def test_what_is_broken_is_found(name: str) -> None:
    sabotage = SABOTAGES[name]
    with pytest.raises(InvariantViolation) as caught:
        run(Requests(sabotage.options, sabotage.work, **sabotage.make))
    assert caught.value.checker == sabotage.checker, caught.value


@pytest.mark.parametrize(
    ("options", "work"), few_of(dict.fromkeys((each.options, each.work) for each in SABOTAGES.values()), 0)
)
def test_what_is_not_broken_passes(options: Options, work: Work) -> None:
    run(Requests(options, work))


def test_every_checker_is_sabotaged() -> None:
    assert {checker.name for checker in CHECKERS} == {sabotage.checker for sabotage in SABOTAGES.values()}


# --- Figures -----------------------------------------------------------------------------------------

QUICK = Work(
    workers=1, callers=1, members=0, concurrency=1000,
    job_s=(0.0,), starts_s=(0.0,), fails=0.0, answer_bytes=(10,),
)  # fmt: skip


def lossless_until_asked(options: Options, work: Work) -> Requests:
    """Workers and callers whose leases stand, and who know each other; from now on the network loses."""
    requests = Requests(options, work)
    loss, requests.world.network.loss = requests.world.network.loss, 0.0
    requests.world.run_for(3.0)
    requests.world.network.loss = loss
    return requests


def ask_often(requests: Requests, count: int, interval_s: float, timeout_s: float = 5.0) -> None:
    """Asks again and again, and waits until all has ended."""
    world = requests.world
    for number in range(count):
        run = requests.callers[number % len(requests.callers)]
        world.clock.after(number * interval_s, partial(_ask, requests, run, timeout_s))
    world.run_for(count * interval_s + timeout_s + 1.0)


def _ask(requests: Requests, run: LayerRun, timeout_s: float) -> None:
    requests.ask(run, timeout_s)


@pytest.mark.parametrize("publish", few_of((1, 2, 3)))
def test_first_attempts_succeed_as_often_as_the_model_says(publish: int, seeds: Seeds) -> None:
    """2 % are lost on each leg; both the request and its answer must arrive: the square of the model's."""
    count = 400 * len(list(seeds(5, 50)))
    options = replace(
        CALM, policy=Policy(5, publish, 5), loss=0.02, uneven=False, ttl_s=60, work_bits=0, seed=publish
    )
    requests = lossless_until_asked(options, QUICK)
    ask_often(requests, count, 0.01)
    answered = replies(requests.askings)
    assert len(answered) == count and not errors(requests.askings)
    first = sum(1 for reply in answered if reply.attempts == 1)
    low, high = wilson(first, count, 0.999)
    expected = model.delivery(5, publish, 5, 0.98**2) ** 2
    print(f"5/{publish}/5: {first} of {count} at the first attempt, expected {expected:.4f}")
    assert low <= expected <= high


@pytest.mark.rest
def test_requests_are_answered_while_servers_are_killed(seeds: Seeds) -> None:
    """5 % are lost on each leg; every 2 s a server is killed, and is back after 1 s."""
    count = 500 * len(list(seeds(2, 20)))
    options = replace(CALM, policy=Policy(5, 3, 5), loss=0.05, uneven=False, seed=7)
    requests = lossless_until_asked(options, replace(QUICK, workers=3))
    world = requests.world

    def kill() -> None:
        server = world.rng.choice(world.servers)
        server.crash()
        world.clock.after(1.0, server.restart)
        world.clock.after(2.0, kill)

    kill()
    ask_often(requests, count, 0.02)
    assert len(replies(requests.askings)) == count, errors(requests.askings)
    print(f"{count} of {count} while servers are killed, {runs_twice(requests)} run twice")
    assert runs_twice(requests) <= count * 0.005


@pytest.mark.rest
def test_requests_are_answered_while_workers_are_killed(seeds: Seeds) -> None:
    """Of four workers one is killed every second, and another one comes."""
    count = 500 * len(list(seeds(2, 20)))
    requests = lossless_until_asked(replace(CALM, ttl_s=60), replace(QUICK, workers=4, job_s=(0.0, 0.02)))
    world = requests.world

    def kill() -> None:
        running = [each for each in requests.workers if each.run.client.is_up]
        requests.rng.choice(running).run.client.crash()
        requests.workers.append(requests.add_worker())
        world.clock.after(1.0, kill)

    kill()
    ask_often(requests, count, 0.02)
    assert len(replies(requests.askings)) == count, errors(requests.askings)
    print(f"{count} of {count} while workers are killed, {runs_twice(requests)} run twice")
    assert runs_twice(requests) <= count * 0.02


def test_a_topic_that_was_left_is_subscribed_to_again_at_the_end() -> None:
    requests = Requests(replace(CALM, fault_s=2.0))
    (member,) = requests.members.values()
    requests.world.clock.after(1.0, partial(member.client.unsubscribe, *member.layer.topics))
    run(requests)


def test_parts_that_are_asked_for_late_are_no_late_answer() -> None:
    """A caller asks for a part in time, and its worker reads that when the time is over."""
    requests = lossless_until_asked(CALM, QUICK)
    (caller,), (worker,) = requests.callers, requests.workers
    requests.ask(caller, 0.1)
    requests.world.run_for(0.2)
    ((member, q),) = worker.ran
    caller.publish(worker.service.topics[1], bytes(More(q, member, 0)), caller.client.now)
    requests.world.run_for(0.2)
    assert caller.drops == {Drop.UNAWAITED: 1}


def test_a_caller_that_is_not_used_ends_its_leases() -> None:
    requests = lossless_until_asked(CALM, QUICK)
    ask_often(requests, 1, 0.0)
    requests.world.run_for(UNUSED_S)
    (caller,) = requests.callers
    assert caller.layer.is_over and not caller.client.subscribed


@pytest.mark.rest
def test_long_answers_come_whole() -> None:
    """200 answers of 64 KiB, where 5 % are lost on each leg."""
    options = replace(CALM, loss=0.05, uneven=False, ttl_s=60, seed=9)
    requests = lossless_until_asked(options, replace(QUICK, answer_bytes=(64 * 1024,)))
    ask_often(requests, 200, 0.25, timeout_s=20.0)
    answered = replies(requests.askings)
    assert len(answered) == 200 and {len(each.payload) for each in answered} == {64 * 1024}


def runs_twice(requests: Requests) -> int:
    """How many requests ran at two workers."""
    ran: Counter[tuple[str, str]] = Counter()
    for worker in requests.workers:
        ran.update(dict.fromkeys(worker.ran, 1))
    return sum(1 for workers in ran.values() if workers > 1)
