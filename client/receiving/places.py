"""The topics on which guarded messages travel, as time goes on. Sans-IO. PROTOCOL §9.7.

A group's topics have other names in each of its epochs. So a subscription to one of them is to be followed:
the next epoch's topic is leased a renewal before that epoch begins, and this one's kept until the last of its
messages has come. The guard of a subscription says which topics there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from kcast.client.messages.guard_and_writer import Guard
from kcast.client.receiving.subscriptions import Subscriptions
from kcast.client.session.sessions import Sessions
from kcast.pubsub import wire
from kcast.pubsub.limits import RENEWALS_PER_TTL

LOOK_INTERVAL_S = 60.0  # at most: the clock may be set meanwhile


@dataclass(slots=True)
class _Followed:
    guard: Guard
    name: bytes
    places: Mapping[bytes, bool] = field(default_factory=dict)


class Places:
    """The subscriptions that have a guard. `next_at` is when `look` has something to do, if the clock is not
    set meanwhile. `begun` is called with each topic, in wire form, that is leased anew."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        sessions: Sessions,
        begun: Callable[[bytes, float], None],
    ) -> None:
        self.next_at = inf
        self._begun = begun
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._led_by_s = 0.0  # when it was last looked
        self._followed: list[_Followed] = []

    def begin(self, guard: Guard, name: bytes, now: float, clock_offset_s: float) -> None:
        """Subscribes to wherever the messages of a topic travel."""
        followed = _Followed(guard, name)
        self._followed.append(followed)
        self.next_at = min(self.next_at, self._follow(followed, now, clock_offset_s))

    def end(self, guard: Guard, name: bytes) -> None:
        """Ends that."""
        for followed in [each for each in self._followed if each.guard is guard and each.name == name]:
            self._followed.remove(followed)
            for place in followed.places:
                self._subscriptions.end(wire.encode_topic(place), guard)

    def lead(self, now: float) -> None:
        """Looks again soon where topics are to be leased earlier than when it was last looked: servers tell
        only with a lease how long it lasts."""
        if self.next_at < inf and self._lead_s() > self._led_by_s:
            self.next_at = min(self.next_at, now)

    def look(self, now: float, clock_offset_s: float) -> None:
        """Begins and ends what time has begun and ended."""
        times = [self._follow(followed, now, clock_offset_s) for followed in self._followed]
        self.next_at = min(times, default=inf)

    def _follow(self, followed: _Followed, now: float, clock_offset_s: float) -> float:
        """Subscribes to the places of now; returns until when they are these."""
        guard, before = followed.guard, followed.places
        unix_s = now + clock_offset_s
        self._led_by_s = self._lead_s()
        followed.places, until_unix_s = guard.places(followed.name, unix_s, self._led_by_s)
        for place, is_in_force in followed.places.items():
            if before.get(place) is not is_in_force:
                wire_topic = wire.encode_topic(place)
                self._subscriptions.begin(place, wire_topic, now, guard, followed.name, is_told=is_in_force)
                self._begun(wire_topic, now)
        for place in before:
            if place not in followed.places:
                self._subscriptions.end(wire.encode_topic(place), guard)
        return min(until_unix_s - clock_offset_s, now + LOOK_INTERVAL_S) if until_unix_s < inf else inf

    def _lead_s(self) -> float:
        """Returns how long before its time a topic is to be leased: a renewal's time."""
        return self._sessions.ttl_s_max / RENEWALS_PER_TTL
