"""A client's subscriptions: which of a topic's servers it has leases on, and which it believes. Sans-IO.

PROTOCOL §8.5, §10.3. Of a topic's k servers it draws as many as the policy says, keeps this draw, and
replaces those that are lost or drain. After a change of the cluster it has a draw for each of
`kcast.client.views`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from kcast.client.cluster import ServerEntry
from kcast.client.events import LeasesChanged
from kcast.client.session import Session
from kcast.client.view import View
from kcast.client.views import Views
from kcast.hashring.policy import draw


@dataclass(slots=True)
class _Draw:
    """A topic's servers in one view, and those among them that leases are wanted on."""

    candidates: dict[Session, None]
    used: list[Session]


@dataclass(slots=True)
class Subscription:
    """A topic, with a draw for each view: that of the present one is the last."""

    name: bytes
    draws: list[_Draw]
    leases: tuple[int, int]  # those that stand in the present view, and those wanted, as it was told

    def believes(self, session: Session) -> bool:
        """Whether this is one of the topic's servers. One that was left for another may still send for a
        ttl."""
        draws = self.draws
        return session in draws[-1].candidates or (
            len(draws) > 1 and any(session in each.candidates for each in draws)
        )

    def uses(self, session: Session) -> bool:
        """Whether a lease on it is wanted."""
        return any(session in each.used for each in self.draws)


class Subscriptions:
    """All subscriptions of a client, by topic (wire form).

    `session_of` returns the session of a server. `touch` is called with each session that has something to
    send, `tell` with each event.
    """

    def __init__(
        self,
        views: Views,
        rng: Random,
        session_of: Callable[[ServerEntry, float], Session],
        touch: Callable[[Session], None],
        tell: Callable[[LeasesChanged], None],
    ) -> None:
        self._views = views
        self._rng = rng
        self._session_of = session_of
        self._touch = touch
        self._tell = tell
        self._subscriptions: dict[bytes, Subscription] = {}

    def __contains__(self, wire_topic: bytes) -> bool:
        return wire_topic in self._subscriptions

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._subscriptions)

    def get(self, wire_topic: bytes) -> Subscription | None:
        """Returns the subscription to a topic, or None."""
        return self._subscriptions.get(wire_topic)

    def begin(self, name: bytes, wire_topic: bytes, now: float) -> None:
        """Holds leases on a topic from now on; `name` is its decoded form."""
        draws = [self._draw(name, view, (), now) for view in self._views.all()]
        self._subscriptions[wire_topic] = Subscription(name, draws, (0, len(draws[-1].used)))
        for each in draws:
            self._want(wire_topic, each.used, now)

    def end(self, wire_topic: bytes) -> None:
        """Stops renewing."""
        subscription = self._subscriptions.pop(wire_topic, None)
        if subscription is not None:
            self._let_go(wire_topic, _used_in(subscription.draws))

    def adopt(self, now: float) -> None:
        """Draws in the present view, which is new; servers that have a lease already go first."""
        for wire_topic, subscription in self._subscriptions.items():
            new = self._draw(subscription.name, self._views.present, subscription.draws[-1].used, now)
            subscription.draws.append(new)
            self._want(wire_topic, new.used, now)
            self.count_leases(wire_topic)

    def forget(self, view_count: int) -> None:
        """Lets go of what only the oldest views have."""
        for wire_topic, subscription in self._subscriptions.items():
            old = _used_in(subscription.draws[:view_count])
            del subscription.draws[:view_count]
            self._let_go(wire_topic, [session for session in old if not subscription.uses(session)])

    def count_leases(self, wire_topic: bytes) -> None:
        """Tells the number of leases that stand in the present view where it has changed."""
        subscription = self._subscriptions.get(wire_topic)
        if subscription is None:
            return
        used = subscription.draws[-1].used
        leases = sum(session.is_leased(wire_topic) for session in used), len(used)
        if leases != subscription.leases:
            subscription.leases = leases
            self._tell(LeasesChanged(subscription.name, *leases))

    def replace_all(self, now: float) -> None:
        """Replaces lost and draining servers of all topics by live ones."""
        for wire_topic in self._subscriptions:
            self.replace(wire_topic, now)

    def replace(self, wire_topic: bytes, now: float) -> None:
        """Replaces lost and draining servers by live ones, where subscribers use only some of the K (§8.5).

        A draining server still forwards until after the new lease stands.
        """
        subscription = self._subscriptions[wire_topic]
        for each in subscription.draws:
            if len(each.used) == len(each.candidates):
                continue
            for index, left in enumerate(each.used):
                if not (left.is_lost or left.is_draining):
                    continue
                spare = [
                    session
                    for session in each.candidates
                    if session.is_alive and not session.is_draining and session not in each.used
                ]
                if spare:
                    each.used[index] = self._rng.choice(spare)
                    self._want(wire_topic, [each.used[index]], now)
                    if not subscription.uses(left):
                        self._let_go(wire_topic, [left])
                    self.count_leases(wire_topic)

    def _draw(self, name: bytes, view: View, kept: Iterable[Session], now: float) -> _Draw:
        sessions = [self._session_of(server, now) for server in view.servers(name)]
        used = [session for session in kept if session in sessions][: view.policy.subscribe]
        others = [session for session in sessions if session not in used]
        return _Draw(
            dict.fromkeys(sessions), [*used, *draw(others, view.policy.subscribe - len(used), self._rng)]
        )

    def _want(self, wire_topic: bytes, sessions: Iterable[Session], now: float) -> None:
        for session in sessions:
            session.want(wire_topic, now)
            self._touch(session)

    def _let_go(self, wire_topic: bytes, sessions: Iterable[Session]) -> None:
        for session in sessions:
            session.unwant(wire_topic)
            self._touch(session)


def _used_in(draws: Iterable[_Draw]) -> Iterable[Session]:
    """Each session that leases are wanted on, once, always in the same order."""
    return dict.fromkeys(session for each in draws for session in each.used)
