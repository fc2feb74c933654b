"""Watches for newer versions of the signed list of a running client. PROTOCOL §10.8.

    state on disk -> at once in use
    fetch in a thread: at a random time in 1/2 to 3/4 of the list's fresh interval, or when a head hints at a
        newer one -> judged, stored -> Change, ListChanged
    the bus -> checkpoints of other clients: a newer one hints, another one of this size is a fork
    a fault -> ListTrouble, once a day for each; the list in use stays

Like a watch on a file it is polled in the engine's turns, every few seconds: nobody waits for it, and a
message on its way meets nothing of it. A thread (under gevent a greenlet) runs only during a fetch, and the
interpreter does not wait for it when it ends: what it stores is whole or not at all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random, SystemRandom
from time import time

from kcast.client.clusters.aside import Aside, Start, in_thread
from kcast.client.clusters.cluster import facts_of
from kcast.client.clusters.facts import ListState
from kcast.client.clusters.view import View
from kcast.client.clusters.views import change_between
from kcast.client.clusters.watch import Change, Listen, News, Say, Stop
from kcast.client.events import ClusterChanged, ListChanged, ListTrouble
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Trouble
from kcast.client.trust.forms import heads as hints
from kcast.client.trust.reach.bus import Forked, ListBus, Newer
from kcast.client.trust.reach.opening import Opened
from kcast.client.trust.reach.update import Round
from kcast.client.trust.state.standing import Standing, refusal
from kcast.pubsub.errors import KcastError

LOOK_INTERVAL_S = 5.0
FETCH_POLL_S = 0.25
HINT_INTERVAL_S = 60.0  # the least time between fetches because of heads
RETRY_S, RETRY_MAX_S = 60.0, 3600.0
HINT_FAILURES_TOLD = 3
TOLD_AGAIN_S = 86_400.0

Update = Callable[[int, Callable[[], bool]], Round]  # the time, and whether anybody still waits


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What a round has brought, and what follows from it: all that takes long is done in the thread."""

    round: Round
    standing: Standing | None = None  # of the list that was accepted
    change: ClusterChanged | None = None  # where it is another list
    view: View | None = None

    @classmethod
    def of(cls, found: Round, before: Standing) -> "_Fetched":
        """Returns all of it, after the list that is in use."""
        if found.accepted is None:
            return cls(found)
        standing = Standing.of(found.accepted)
        old, new = before.cluster, standing.cluster
        if facts_of(old).version == facts_of(new).version:
            return cls(found, standing)
        view = View(new)
        change = change_between({server.name for server in old.servers}, view.by_name.keys())
        return cls(found, standing, change, view)


class ListWatch:
    """The list of one name, in use by one client. For one thread at a time; `look_at` is when to ask again.

    `heads` returns what servers tell of the log, by server; `update` is called in a thread that `start`
    starts, once at a time, and `clock` returns the seconds since 1970.
    """

    def __init__(
        self,
        opened: Opened,
        now: float,
        heads: Callable[[], Mapping[str, str]],
        *,
        update: Update | None = None,
        chance: Random | None = None,
        clock: Callable[[], float] = time,
        start: Start = in_thread,
    ) -> None:
        self.look_at = now
        self._heads = heads
        self._clock = clock
        self._update = update or opened.update
        self._fetches = Aside[_Fetched](start)
        self._chance = chance or SystemRandom()
        self._standing = opened.standing
        self._name = opened.standing.document.name
        self._in_use = opened.cluster
        self._opened = opened
        self._has_begun = False
        self._bus = ListBus(self._name, self._chance)
        self._heard_size = 0  # of the newest checkpoint that other clients have
        self._is_closed = False
        self._is_hinted = False  # the fetch under way, or the last one, was because of heads
        self._share = self._chance.uniform(0.5, 0.75)  # of the fresh interval, when to fetch the next list
        self._attempts = 0  # since the list was due
        self._retry_at = now
        self._hint_failures = 0
        self._hint_at = now
        self._checked_unix_s: float | None = None
        self._last_failure = ""
        self._told_at: dict[str, float] = {}  # by fault
        self._troubles: dict[str, ListTrouble] = {}  # those that have not passed

    def close(self) -> None:
        """Ends a fetch that is under way soon; what it has found until then may still be stored."""
        self._is_closed = True

    def look(self, now: float) -> list[News]:
        """Returns what is new: lists to adopt, and events."""
        news: list[News] = []
        if now < self.look_at:
            return news
        unix_s = self._clock()
        if not self._has_begun:
            self._begin(now, news)
        if (fetched := self._fetches.take()) is not None:
            self._take(fetched, now, unix_s, news)
        self._look_at_times(now, unix_s, news)
        if not self._fetches.is_busy:
            is_hinted = self._look_at_heads(self._heads(), now, news)
            if is_hinted or (now >= self._retry_at and self._is_due(unix_s)):
                self._fetch(unix_s, is_hinted)
        self._talk(now, news)
        self.look_at = now + (FETCH_POLL_S if self._fetches.is_busy else LOOK_INTERVAL_S)
        if (talk_at := self._bus.next_timeout()) is not None:
            self.look_at = min(self.look_at, talk_at)
        if (error := refusal(self._standing, unix_s)) is not None:
            news.append(Stop(error))
        return news

    def state(self) -> ListState:
        """Returns what is known of the list now."""
        unix_s = self._clock()
        present = facts_of(self._standing.present(unix_s))
        newest = facts_of(self._standing.cluster)
        return ListState(
            name=self._name,
            version=present.version,
            trust=present.trust,
            log_size=self._standing.checkpoint.size,
            valid_after_s=present.valid_after_s,
            fresh_until_s=present.fresh_until_s,
            valid_until_s=present.valid_until_s,
            upcoming=newest.version if newest.version != present.version else None,
            checked_unix_s=self._checked_unix_s,
            troubles=tuple(self._troubles.values()),
        )

    # --- The bus --------------------------------------------------------------------------------------

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Takes what another client says of the list."""
        self._bus.hear(payload, now)
        if self._bus.has_news:
            self.look_at = now
        elif (talk_at := self._bus.next_timeout()) is not None:
            self.look_at = min(self.look_at, talk_at)

    def _talk(self, now: float, news: list[News]) -> None:
        self._bus.handle_timeout(now)
        for heard in self._bus.news():
            match heard:
                case Newer(size):
                    if size > self._heard_size:  # log and witnesses say so: heads that lied do not count
                        self._heard_size = size
                        self._is_hinted, self._hint_failures, self._hint_at = False, 0, now
                case Forked(data):
                    files = {"held.checkpoint": self._standing.note, "heard.checkpoint": data}
                    size = self._standing.checkpoint.size
                    text = (
                        f"another client has another history of the log at its size {size}: it tells people "
                        "different things. Tell the list's owners, and others who use it"
                    )
                    kept = str(self._opened.store.evidence(files) or "")
                    self._tell(Trouble(ListFault.FORK, text), now, news, kept)
        news += [Say(self._bus.topic, payload) for payload in self._bus.take()]

    # --- Fetching -------------------------------------------------------------------------------------

    def _fetch(self, unix_s: float, is_hinted: bool) -> None:
        self._is_hinted = is_hinted
        update, before = self._update, self._standing
        self._fetches.begin(lambda: _Fetched.of(update(int(unix_s), lambda: not self._is_closed), before))

    def _begin(self, now: float, news: list[News]) -> None:
        self._has_begun, opened = True, self._opened
        self._bus.adopt(self._standing.document, self._standing.note, now)
        news.append(Listen((self._bus.topic,)))
        for trouble in opened.troubles:
            self._tell(trouble, now, news)
        if self._standing.cluster is not opened.cluster:
            facts = facts_of(self._standing.cluster)
            news.append(Change(self._standing.cluster, facts.valid_after_s))

    def _take(self, fetched: _Fetched | KcastError, now: float, unix_s: float, news: list[News]) -> None:
        if isinstance(fetched, KcastError):
            fetched = _Fetched(Round(None, unreachable=(str(fetched),)))
        found = fetched.round
        reasons = (*(refused.text for refused in found.refused), *found.unreachable)
        self._last_failure = "; ".join(reasons)
        if found.accepted is not None and fetched.standing is not None:
            self._standing = fetched.standing
            self._checked_unix_s = unix_s
            self._troubles.clear()
            self._bus.adopt(self._standing.document, self._standing.note, now)
            if fetched.change is not None:
                self._share = self._chance.uniform(0.5, 0.75)
                self._adopt(fetched.change, fetched.view, unix_s, news)
            for trouble in found.accepted.warnings:
                self._tell(trouble, now, news)
        for refused in found.refused:
            self._tell(refused.trouble, now, news, refused.kept_in)
        is_done = found.accepted is not None and not self._is_due(unix_s)
        self._attempts = 0 if is_done else self._attempts + 1
        if self._attempts:
            wait_s = min(RETRY_S * 2 ** min(self._attempts - 1, 10), RETRY_MAX_S)
            self._retry_at = now + wait_s * self._chance.uniform(0.75, 1.0)

    def _is_due(self, unix_s: float) -> bool:
        # Where it was accepted long before it holds, or the clock is slow, the next may come before that.
        return self._standing.is_due(unix_s, self._share, self._checked_unix_s)

    # --- What is told ---------------------------------------------------------------------------------

    def _adopt(self, change: ClusterChanged, view: View | None, unix_s: float, news: list[News]) -> None:
        facts = facts_of(self._standing.cluster)
        is_to_come = facts.valid_after_s > self._standing.clock(unix_s).at_least_unix_s
        from_unix_s = facts.valid_after_s if is_to_come else None
        news.append(ListChanged(self._name, facts.version, change.added, change.removed, from_unix_s))
        news.append(Change(self._standing.cluster, from_unix_s, view))

    def _look_at_times(self, now: float, unix_s: float, news: list[News]) -> None:
        for trouble in self._standing.troubles(unix_s):
            is_late = trouble.fault is not ListFault.CLOCK and self._last_failure
            why = f". The last fetch: {self._last_failure}" if is_late else ""
            self._tell(Trouble(trouble.fault, trouble.text + why), now, news)

    def _look_at_heads(self, heads: Mapping[str, str], now: float, news: list[News]) -> bool:
        """Returns whether heads hint at a newer log, so that it is time to fetch."""
        held = self._standing.checkpoint
        newer = hints.newer_heads(heads, held)
        if not newer and self._heard_size <= held.size:
            self._hint_failures, self._is_hinted = 0, False
            return False
        if self._is_hinted:  # the fetch because of them has ended, and was in vain
            self._is_hinted = False
            self._hint_failures += 1
            wait_s = HINT_INTERVAL_S * 2 ** min(self._hint_failures - 1, 10)
            self._hint_at = now + min(wait_s, RETRY_MAX_S)
            if self._hint_failures >= HINT_FAILURES_TOLD:
                why = self._last_failure or "what is handed out is not newer"
                said = f"held {held.size}, other clients say {self._heard_size}"
                text = f"{hints.told(newer, heads, held) if newer else said}: {why}"
                self._tell(Trouble(ListFault.BEHIND, text), now, news)
        return now >= self._hint_at

    def _tell(self, trouble: Trouble, now: float, news: list[News], evidence: str = "") -> None:
        """Tells of a fault, once a day at most."""
        kept = facts_of(self._standing.cluster).version
        event = ListTrouble(self._name, trouble.fault.value, trouble.text, kept, evidence)
        self._troubles[event.fault] = event
        told_at = self._told_at.get(event.fault)
        if told_at is None or now - told_at >= TOLD_AGAIN_S:
            self._told_at[event.fault] = now
            news.append(event)
