"""Who asks: a caller's requests, which workers they go to, and when again. Sans-IO. PROTOCOL §9.11.

A request, with its worker of the moment:

| state | sign | next state |
|---|---|---|
| looking | a worker is known that is not silent | asked |
| looking | no worker is known for 1 s, and none has worked | ended: NoWorker |
| asked | time-out | asked again, with the same q |
| asked again | time-out | asked, the next worker; looking, where there is none |
| asked, asked again | `~` | working |
| working | none for 3.5 s | asked again |
| asked, asked again, working | a part | gathering |
| gathering | time-out | gathering, asked for more; as asked again, the second time |
| asked, asked again, working | `busy`, `leaving` | asked, the next; held, if all are busy; else looking |
| held | a request of ours ends where it was refused, a worker joins, or its time is over | asked |
| any | the answer, another refusal, its deadline | ended |

A worker is *silent* after two time-outs until it is heard again.
"""

import heapq
from collections.abc import Callable, Collection
from math import ceil, inf

from kcast.client.errors import Backlog, NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Delivery, Drop
from kcast.client.layers.calls import FIRST_S, Call, Gathering, Reply, State, Worker
from kcast.client.layers.host import Host, say
from kcast.client.layers.members import Here, Key, MemberJoined, MemberLeft
from kcast.client.layers.parts import Assembly
from kcast.client.layers.words import (
    MS_MAX,
    Answer,
    Asked,
    Declined,
    More,
    Present,
    Word,
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
HELD_S_MAX = 1.0
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
        self._workers: dict[Key, Worker] = {}
        self._waiting: dict[Call, None] = {}  # looking or held, the first one first
        self._due: list[tuple[float, int, Call]] = []
        self._pushed = 0
        self._to_all: list[tuple[float, Call]] = []  # requests of `ask_all`, and when they begin
        self._is_ready = False
        self._is_to_choose = False
        self.used_at = inf  # when there was a request last
        self.is_over = False

    def __len__(self) -> int:
        return len(self._calls) + len(self._to_all)

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        if self._is_to_choose:
            return -inf
        at = self._due[0][0] if self._due else self.used_at + UNUSED_S
        return min(at, self._here.next_at, *(each[0] for each in self._to_all))

    # --- What the application wants -------------------------------------------------------------------

    def ask(
        self,
        waiter: Waiter,
        payload: bytes,
        method: str,
        timeout_s: float,
        now: float,
        to: str | None = None,
    ) -> None:
        """Sends a request to one worker. `timeout_s` is more than 0, and 3600 at most."""
        self._begin(self._new(waiter, payload, method, now + timeout_s, now, to), now)

    def ask_all(self, waiter: Waiter, payload: bytes, method: str, timeout_s: float, now: float) -> None:
        """Sends a request to each worker that is known 1 s after the leases stand; the waiter is given their
        replies or errors, by name."""
        call = self._new(waiter, payload, method, now + timeout_s, now)
        self._to_all.append((now, call))
        self._look_at_all(now)

    def _new(
        self,
        waiter: Waiter,
        payload: bytes,
        method: str,
        deadline: float,
        now: float,
        to: str | None = None,
        to_key: Key | None = None,
    ) -> Call:
        self.used_at = now
        q = base64url.encode(self._host.rng.randbytes(Q_BYTES))
        return Call(q, method, payload, deadline, waiter, to, to_key, now)

    def _begin(self, call: Call, now: float) -> None:
        self._calls[call.q] = call
        self._choose(call, now)

    # --- A layer's ------------------------------------------------------------------------------------

    def hear(self, delivery: Delivery, now: float) -> None:
        """Takes presence, and what workers say."""
        if delivery.topic == self._here.topic:
            said = self._here.hear(delivery, now)
            if isinstance(said, Present):
                self._heard((delivery.sender, said.member))
            if self._is_to_choose:
                self._choose_for_all(now)
            return
        word = None if delivery.publisher is None else parse_word(delivery.payload)
        if word is None:
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
            return
        call = self._calls.get(word.q)
        key = delivery.sender, word.member
        if call is None or isinstance(word, (Asked, More)) or key not in call.asked:
            self._host.drops[Drop.UNAWAITED] += 1
            return
        self._heard(key)
        self._take(call, key, word, now)
        if self._is_to_choose:
            self._choose_for_all(now)

    def handle_timeout(self, now: float) -> None:
        """Asks again, or the next one, or gives up, where a time is over."""
        is_ready = self._here.look(now)
        if is_ready and not self._is_ready:
            self._is_ready = self._is_to_choose = True
            for call in self._waiting:
                call.since = now
        self._here.handle_timeout(now)
        self._look_at_all(now)
        if self._is_to_choose:
            self._choose_for_all(now)
        while self._due and self._due[0][0] <= now:
            at, _, call = heapq.heappop(self._due)
            if at == call.at and not call.is_ended:
                self._time_is_over(call, now)
        if len(self):
            self.used_at = now
        self.is_over = now >= self.used_at + UNUSED_S

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Ends all requests with an error."""
        calls = [*self._calls.values(), *(call for _, call in self._to_all)]
        self._calls.clear()
        self._to_all.clear()
        self._waiting.clear()
        for call in calls:
            call.is_ended = True
            if not call.waiter.done():
                call.waiter.set_exception(make_error())
                call.waiter.exception()  # asyncio complains of errors that nobody has looked at

    # --- Choosing a worker ----------------------------------------------------------------------------

    def _choose(self, call: Call, now: float) -> None:
        """Asks one of the workers that may be asked; waits where there is none."""
        self._waiting.pop(call, None)
        if call.waiter.done() or now >= call.deadline:
            self._give_up(call)
            return
        known = [key for key, member in self._here.roster if self._may_ask(call, key, member.methods)]
        awake = [key for key in known if not self._workers[key].is_silent]
        free = [key for key in awake if key not in call.busy]
        if self._is_ready and free:
            least = min(self._workers[key].calls for key in free)
            few = [key for key in free if self._workers[key].calls == least]
            self._go_to(call, few[self._host.rng.randrange(len(few))])
            call.silences = 0
            self._ask(call, now)
            return
        self._waiting[call] = None
        if self._is_ready and awake:
            if call.state is not State.HELD:
                call.state = State.HELD
                self._wait(call, now + call.held_s)
                call.held_s = min(2 * call.held_s, HELD_S_MAX)
            return
        if call.state is not State.LOOKING:
            call.state, call.since = State.LOOKING, now
        if self._is_ready:
            if call.since == now:
                self._here.ask(call.method if call.to is None else None, now)
                self._here.handle_timeout(now)
            is_long = known or call.has_worked  # NoWorker would say that it was not done
            self._wait(call, call.deadline if is_long else call.since + NOBODY_S)
        else:
            self._wait(call, call.deadline)

    @staticmethod
    def _may_ask(call: Call, key: Key, methods: Collection[str]) -> bool:
        if call.to_key is not None:
            return key == call.to_key
        return call.method in methods if call.to is None else key[1] == call.to

    def _choose_for_all(self, now: float) -> None:
        self._is_to_choose = False
        for call in list(self._waiting):
            self._choose(call, now)

    def _ask(self, call: Call, now: float) -> None:
        key = call.worker
        assert key is not None and call.load is not None
        call.state = State.ASKED
        call.attempts += 1
        call.asked.setdefault(key, None)
        call.sent_at = now
        self._wait_for(call, now)
        ms = min(MS_MAX, ceil((call.deadline - now) * 1000))
        asked = Asked(call.q, self._name, ms, call.method, call.payload)
        try:
            self._host.publish(layer_topic(self._topic, key[1].encode()), bytes(asked), now)
        except Backlog:
            pass  # as if lost on its way
        except KcastError as error:
            self._end(call, error)

    def _wait_for(self, call: Call, now: float) -> None:
        timeout_s = FIRST_S if call.load is None else call.load.round_trip.timeout_s
        self._wait(call, now + timeout_s * 2**call.silences)

    def _wait(self, call: Call, at: float) -> None:
        call.at = min(at, call.deadline)
        self._pushed += 1
        heapq.heappush(self._due, (call.at, self._pushed, call))

    # --- What comes back ------------------------------------------------------------------------------

    def _heard(self, key: Key) -> None:
        worker = self._workers.get(key)
        if worker is not None and worker.is_silent:
            worker.is_silent, self._is_to_choose = False, True

    def _take(self, call: Call, key: Key, word: Word, now: float) -> None:
        worker = self._workers.get(key)
        is_first = call.worker == key and call.state is State.ASKED and not call.silences
        if is_first and worker is not None:
            worker.round_trip.observe(now - call.sent_at)
        match word:
            case Answer():
                self._take_part(call, key, word, now)
            case Working():
                call.has_worked = True
                if call.worker is None:
                    self._go_to(call, key)
                if call.worker == key and call.state is not State.GATHERING:
                    call.state, call.silences = State.WORKING, 0
                    self._wait(call, now + WORKING_S)
            case Declined(code="busy" | "leaving"):
                if call.worker == key:
                    self._leave(call)
                    call.busy.add(key)
                    if word.code == "leaving":
                        self._here.roster.forget(key, "left")
                    self._choose(call, now)
            case Declined():
                self._end(call, RemoteError(word.code, word.text))

    def _take_part(self, call: Call, key: Key, word: Answer, now: float) -> None:
        assembly = call.asked[key]
        if assembly is None:
            if word.parts == 1:
                self._end(call, Reply(word.payload, word.member, key[0], call.attempts))
                return
            assembly = call.asked[key] = Assembly(word.parts)
        if not assembly.put(word.part, word.parts, word.payload):
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
        elif assembly.is_whole:
            self._end(call, Reply(assembly.payload(), word.member, key[0], call.attempts))
        elif call.worker is None:
            self._go_to(call, key)
        if call.is_ended or call.worker != key:
            return
        call.state, call.silences = State.GATHERING, 0
        if assembly.is_to_go_on:
            self._ask_for_more(call, key, assembly, now)
        else:
            self._wait_for(call, now)

    def _ask_for_more(self, call: Call, key: Key, assembly: Assembly, now: float) -> None:
        assembly.asked_from = assembly.missing
        more = More(call.q, self._name, assembly.missing)
        say(self._host, layer_topic(self._topic, key[1].encode()), more, now)
        self._wait_for(call, now)

    # --- Time, and ends -------------------------------------------------------------------------------

    def _time_is_over(self, call: Call, now: float) -> None:
        if now >= call.deadline or call.waiter.done():
            self._give_up(call)
        elif call.state is State.HELD:
            call.busy.clear()
            self._choose(call, now)
        elif call.state is State.LOOKING:
            self._end(call, NoWorker(_nobody(call)))
        else:
            self._silence(call, now)

    def _silence(self, call: Call, now: float) -> None:
        key = call.worker
        assert key is not None
        assembly = call.asked[key]
        call.silences += 1
        if key in self._workers and call.silences < 2:
            if call.state is State.GATHERING and assembly is not None:
                self._ask_for_more(call, key, assembly, now)
            else:
                self._ask(call, now)
            return
        if key in self._workers:
            self._workers[key].is_silent = True
        self._leave(call)
        self._choose(call, now)

    def _go_to(self, call: Call, key: Key) -> None:
        self._waiting.pop(call, None)
        call.worker, call.load = key, self._workers.get(key)
        if call.load is not None:
            call.load.calls += 1

    def _leave(self, call: Call) -> None:
        if call.load is not None:
            call.load.calls -= 1
        call.worker = call.load = None

    def _give_up(self, call: Call) -> None:
        self._end(call, RequestTimeout(call.attempts, call.has_worked))

    def _end(self, call: Call, found: Reply | KcastError) -> None:
        if call.is_ended:
            return
        call.is_ended = True
        key = call.worker
        self._leave(call)
        self._calls.pop(call.q, None)
        self._waiting.pop(call, None)
        if not call.waiter.done():
            if isinstance(found, KcastError):
                call.waiter.set_exception(found)
                call.waiter.exception()
            else:
                call.waiter.set_result(found)
        if key is not None:
            for held in self._waiting:  # the first one that this worker has refused
                if key in held.busy:
                    held.busy.discard(key)
                    self._is_to_choose = True
                    break

    def _member_changed(self, change: MemberJoined | MemberLeft) -> None:
        member = change.member
        key = member.sender, member.name
        if isinstance(change, MemberJoined):
            self._workers[key] = Worker()
            waits = any(self._may_ask(call, key, member.methods) for call in self._waiting)
            self._is_to_choose = self._is_to_choose or waits
        else:
            self._workers.pop(key, None)

    def _look_at_all(self, now: float) -> None:
        """Begins the requests of `ask_all` whose time has come."""
        if not self._to_all:
            return
        ready_at = self._here.readiness.since
        to_all, self._to_all = self._to_all, []
        for before, call in to_all:
            at = min(call.deadline, ready_at + NOBODY_S)
            if now < at:
                self._to_all.append((at, call))
                if at != before and self._is_ready:
                    self._here.ask(call.method, now)
                    self._here.handle_timeout(now)
            elif call.waiter.done() or now >= call.deadline:
                self._give_up(call)
            else:
                self._ask_each(call, now)

    def _ask_each(self, call: Call, now: float) -> None:
        keys = [key for key, member in self._here.roster if call.method in member.methods]
        if not keys:
            self._end(call, NoWorker(_nobody(call)))
            return
        gathering = Gathering(call.waiter, [name for _, name in keys])
        for key in keys:
            waiter = gathering.of(key[1])
            self._begin(self._new(waiter, call.payload, call.method, call.deadline, now, to_key=key), now)


def _nobody(call: Call) -> str:
    if call.to is not None or call.to_key is not None:
        return f"no worker {call.to} is known on this topic: 'kcast who' shows who is there"
    which = f"the method {call.method}" if call.method else "the unnamed method"
    return (
        f"no worker with {which} is known on this topic: start one, or ask again if one has just begun; "
        "'kcast who' shows who is there"
    )
