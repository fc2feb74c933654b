"""A client's subscriptions: which of a topic's servers it has leases on, and which it believes. Sans-IO.

PROTOCOL §8.5, §10.3. Of a topic's k servers it draws as many as the policy says, keeps this draw, and
replaces those that are lost or drain. Around a change of the cluster it has a draw in each view that is held
(`kcast.client.clusters.views`).

What changes for many topics at once, such as a lost server, is looked at in slices, one in each turn: those
topics first that were not looked at for longest. So no turn takes longer where there are more topics.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.clusters.view import View
from kcast.client.clusters.views import Views
from kcast.client.events import LeasesChanged
from kcast.client.messages.guard_and_writer import Guard, Guarded
from kcast.client.session.session import Session
from kcast.hashring.policy import draw
from kcast.pubsub import wire

LOOK_MAX = 1000  # topics that are looked at in a slice, some tens of microseconds each
FOLLOW_COST = 4  # ... as many of which one counts for that is drawn anew


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
    """All subscriptions of a client, by topic (wire form). `look_at` is when `look` has something to do.

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
        self.look_at = inf
        self._to_look_at: dict[bytes, None] = {}
        self._is_to_look_at_all = False  # those that it has not yet come behind those that it has

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

    def look_at_all(self, now: float) -> None:
        """Lets `look` look at all topics from now on, since views or servers have changed."""
        if self._subscriptions:
            self._is_to_look_at_all = True
            self.look_at = now

    def look(self, now: float, *, may_replace: bool) -> None:
        """Looks at some topics. Draws in views that are new, where servers with a lease go first, and lets go
        of views that are not held any more. Replaces lost and draining servers by live ones, if it may."""
        if self._is_to_look_at_all:
            self._is_to_look_at_all = False
            self._to_look_at |= dict.fromkeys(self._subscriptions)
        held, left = self._views.held, LOOK_MAX
        for wire_topic in list(islice(self._to_look_at, left)):
            if left <= 0:
                break
            left -= 1
            del self._to_look_at[wire_topic]
            subscription = self._subscriptions.get(wire_topic)
            if subscription is None:
                continue
            if list(subscription.draws) != held:
                left -= FOLLOW_COST - 1
                self._follow(wire_topic, subscription, now)
                self.count_leases(wire_topic)
            if may_replace:
                self.replace(wire_topic, now)
        self.look_at = now if self._to_look_at else inf

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
        if subscription is None or self._views.present not in subscription.draws:
            return  # until it is looked at
        used = subscription.draws[self._views.present].used
        leases = sum(session.is_leased(wire_topic) for session in used), len(used)
        if leases != subscription.leases:
            subscription.leases = leases
            for guard, name in subscription.takers.items():
                event = LeasesChanged(name, *leases)
                if guard not in subscription.silent:
                    self._tell(event if guard is None else Guarded(guard, event))

    def replace(self, wire_topic: bytes, now: float) -> None:
        """Replaces lost and draining servers by live ones, where subscribers use only some of the K (§8.5).

        A draining server still forwards until after the new lease stands.
        """
        subscription = self._subscriptions[wire_topic]
        for each in subscription.draws.values():
            leaving = [index for index, used in enumerate(each.used) if used.is_lost or used.is_draining]
            if not leaving or len(each.used) == len(each.candidates):
                continue
            spare = [
                session
                for session in each.candidates
                if session.is_alive and not session.is_draining and session not in each.used
            ]
            for index in leaving[: len(spare)]:
                left = each.used[index]
                each.used[index] = spare.pop(self._rng.randrange(len(spare)))
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
