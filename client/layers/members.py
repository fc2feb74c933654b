"""Who is there: members of a topic, who say so on its `here`. Sans-IO. PROTOCOL §9.10.

A member in the eyes of others:

| state | sign | next state |
|---|---|---|
| unknown | `+` | newcomer |
| newcomer | `+`, 10 s after the first one | established |
| newcomer, established | `-`, or no `+` for its seconds | unknown |
| newcomer | too many members | unknown |

Of too many newcomers the one goes that was heard least recently. Where all are established, nobody else is
taken. But a key with more than 100 names loses one of them first, also an established one, unless the new one
is of that key, too. Of two keys with one name the one that was heard first has it.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf
from typing import Literal, NamedTuple

from kcast.client.events import Delivery, Drop
from kcast.client.layers.host import Host, Readiness, say
from kcast.client.layers.words import HERE, Leaving, Present, Question, layer_topic, parse_presence

MEMBERS_MAX = 1000
OF_A_KEY = 100  # may be there without being the first to go
EXPIRE_INTERVAL_S = 0.1
NEWCOMER_S = 10.0
INTERVAL_S = 2.0
MEMBERS_PER_S = 20  # that say that they are there
AT_ONCE_MAX = 16
SPREAD_S = 0.01
ANSWER_INTERVAL_S = 0.1
QUESTIONS_S = 0.0, 0.1, 0.3
ANSWERED_S = 0.2

Key = tuple[str | None, str]
"""What a member is known by: its proven key, if there is one, and its name."""


class Member(NamedTuple):
    """A member: its name, its key where that is proven, its methods, and what it says of itself."""

    name: str
    sender: str | None
    methods: Sequence[str]
    info: str


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A member is heard for the first time."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """A member has said that it leaves (`left`), or has not been heard for long (`silent`)."""

    member: Member
    why: Literal["left", "silent"]


@dataclass(slots=True)
class _Known:
    member: Member
    since: float
    until: float


class Roster:
    """The members that are known, 1,000 at most. `next_at` is when to `expire` some.

    `tell` is called with each that joins or leaves.
    """

    def __init__(self, tell: Callable[[MemberJoined | MemberLeft], object]) -> None:
        self.next_at = inf
        self._tell = tell
        self._newcomers: OrderedDict[Key, _Known] = OrderedDict()  # heard least recently first, both
        self._established: OrderedDict[Key, _Known] = OrderedDict()
        self._sender_of: dict[str, str | None] = {}  # by name
        self._expired_at = -inf

    def __len__(self) -> int:
        return len(self._newcomers) + len(self._established)

    def __iter__(self) -> Iterator[tuple[Key, Member]]:
        for key, known in chain(self._established.items(), self._newcomers.items()):
            yield key, known.member

    def hear(self, sender: str | None, said: Present, now: float) -> Key:
        """Takes a `+`; returns what the member is known by."""
        key = sender, said.member
        if self._sender_of.get(said.member, sender) != sender:
            return key
        known = self._established.pop(key, None) or self._newcomers.pop(key, None)
        if known is None:
            if len(self) >= MEMBERS_MAX:
                first = self._first_to_go(sender)
                if first is None:
                    return key
                self.forget(first, "silent")
            self._sender_of[said.member] = sender
            known = _Known(Member(said.member, sender, said.methods, said.info), now, inf)
            self._tell(MemberJoined(known.member))
        elif known.member.methods != said.methods or known.member.info != said.info:
            known.member = Member(said.member, sender, said.methods, said.info)
        known.until = now + said.seconds
        self.next_at = min(self.next_at, max(known.until, self._expired_at + EXPIRE_INTERVAL_S))
        (self._established if now >= known.since + NEWCOMER_S else self._newcomers)[key] = known
        return key

    def _first_to_go(self, sender: str | None) -> Key | None:
        senders = Counter(filter(None, self._sender_of.values()))
        most, names = max(senders.items(), key=lambda each: each[1], default=(None, 0))
        if names <= OF_A_KEY:
            return next(iter(self._newcomers), None)
        known = chain(self._newcomers, () if sender == most else self._established)
        return next((key for key in known if key[0] == most), None)

    def forget(self, key: Key, why: Literal["left", "silent"]) -> None:
        """Lets a member go, if it is known."""
        known = self._established.pop(key, None) or self._newcomers.pop(key, None)
        if known is not None:
            del self._sender_of[known.member.name]
            self._tell(MemberLeft(known.member, why))

    def expire(self, now: float) -> None:
        """Lets those go that have not said in time that they are still there."""
        if now < self.next_at:
            return
        every = [*self._established.items(), *self._newcomers.items()]
        for key in [key for key, known in every if known.until <= now]:
            self.forget(key, "silent")
        until = min((known.until for _, known in every if known.until > now), default=inf)
        self._expired_at, self.next_at = now, max(until, now + EXPIRE_INTERVAL_S)


class Herald:
    """Says that a member is there, and answers who asks. `next_at` is when it has something to say.

    It is silent until `begin`, and after `leave`.
    """

    def __init__(
        self, host: Host, here: bytes, roster: Roster, name: str, methods: Sequence[str], info: str
    ) -> None:
        self._host = host
        self._here = here
        self._roster = roster
        self._name, self._methods, self._info = name, methods, info
        self._said_at = -inf
        self._asked: set[str | None] = set()  # what has been asked for since then
        self.next_at = inf

    def begin(self, now: float) -> None:
        """Says it for the first time."""
        self.next_at = now

    def asked(self, question: Question, now: float) -> None:
        """Answers a `?` with the next `+`, soon."""
        if self.next_at == inf or question.method not in (None, *self._methods):
            return
        if question.method in self._asked:
            return  # all are answered together, and to count is dear where many ask
        self._asked.add(question.method)
        asked = [1 for _, each in self._roster if question.method in (None, *each.methods)]
        spread_s = SPREAD_S * len(asked) if len(asked) > AT_ONCE_MAX else 0.0
        at = max(now, self._said_at + ANSWER_INTERVAL_S) + self._host.rng.random() * spread_s
        self.next_at = min(self.next_at, at)

    def handle_timeout(self, now: float) -> None:
        """Says `+` where that is due."""
        if now >= self.next_at:
            self._asked.clear()
            interval_s = max(INTERVAL_S, len(self._roster) / MEMBERS_PER_S)
            self._said_at, self.next_at = now, now + interval_s
            present = Present(self._name, ceil(3 * interval_s), self._methods, self._info)
            say(self._host, self._here, present, now)

    def leave(self, now: float) -> None:
        """Says `-`, if it has said `+`."""
        self.next_at = inf
        if self._said_at > -inf:
            say(self._host, self._here, Leaving(self._name), now)


class Here:
    """What is said on a topic's `here`, for all layers: who is known there, and questions of our own.

    `topic` is the name of `here`. `hear` returns the questions of others, for a herald.
    """

    def __init__(self, host: Host, topic: bytes, tell: Callable[[MemberJoined | MemberLeft], object]) -> None:
        self.topic = layer_topic(topic, HERE)
        self.roster = Roster(tell)
        self.readiness = Readiness()
        self._host = host
        self._questions: dict[str | None, list[float]] = {}  # when each is to be asked again

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        times = [due[0] for due in self._questions.values()]
        return min(self.roster.next_at, self.readiness.next_at, *times)

    def ask(self, method: str | None, now: float) -> None:
        """Asks who is there, three times from now on, unless that is under way."""
        self._questions.setdefault(method, [now + later_s for later_s in QUESTIONS_S])

    def look(self, now: float) -> bool:
        """Returns whether the layer's leases stand."""
        return self.readiness.since <= now or self.readiness.look(self._host.each_leases(), now)

    def handle_timeout(self, now: float) -> None:
        """Asks what is to be asked, and lets those go who are silent."""
        self.roster.expire(now)
        for method, due in list(self._questions.items()):
            if now >= due[0]:
                due[:] = [at for at in due if at > now]
                if not due:  # the last time all are asked, if nobody has it: to say what there is
                    del self._questions[method]
                is_narrow = due or any(method in each.methods for _, each in self.roster)
                say(self._host, self.topic, Question(method if is_narrow else None), now)

    def hear(self, delivery: Delivery, now: float) -> Present | Question | None:
        """Takes what somebody says; returns what there is to act upon."""
        said = None if delivery.publisher is None else parse_presence(delivery.payload)
        if said is None:
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
        elif isinstance(said, Present):
            self.roster.hear(delivery.sender, said, now)
        elif isinstance(said, Leaving):
            self.roster.forget((delivery.sender, said.member), "left")
            return None
        return said


class Members:
    """A member of a topic, or somebody who only watches, where `info` is None. A layer."""

    def __init__(
        self,
        host: Host,
        topic: bytes,
        name: str,
        info: str | None,
        tell: Callable[[MemberJoined | MemberLeft], object],
    ) -> None:
        self._here = Here(host, topic, tell)
        self._is_begun = False
        self._herald = None
        if info is not None:
            self._herald = Herald(host, self._here.topic, self._here.roster, name, (), info)
        self.topics = (self._here.topic,)
        self.is_over = False

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        herald_at = inf if self._herald is None else self._herald.next_at
        return -inf if self.is_over else min(self._here.next_at, herald_at)

    @property
    def alive(self) -> tuple[Member, ...]:
        """The members that are known."""
        return tuple(member for _, member in self._here.roster)

    def hear(self, delivery: Delivery, now: float) -> None:
        """Takes what is said on `here`."""
        said = self._here.hear(delivery, now)
        if isinstance(said, Question) and self._herald is not None:
            self._herald.asked(said, now)

    def handle_timeout(self, now: float) -> None:
        """Says what is due."""
        if not self._is_begun and self._here.look(now):
            self._is_begun = True
            self._here.ask(None, now)
            if self._herald is not None:
                self._herald.begin(now)
        self._here.handle_timeout(now)
        if self._herald is not None:
            self._herald.handle_timeout(now)

    def is_ready(self, now: float) -> bool:
        """Whether who is there has had time to answer the questions of the beginning."""
        return now >= self._here.readiness.since + QUESTIONS_S[-1] + ANSWERED_S

    def leave(self, now: float) -> None:
        """Says that it leaves, and is over."""
        self.is_over = True
        if self._herald is not None:
            self._herald.leave(now)

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Does nothing: nobody waits for a member's word."""
