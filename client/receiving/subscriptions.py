"""A client's subscriptions: which of a topic's servers it has leases on, and which it believes. Sans-IO.

PROTOCOL §8.5, §10.3. Of a topic's k servers it draws as many as the policy says, keeps this draw, and
replaces those that are lost or drain. Around a change of the cluster it has a draw in each view that is held
(`kcast.client.clusters.views`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.clusters.view import View
from kcast.client.clusters.views import Views
from kcast.client.events import LeasesChanged
from kcast.client.messages.guarding import Guard, Guarded
from kcast.client.session.session import Session
from kcast.hashring.policy import draw
from kcast.pubsub import wire


@dataclass(slots=True)
class _Draw:
    """A topic's servers in one view, and those among them that leases are wanted on."""

    candidates: dict[Session, None]
    used: list[Session]


@dataclass(slots=True)
class Subscription:
    """A topic, with a draw for each view that is held.

    `name` is the topic in its decoded form, which decides on its servers. `takers` are who wants its
    messages: the application (None), and guards, each with the name by which it is told of them.
    `plain_name` is the application's where there is nobody else.

    `believed` are all of its servers: copies are taken from these alone. One that was left for another may
    still send for a ttl.
    """

    name: bytes
    takers: dict[Guard | None, bytes] = field(default_factory=dict)
    plain_name: bytes | None = None
    silent: set[Guard | None] = field(default_factory=set)  # takers that are not told of its leases
    draws: dict[View, _Draw] = field(default_factory=dict)
    believed: Collection[Session] = ()
    leases: tuple[int, int] = 0, 0  # those that stand in the present view, and those wanted, as it was told

    def used(self) -> dict[Session, None]:
        """Each session that leases are wanted on, once, always in the same order."""
        return dict.fromkeys(session for each in self.draws.values() for session in each.used)


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
        tell: Callable[[LeasesChanged | Guarded], None],
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

    def name_of(self, wire_topic: bytes) -> bytes:
        """Returns the name of a topic as those who want it know it."""
        subscription = self._subscriptions.get(wire_topic)
        names = () if subscription is None else subscription.takers.values()
        return next(iter(names), None) or wire.decode_topic(wire_topic) or b""

    def is_wanted(self, wire_topic: bytes) -> bool:
        """Whether the application wants this topic's messages as they come."""
        subscription = self._subscriptions.get(wire_topic)
        return subscription is not None and None in subscription.takers

    def begin(
        self,
        name: bytes,
        wire_topic: bytes,
        now: float,
        guard: Guard | None = None,
        told_as: bytes = b"",
        *,
        is_told: bool = True,
    ) -> None:
        """Holds leases on a topic from now on; `name` is its decoded form. `told_as` is the name by which a
        guard's subscription is told of its messages, and `is_told` whether of its leases, too."""
        subscription = self._subscriptions.get(wire_topic)
        if subscription is None:
            subscription = self._subscriptions[wire_topic] = Subscription(name)
            self._follow(wire_topic, subscription, now)
            subscription.leases = 0, len(subscription.draws[self._views.present].used)
        subscription.takers[guard] = told_as if guard is not None else name
        self._look_at_takers(subscription)
        subscription.silent.discard(guard)
        if not is_told:
            subscription.silent.add(guard)
        elif guard is not None:
            self._tell(Guarded(guard, LeasesChanged(told_as, *subscription.leases)))

    def end(self, wire_topic: bytes, guard: Guard | None = None) -> None:
        """Stops taking messages for the application, or a guard; stops renewing where nobody is left."""
        subscription = self._subscriptions.get(wire_topic)
        if subscription is None:
            return
        subscription.takers.pop(guard, None)
        subscription.silent.discard(guard)
        self._look_at_takers(subscription)
        if not subscription.takers:
            del self._subscriptions[wire_topic]
            self._let_go(wire_topic, subscription.used())

    @staticmethod
    def _look_at_takers(subscription: Subscription) -> None:
        takers = subscription.takers
        subscription.plain_name = takers.get(None) if len(takers) == 1 else None

    def follow(self, now: float) -> None:
        """Draws in views that are new, where servers with a lease go first, and lets go of views that are not
        held any more."""
        for wire_topic, subscription in self._subscriptions.items():
            self._follow(wire_topic, subscription, now)
            self.count_leases(wire_topic)

    def _follow(self, wire_topic: bytes, subscription: Subscription, now: float) -> None:
        before, draws = subscription.used(), subscription.draws
        subscription.draws = {view: draws[view] for view in self._views.held if view in draws}
        for view in self._views.held:
            if view not in draws:
                kept = {**before, **subscription.used()}
                subscription.draws[view] = self._draw(subscription.name, view, kept, now)
        every = chain.from_iterable(each.candidates for each in subscription.draws.values())
        subscription.believed = frozenset(every)
        after = subscription.used()
        self._want(wire_topic, after, now)
        self._let_go(wire_topic, [session for session in before if session not in after])

    def count_leases(self, wire_topic: bytes) -> None:
        """Tells the number of leases that stand in the present view where it has changed."""
        subscription = self._subscriptions.get(wire_topic)
        if subscription is None:
            return
        used = subscription.draws[self._views.present].used
        leases = sum(session.is_leased(wire_topic) for session in used), len(used)
        if leases != subscription.leases:
            subscription.leases = leases
            for guard, name in subscription.takers.items():
                event = LeasesChanged(name, *leases)
                if guard not in subscription.silent:
                    self._tell(event if guard is None else Guarded(guard, event))

    def replace_all(self, now: float) -> None:
        """Replaces lost and draining servers of all topics by live ones."""
        for wire_topic in self._subscriptions:
            self.replace(wire_topic, now)

    def replace(self, wire_topic: bytes, now: float) -> None:
        """Replaces lost and draining servers by live ones, where subscribers use only some of the K (§8.5).

        A draining server still forwards until after the new lease stands.
        """
        subscription = self._subscriptions[wire_topic]
        for each in subscription.draws.values():
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
                    if left not in subscription.used():
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
