"""Keeps a group of a running client up to date. PROTOCOL §9.8.

A watch like that on a cluster file: it is polled in the engine's turns, and nobody waits for it. File or URL
is read, judged and stored in a thread (under gevent a greenlet), once a minute, and at once where the beacon
tells of a newer epoch. The interpreter does not wait for the thread when it ends: what it stores is whole or
not at all.

What has ended goes from memory by the clock, and from the disk once two looks, a minute apart by a clock that
nobody sets, agree on it.
"""

from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random, SystemRandom
from time import time

from kcast.client.clusters.aside import Aside, Start, in_thread
from kcast.client.clusters.watch import Listen, News, Say
from kcast.client.events import Drop, GroupTrouble
from kcast.client.sealed.beacon import Beacon
from kcast.client.sealed.group_file import Head
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.groups import LOOK_INTERVAL_S, Look, look
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import Group, GroupFault
from kcast.pubsub.errors import KcastError

POLL_S = 0.25  # while a look is under way
TALK_AFTER_S = 2.0  # a command that ends before neither listens nor speaks
FAILURES_TOLD = 3  # in a row: a file may be missing for a moment while it is replaced
BAD_MAX = 100  # of what is said from one look to the next, that the owner has not signed: more are a flood
TOLD_AGAIN_S = 86_400.0

# At a time, what to forget by, in seconds since 1970, and with a head that was heard.
LookNow = Callable[[float, float, Head | None], Look]
Adopt = Callable[[Group, float], None]


def watch_of(
    group: Group, identity: Identity, now: float, adopt: Adopt, drops: Counter[Drop]
) -> "GroupWatch":
    """Returns what keeps a group up to date that `groups.load` has returned for this identity."""
    store = GroupStore(group.name)

    def looking(unix_s: float, forget_unix_s: float, other: Head | None) -> Look:
        return look(store, identity, unix_s, group.source, forget_unix_s=forget_unix_s, other=other)

    return GroupWatch(group, now, looking, adopt, drops=drops)


class GroupWatch:
    """A group in use by one client. For one thread at a time; `look_at` is when to ask again.

    `adopt` is given the group whenever it is another one. `looking` is called in a thread that `start`
    starts, once at a time; `clock` returns the seconds since 1970.
    """

    def __init__(
        self,
        group: Group,
        now: float,
        looking: LookNow,
        adopt: Adopt,
        *,
        drops: Counter[Drop] | None = None,
        clock: Callable[[], float] = time,
        start: Start = in_thread,
        rng: Random | None = None,
    ) -> None:
        self.look_at = now
        self._group = group
        self._looking = looking
        self._adopt = adopt
        self._clock = clock
        self._looks = Aside[Look](start)
        self._beacon = Beacon(group.owner, rng or SystemRandom(), Counter() if drops is None else drops)
        self._talk_at = now + TALK_AFTER_S
        self._topics: tuple[bytes, ...] = ()
        self._due_at = self._hinted_at = now
        self._is_closed = False
        self._failures = 0
        self._told_at: dict[str, float] = {}  # by fault
        self._seen = -inf, -inf  # when a look was, a minute ago or more, and the time that its clock told

    def look(self, now: float) -> list[News]:
        """Returns what is new: what is wrong, and what is to be heard and said on the beacon's topics."""
        if now < self.look_at or self._is_closed:
            return []
        news: list[News] = []
        unix_s = self._clock()
        if (found := self._looks.take()) is not None:
            self._take(found, now, news)
        if not self._looks.is_busy and now >= self._due_at:
            self._due_at = now + LOOK_INTERVAL_S
            forget_unix_s = self._sure_unix_s(now, unix_s)
            self._looks.begin(lambda: self._looking(unix_s, forget_unix_s, self._beacon.other))
        self._use(self._group.without_past(unix_s), now)
        if now >= self._talk_at:
            self._talk(now, news)
        to_forget = now + self._group.next_change(unix_s) - unix_s
        look_at = now + POLL_S if self._looks.is_busy else self._due_at
        talk_at = self._beacon.next_at if now >= self._talk_at else self._talk_at
        self.look_at = min(look_at, to_forget, talk_at)
        return news

    def _talk(self, now: float, news: list[News]) -> None:
        self._beacon.adopt(self._group.head, self._group.beacons, now)
        if self._group.beacons != self._topics:
            self._topics = self._group.beacons
            news.append(Listen(self._topics))
        news += [Say(topic, payload) for topic, payload in self._beacon.say(now)]

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Takes what another member says of the newest epoch."""
        is_newer = self._beacon.hear(topic, payload, now)
        if is_newer and now >= self._hinted_at:
            self._hinted_at = now + LOOK_INTERVAL_S
            self._due_at = now
        self.look_at = min(self.look_at, self._due_at, self._beacon.next_at)

    def state(self) -> None:
        """Returns None: it is no list of servers."""

    def close(self) -> None:
        """Ends it; a look under way may still store what it finds."""
        self._is_closed, self.look_at = True, inf

    def _use(self, group: Group, now: float) -> None:
        if group != self._group:
            self._group = group
            self._adopt(group, now)

    def _sure_unix_s(self, now: float, unix_s: float) -> float:
        """Returns what time it is at least, as two looks say that are a minute apart."""
        seen_at, seen_unix_s = self._seen
        if now - seen_at < LOOK_INTERVAL_S:
            return -inf
        self._seen = now, unix_s
        return min(seen_unix_s, unix_s)

    def _take(self, found: Look | KcastError, now: float, news: list[News]) -> None:
        if isinstance(found, KcastError):
            self._tell(GroupFault.MALFORMED, str(found), now, news)
            return
        self._failures = self._failures + 1 if found.failure else 0
        if found.group.newest >= self._group.newest:
            self._use(found.group, now)
        for trouble in found.troubles:
            self._tell(GroupFault(trouble.fault), trouble.text, now, news)
        if self._failures >= FAILURES_TOLD:
            text = f"it cannot be seen whether there is a newer epoch: {found.failure}"
            self._tell(GroupFault.UNREACHABLE, text, now, news)
        bad, self._beacon.bad = self._beacon.bad, 0
        if bad > BAD_MAX:
            text = "somebody floods the topic of its members' word on newer epochs: nothing is lost by it"
            self._tell(GroupFault.FLOODED, text, now, news)
        if self._beacon.newest > self._group.newest:
            why = found.failure or f"{self._group.source} has epoch {self._group.newest} at most"
            text = (
                f"other members have its epoch {self._beacon.newest}, signed by its owner, and {why}: "
                "have the owner put the newest file there; meanwhile one who was removed may read on"
            )
            self._tell(GroupFault.BEHIND, text, now, news, again_s=0.0)

    def _tell(
        self, fault: GroupFault, text: str, now: float, news: list[News], again_s: float = TOLD_AGAIN_S
    ) -> None:
        """Tells of a fault, once a day at most, or as often as is said here."""
        told_at = self._told_at.get(fault)
        if told_at is None or now - told_at >= again_s:
            self._told_at[fault] = now
            news.append(GroupTrouble(self._group.name, fault.value, text))
