"""Where a topic's messages go: its servers, and a draw of them for each message. Sans-IO. PROTOCOL §8.5.

Most messages are on topics that had one before, and meanwhile nothing has changed: neither the view, nor what
is known of the servers. So a topic's servers are looked up and ranked once, and not for each message.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, compress
from math import comb, inf
from random import Random
from typing import NamedTuple

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.clusters.views import Views
from kcast.client.events import Outcome
from kcast.client.messages.lines import names_senders, wire_topic_of
from kcast.client.session.session import Session

ROUTES_MAX = 16_384  # topics
CANDIDATES_MAX = 64  # of a route that is kept: with scheme R each topic has all servers
DRAWS_MAX = 256  # messages for which servers are drawn at a time
_SUBSETS_MAX = 256  # of a topic's servers, that are listed to draw one of them


class Draws(NamedTuple):
    """The servers drawn for messages in a row: to `sure` they go all, and to a subset of `others` each."""

    sure: Sequence[Session]
    others: Sequence[Session]
    subsets: Sequence[Sequence[int]]
    drawn: bytes  # which subset each message has

    def of(self, position: int) -> Sequence[Session]:
        """Returns the servers of one message."""
        return (*self.sure, *[self.others[index] for index in self.subsets[self.drawn[position]]])

    def by_session(self) -> Iterator[tuple[Session, Sequence[int]]]:
        """Yields each server with the messages that it gets, by position: a range where it gets all."""
        all_of_them = range(len(self.drawn))
        for session in self.sure:
            yield session, all_of_them
        for index, session in enumerate(self.others):
            has_it = bytes([index in subset for subset in self.subsets]).ljust(256, b"\0")
            yield session, list(compress(all_of_them, self.drawn.translate(has_it)))


class Route:
    """The servers of a topic as they rank at a moment. Each message goes to `count` of the candidates.

    `wire_topic` is the wire form of `topic`; `names_senders` tells whether it names the keys of its senders
    (§9.6). After a change of the cluster, `former` are the servers that the topic has in views that it
    overlaps with: see `kcast.client.clusters.views`. `good_until` is when servers that came back rank better.
    """

    def __init__(
        self,
        topic: bytes,
        wire_topic: bytes,
        candidates: Sequence[Session],
        count: int,
        former: Collection[Session],
        now: float,
        *,
        avoid_dead: bool,
    ) -> None:
        self.topic = topic
        self.wire_topic = wire_topic
        self.names_senders = wire_topic.startswith(b"~") and names_senders(wire_topic)
        self.candidates = candidates
        self.count = count
        self.former = former
        self.good_until = inf
        self._sure = candidates  # those that every message goes to
        self._others: Sequence[Session] = ()  # those among which the rest is drawn
        self._subsets: Sequence[Sequence[int]] = ()  # all draws, by index; none where there are too many
        if len(candidates) > count:
            self._rank_all(now, avoid_dead)

    def rank(self, session: Session, now: float, avoid_dead: bool) -> int:
        """Returns a server's rank for this topic, from 0 (best) to 3."""
        rank = session.rank(now) if avoid_dead else 0
        if self.former and session not in self.former:
            return max(rank, 2)  # subscribers may have still to lease there, as where it has just come back
        return rank

    def leavers(self) -> Sequence[Session]:
        """Returns live servers that only overlapping views have, in which subscribers may still lease."""
        if not self.former:
            return ()
        return [each for each in self.former if each not in self.candidates and each.is_alive]

    def draw(self, rng: Random) -> Sequence[Session]:
        """Returns the servers for a new message: those that rank best, by chance where they rank equal."""
        if not self._others:
            return self._sure
        if not self._subsets:
            return (*self._sure, *rng.sample(self._others, self.count - len(self._sure)))
        subset = self._subsets[int(rng.random() * len(self._subsets))]
        return (*self._sure, *[self._others[index] for index in subset])

    def draw_many(self, rng: Random, count: int) -> Draws:
        """Returns the servers for `count` new messages, at most DRAWS_MAX: a draw for each."""
        if not self._others:
            return Draws(self._sure, (), ((),), bytes(count))
        if self._subsets:
            return Draws(self._sure, self._others, self._subsets, _numbers(rng, len(self._subsets), count))
        indexes, missing = range(len(self._others)), self.count - len(self._sure)
        subsets = [rng.sample(indexes, missing) for _ in range(count)]
        return Draws(self._sure, self._others, subsets, bytes(range(count)))

    def another(
        self, sent_to: Collection[Session], rng: Random, now: float, *, only_warm: bool
    ) -> Session | None:
        """Returns one more server for a message, believed alive; None where there is none.

        `only_warm` passes over those that have come back a moment ago.
        """
        fresh = [each for each in self.candidates if each not in sent_to and each.is_alive]
        if only_warm:
            fresh = [each for each in fresh if each.is_warm(now)]
        return min(fresh, key=lambda each: (self.rank(each, now, True), rng.random()), default=None)

    def _rank_all(self, now: float, avoid_dead: bool) -> None:
        ranks = [self.rank(session, now, avoid_dead) for session in self.candidates]
        ranked = list(zip(ranks, self.candidates, strict=True))
        last = sorted(ranks)[self.count - 1]
        self._sure = [session for rank, session in ranked if rank < last]
        self._others = [session for rank, session in ranked if rank == last]
        missing = self.count - len(self._sure)
        if missing == len(self._others):
            self._sure, self._others = [*self._sure, *self._others], ()
        elif comb(len(self._others), missing) <= _SUBSETS_MAX:
            self._subsets = _subsets(len(self._others), missing)
        cold = [session.warm_at for session in self.candidates if session.warm_at > now]
        self.good_until = min(cold, default=inf)


class Routes:
    """The routes of topics that were published on of late.

    With `avoid_dead`, servers believed alive rank better. `session_of` returns the session of a server.
    """

    def __init__(
        self, views: Views, session_of: Callable[[ServerEntry, float], Session], *, avoid_dead: bool
    ) -> None:
        self.avoid_dead = avoid_dead
        self._views = views
        self._session_of = session_of
        self._routes: dict[bytes, Route] = {}

    @property
    def are_all_heard(self) -> bool:
        """Whether subscribers lease at each server of a topic, so that one is enough to reach them."""
        policies = [view.policy for view in (self._views.present, *self._views.overlapping)]
        return all(policy.subscribe >= policy.k for policy in policies)

    def of(self, topic: bytes, now: float) -> Route:
        """Returns the route of a topic (decoded). Raises wire.TopicError."""
        route = self._routes.get(topic)
        if route is not None and now < route.good_until:
            return route
        route = self.make(topic, now)
        if len(route.candidates) <= CANDIDATES_MAX:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def make(self, topic: bytes, now: float, *, is_own: bool = False) -> Route:
        """Returns a new route, also of a topic of kcast's own. Raises wire.TopicError."""
        wire_topic = wire_topic_of(topic, is_own)
        view, former = self._views.present, self._views.overlapping
        servers = (server for each in former for server in each.servers(topic))
        return Route(
            topic,
            wire_topic,
            tuple([self._session_of(server, now) for server in view.servers(topic)]),
            max(each.policy.publish for each in (view, *former)),
            dict.fromkeys(self._session_of(server, now) for server in servers),
            now,
            avoid_dead=self.avoid_dead,
        )

    def again(self, route: Route, now: float) -> Route:
        """Returns the route for a message that is sent again: its topic may have other servers meanwhile."""
        if route.topic.startswith(b"\0"):
            return self.make(route.topic, now, is_own=True)
        return self.of(route.topic, now)

    def wants_another(self, session: Session, outcome: Outcome, now: float) -> bool:
        """Whether a message of which this became at a server goes to another one, too: where that is silent,
        or has just come back, and so has few leases yet.

        Not where it was refused: whoever publishes too much would only send more.
        """
        if not self.avoid_dead or outcome is Outcome.REFUSED:
            return False
        return outcome is Outcome.NO_ANSWER or now < session.warm_at

    def clear(self) -> None:
        """Forgets all routes: topics may have other servers now, or servers another rank."""
        self._routes.clear()


def _numbers(rng: Random, below: int, count: int) -> bytes:
    """Returns random numbers from 0 to below - 1, each as likely; `below` is at most 256."""
    usable = 256 - 256 % below  # else the first ones would be likelier
    number_of = bytes([value % below for value in range(256)])
    drawn = b""
    while len(drawn) < count:
        more = rng.randbytes(count - len(drawn))
        drawn += more.translate(number_of, bytes(range(usable, 256)))
    return drawn


@lru_cache(maxsize=64)
def _subsets(size: int, count: int) -> tuple[tuple[int, ...], ...]:
    return tuple(combinations(range(size), count))
