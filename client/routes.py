"""Where a topic's messages go: its servers, and a draw of them for each message. Sans-IO. PROTOCOL §8.5.

Most messages are on topics that had one before, and meanwhile nothing has changed: neither the view, nor what
is known of the servers. So a topic's servers are looked up and ranked once, and not for each message.
"""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb, inf
from random import Random

from kcast.client.cluster import ServerEntry
from kcast.client.lines import wire_topic_of
from kcast.client.session import Session
from kcast.client.views import Views

ROUTES_MAX = 16_384  # topics
CANDIDATES_MAX = 64  # of a route that is kept: with scheme R each topic has all servers
_SUBSETS_MAX = 256  # of a topic's servers, that are listed to draw one of them


class Route:
    """The servers of a topic as they rank at a moment. Each message goes to `count` of the candidates.

    `wire_topic` is the topic's wire form. After a change of the cluster, `former` are the servers that the
    topic has in views that it overlaps with: see `kcast.client.views`. `good_until` is when servers that came
    back rank better.
    """

    def __init__(
        self,
        wire_topic: bytes,
        candidates: Sequence[Session],
        count: int,
        former: Collection[Session],
        now: float,
        *,
        avoid_dead: bool,
    ) -> None:
        self.wire_topic = wire_topic
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
            wire_topic,
            tuple([self._session_of(server, now) for server in view.servers(topic)]),
            max(each.policy.publish for each in (view, *former)),
            dict.fromkeys(self._session_of(server, now) for server in servers),
            now,
            avoid_dead=self.avoid_dead,
        )

    def clear(self) -> None:
        """Forgets all routes: topics may have other servers now, or servers another rank."""
        self._routes.clear()


@lru_cache(maxsize=64)
def _subsets(size: int, count: int) -> tuple[tuple[int, ...], ...]:
    return tuple(combinations(range(size), count))
