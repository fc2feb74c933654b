"""Who asks: a caller's requests, what it says for them, and when again. Sans-IO. PROTOCOL §9.11.

A request, with its worker of the moment; which one that is: `choosing`.

| state | sign | next state |
|---|---|---|
| waiting | a worker is chosen | asked |
| waiting | no worker is known for 1 s, and none has worked | ended: NoWorker |
| asked | time-out | asked again, with the same q |
| asked again | time-out | asked, the next worker; waiting, where there is none |
| asked, asked again | `~` | working |
| working | none for 3.5 s | asked again |
| asked, asked again, working | a part | gathering |
| gathering | time-out | gathering, asked for more; as asked again, the second time |
| asked, asked again, working | `busy`, `leaving` | asked, the next worker; waiting, where there is none |
| any | the answer, another refusal, its deadline | ended |
"""

from collections.abc import Callable, Sequence
from itertools import count
from math import ceil, inf

from kcast.client.errors import Backlog, NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Delivery, Drop
from kcast.client.layers.calls import FULL_S, Call, Reply, Worker
from kcast.client.layers.choosing import Workers
from kcast.client.layers.host import Due, Host
from kcast.client.layers.members import Here, Key, MemberJoined, MemberLeft
from kcast.client.layers.parts import Assembly
from kcast.client.layers.words import (
    MS_MAX,
    Answer,
    Asked,
    Declined,
    More,
    Present,
    Working,
    layer_topic,
    parse_word,
)
from kcast.client.messages import base64url
from kcast.client.publishing.waiters import Waiter
from kcast.pubsub.errors import KcastError

WORKING_S = 3.5
NOBODY_S = 1.0
UNUSED_S = 60.0
FULL_S_MAX = 1.0
SILENT_S = 1.0
Q_BYTES = 6


class Caller:
    """The requests of a client on one topic, and its mailbox. A layer.

    `name` is the mailbox's. Who waits for a request is given a `Reply` or a KcastError. It is over once there
    has been no request for 60 s.
    """

    def __init__(self, host: Host, topic: bytes, name: str) -> None:
        self._host = host
        self._topic = topic
        self._name = name
        self._here = Here(host, topic, self._member_changed)
        self.topics = self._here.topic, layer_topic(topic, name.encode())
        self._calls: dict[str, Call] = {}
        self._workers = Workers(host.rng)
        self._freed: list[tuple[Worker, bool]] = []  # which may be sent one more, and whether that is a trial
        self._due: Due[Call | Worker] = Due()
        self._numbers = count()
        self._is_ready = False
        self.used_at = inf  # when there was a request last
        self.is_over = False

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        at = min(self._due.next_at, self._here.next_at, self.used_at + UNUSED_S)
        return -inf if self._freed else at

    # --- What the application wants -------------------------------------------------------------------

    def ask(
        self, waiter: Waiter, payload: bytes, method: str, timeout_s: float, now: float, to: str | None = None
    ) -> None:
        """Sends a request to one worker. `timeout_s` is more than 0, and 3600 at most."""
        self._begin(self._new(waiter, payload, method, now + timeout_s, to), now)

    def ask_all(self, waiter: Waiter, payload: bytes, method: str, timeout_s: float, now: float) -> None:
        """Sends a request to each worker that is known 1 s after the leases stand; the waiter is given their
        replies or errors, by name."""
        call = self._new(waiter, payload, method, now + timeout_s, None)
        call.is_to_all = True
        self._begin(call, now)

    def _new(self, waiter: Waiter, payload: bytes, method: str, deadline: float, to: str | None) -> Call:
        q = base64url.encode(self._host.rng.randbytes(Q_BYTES))
        target = (None, method) if to is None else (to, "")
        return Call(next(self._numbers), q, method, payload, deadline, waiter, target)

    def _begin(self, call: Call, now: float) -> None:
        self.used_at = now
        self._calls[call.q] = call
        self._choose(call, now)

    # --- A layer's ------------------------------------------------------------------------------------

    def hear(self, delivery: Delivery, now: float) -> None:
        """Takes presence, and what workers say."""
        if delivery.topic != self._here.topic:
            self._hear_word(delivery, now)
        else:
            said = self._here.hear(delivery, now)
            if isinstance(said, Present):
                self._hear_present(delivery.sender, said, now)
        self._go_on(now)

    def handle_timeout(self, now: float) -> None:
        """Asks again, or the next one, or gives up, where a time is over."""
        if not self._is_ready and self._here.look(now):
            self._is_ready = True
            for call in list(self._calls.values()):
                self._choose(call, now)
        self._here.handle_timeout(now)
        while (item := self._due.pop(now)) is not None:
            if isinstance(item, Call):
                self._time_is_over(item, now)
            else:
                self._try_later(item, min(2 * item.full_s, FULL_S_MAX), now)
                self._wake(item, now, is_trial=True)
        self._go_on(now)
        if len(self):
            self.used_at = now
        self.is_over = now >= self.used_at + UNUSED_S

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Ends all requests with an error."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.waiter.done():
                call.waiter.set_exception(make_error())
                call.waiter.exception()  # asyncio complains of errors that nobody has looked at

    # --- Asking ---------------------------------------------------------------------------------------

    def _choose(self, call: Call, now: float, last: Worker | None = None) -> None:
        """Asks one of the workers that may be asked; waits where there is none."""
        if call.waiter.done() or now >= call.deadline:
            self._give_up(call)
        elif call.is_to_all and now >= (begins_at := self._here.readiness.since + NOBODY_S):
            self._ask_each(call, now)
        elif call.is_to_all:
            self._look_for_workers(call, now)
            self._wait(call, begins_at)
        elif self._is_ready and (worker := self._workers.choose(call.target, last)) is not None:
            self._go_to(call, worker)
            self._ask(call, now)
        else:
            self._workers.add(call)
            self._look_for_workers(call, now)
            self._wait(call, now + NOBODY_S)

    def _look_for_workers(self, call: Call, now: float) -> None:
        to, method = call.target
        call.is_alone = self._is_ready and not self._workers.of(call.target)
        if call.is_alone or (call.is_to_all and self._is_ready):
            self._here.ask(method if to is None else None, now)
            self._here.handle_timeout(now)

    def _ask(self, call: Call, now: float) -> None:
        assert call.worker is not None
        key = call.worker.key
        call.asked[key] = None  # parts that came may be of another answer than its next one
        call.sent.setdefault(key, now)
        call.attempts += 1
        ms = min(MS_MAX, ceil((call.deadline - now) * 1000))
        self._say(call, Asked(call.q, self._name, ms, call.method, call.payload), now)

    def _ask_for_more(self, call: Call, assembly: Assembly, now: float) -> None:
        assembly.asked_from = assembly.missing
        self._say(call, More(call.q, self._name, assembly.missing), now)

    def _say(self, call: Call, word: Asked | More, now: float) -> None:
        """Says it to the worker of the moment, and waits."""
        assert call.worker is not None
        self._wait_for(call, now)
        try:
            self._host.publish(layer_topic(self._topic, call.worker.key[1].encode()), bytes(word), now)
        except Backlog:
            call.silences -= 1  # that the worker says nothing now is no fault of its own
        except KcastError as error:
            self._end(call, error)

    def _wait_for(self, call: Call, now: float) -> None:
        assert call.worker is not None
        self._wait(call, now + call.worker.round_trip.timeout_s * 2**call.silences)

    def _wait(self, call: Call, at: float) -> None:
        self._due.put(call, min(at, call.deadline))

    # --- What comes back ------------------------------------------------------------------------------

    def _hear_present(self, sender: str | None, said: Present, now: float) -> None:
        worker = self._workers.known.get((sender, said.member))
        if worker is not None and worker.methods != said.methods:
            self._workers.place(worker, said.methods)
            self._freed.append((worker, False))
        if (
            worker is not None and now >= worker.silent_since + SILENT_S
        ):  # else it may be the answer to what we asked just now
            self._awake(worker)

    def _awake(self, worker: Worker) -> None:
        worker.silent_since = inf
        self._freed.append((worker, False))

    def _hear_word(self, delivery: Delivery, now: float) -> None:
        word = None if delivery.publisher is None else parse_word(delivery.payload)
        if word is None:
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
            return
        call = self._calls.get(word.q)
        key = delivery.sender, word.member
        if call is None or isinstance(word, (Asked, More)) or key not in call.asked:
            self._host.drops[Drop.UNAWAITED] += 1
        elif call.waiter.done():
            self._give_up(call)
        elif isinstance(word, Answer) and not _has_put(call, key, word):
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
        else:
            self._take(call, key, word, now)

    def _take(self, call: Call, key: Key, word: Answer | Declined | Working, now: float) -> None:
        worker = self._workers.known.get(key)
        sent_at = call.sent.pop(key, None)
        if worker is not None:
            worker.heard_at = now
            if sent_at is not None:
                worker.round_trip.observe(now - sent_at)
            if worker.silent_since < inf:
                self._awake(worker)
        if isinstance(word, Declined):
            if word.code not in ("busy", "leaving"):
                self._end(call, RemoteError(word.code, word.text))
            elif call.worker is not None and call.worker.key == key:
                self._is_declined(call, call.worker, word.code, now)
            return
        call.has_worked = call.has_worked or isinstance(word, Working)
        if call.worker is None:
            self._go_to(call, worker or Worker(key))
        is_current = call.worker is not None and call.worker.key == key
        tried = call.worker if is_current and call.is_trial else None
        if is_current:
            self._is_heard(call)
            call.is_trial = False
        if isinstance(word, Answer):
            self._take_part(call, key, is_current, now)
        elif is_current and call.asked[key] is None:
            call.silences = 0
            self._wait(call, now + WORKING_S)
        if tried is not None and tried.is_full:
            self._try_later(tried, FULL_S, now)
            self._freed.append((tried, True))

    def _is_declined(self, call: Call, worker: Worker, code: str, now: float) -> None:
        self._leave(call)
        if code == "leaving":
            self._here.roster.forget(worker.key, "left")
        elif not worker.is_full:
            worker.is_full = True
            self._try_later(worker, FULL_S, now)
        self._choose(call, now)

    def _take_part(self, call: Call, key: Key, is_current: bool, now: float) -> None:
        assembly = call.asked[key]
        assert assembly is not None
        if assembly.is_whole:
            sender, name = key
            self._end(call, Reply(assembly.payload(), name, sender, call.attempts))
        elif is_current:
            call.silences = 0
            if assembly.is_to_go_on:
                self._ask_for_more(call, assembly, now)
            else:
                self._wait_for(call, now)

    # --- Workers that are full, or not any more -------------------------------------------------------

    def _try_later(self, worker: Worker, full_s: float, now: float) -> None:
        """Lets a worker be full for some time, which chance shortens: so that others come, too."""
        worker.full_s = full_s
        self._due.put(worker, now + full_s * (1 + self._host.rng.random()) / 2)

    def _wake(self, worker: Worker, now: float, *, is_trial: bool) -> None:
        """Asks a worker for who waits for it, the first ones first: for one where it is full."""
        while self._is_ready and worker.takes_one:
            call = self._workers.first(worker)
            if call is None:
                worker.is_full, worker.at = False, inf
                return
            if call.waiter.done() or now >= call.deadline:
                self._give_up(call)
                continue
            self._go_to(call, worker)
            call.is_trial = is_trial
            self._ask(call, now)
            if worker.is_full:
                return

    def _go_on(self, now: float) -> None:
        """Asks for those who can go on, as workers have come, or have a place again."""
        while self._freed:
            worker, is_trial = self._freed.pop(0)
            self._wake(worker, now, is_trial=is_trial)

    # --- Time, and ends -------------------------------------------------------------------------------

    def _time_is_over(self, call: Call, now: float) -> None:
        if now >= call.deadline or call.waiter.done():
            self._give_up(call)
        elif call.worker is not None:
            self._silence(call, call.worker, now)
        elif call.is_alone and not call.has_worked and not self._workers.of(call.target):
            self._end(call, NoWorker(_nobody(call, self._workers.methods())))
        else:
            self._choose(call, now)

    def _silence(self, call: Call, worker: Worker, now: float) -> None:
        assembly = call.asked[worker.key]
        is_known = worker.key in self._workers.known
        call.silences += 1
        if is_known and call.silences < 2:
            if assembly is not None:
                self._ask_for_more(call, assembly, now)
            else:
                self._ask(call, now)
            return
        if is_known and worker.heard_at < call.sent.get(worker.key, now):
            worker.silent_since, worker.is_full, worker.at = now, False, inf
        self._leave(call)
        self._choose(call, now, worker)

    def _go_to(self, call: Call, worker: Worker) -> None:
        self._workers.discard(call)
        call.worker, call.silences, call.is_trial, call.is_unheard = worker, 0, False, True
        worker.calls += 1
        worker.unheard += 1

    def _is_heard(self, call: Call) -> None:
        if call.is_unheard and call.worker is not None:
            call.is_unheard = False
            if not call.worker.takes_one and not call.worker.is_full:
                self._freed.append((call.worker, False))
            call.worker.unheard -= 1

    def _leave(self, call: Call) -> None:
        if call.worker is not None:
            self._is_heard(call)
            call.worker.calls -= 1
            call.worker = None

    def _give_up(self, call: Call) -> None:
        self._end(call, RequestTimeout(call.attempts, call.has_worked))

    def _end(self, call: Call, found: Reply | KcastError) -> None:
        if self._calls.pop(call.q, None) is None:
            return
        call.at = inf
        if call.worker is not None and call.worker.is_full:
            self._freed.append((call.worker, False))
        self._leave(call)
        self._workers.discard(call)
        if call.waiter.done():
            return
        if call.found is not None:
            call.found[str(call.target[0])] = found
            if None not in call.found.values():
                call.waiter.set_result(call.found)
        elif isinstance(found, KcastError):
            call.waiter.set_exception(found)
            call.waiter.exception()
        else:
            call.waiter.set_result(found)

    def _member_changed(self, change: MemberJoined | MemberLeft) -> None:
        key = change.member.sender, change.member.name
        if isinstance(change, MemberJoined):
            self._workers.known[key] = Worker(key)  # its methods: `_hear_present`
        else:
            self._workers.remove(self._workers.known.pop(key))

    def _ask_each(self, call: Call, now: float) -> None:
        found = dict.fromkeys(worker.key[1] for worker in self._workers.of(call.target))
        if not found:
            self._end(call, NoWorker(_nobody(call, self._workers.methods())))
            return
        del self._calls[call.q]
        for name in found:
            one = self._new(call.waiter, call.payload, call.method, call.deadline, name)
            one.found = found
            self._begin(one, now)


def _has_put(call: Call, key: Key, word: Answer) -> bool:
    """Puts a part to the others of its answer; returns whether it fits."""
    assembly = call.asked[key] or Assembly(word.parts)
    if not assembly.put(word.part, word.parts, word.payload):
        return False
    call.asked[key] = assembly
    return True


def _nobody(call: Call, methods: Sequence[str]) -> str:
    to, _ = call.target
    if to is not None:
        return f"no worker {to} is known on this topic: 'kcast who' shows who is there"
    which = f"the method {call.method}" if call.method else "the unnamed method"
    if methods:
        return f"there are workers, but none with {which}: they have {', '.join(methods)}"
    return (
        f"no worker with {which} is known on this topic: start one, or ask again if one has just begun; "
        "'kcast who' shows who is there"
    )
