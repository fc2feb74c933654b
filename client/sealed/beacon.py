"""What members of a group tell each other of its newest epoch. Sans-IO. PROTOCOL §9.8.

The message is the head of the newest group file, in clear, on a topic that the members of an epoch know, and
on those of the two before: so who still goes by one of these hears that there is a newer one, whatever the
place that he looks at hands out. Said soon after the start, after an epoch was adopted, and when an older one
is heard; else every hour or so. Whoever hears, before he has said it, what he would say, leaves it to the
hour: so a large group does not talk all at once, and nobody can keep it silent for longer than that.

A head counts only where the owner has signed it. All that come are read, and verified where they have the
form of one: that costs no more than a line does, and a bound would let a flood keep the true one out.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from random import Random

from kcast.client.events import Drop
from kcast.client.sealed.group_file import GroupFileError, Head
from kcast.client.trust.forms.note import VerifierKey

SAY_SOON_S = 30.0
SAY_AGAIN_S = 60.0  # the least time between what one member says because of others
HOUR_S = 3600.0
FLOOD_PER_S = 20  # that are not believed: more are told of


class Beacon:
    """One client's part of the talk about one group. `next_at` is when to call `say`; `now` is in seconds of
    one clock.

    `newest` is the highest epoch that the owner has signed and that was heard of. What is not believed is
    counted in `drops`, and `is_flooded` once that were many in a second.
    """

    def __init__(self, owner: VerifierKey, rng: Random, drops: Counter[Drop]) -> None:
        self.next_at = inf
        self.newest = 0
        self.is_flooded = False
        self._owner = owner
        self._drops = drops
        self._rng = rng
        self._head: Head | None = None
        self._topics: tuple[bytes, ...] = ()
        self._heard: Head | None = None  # the last that was believed
        self._is_soon = False  # what others say instead counts
        self._silent: set[bytes] = set()  # topics on which another member has just said it
        self._said_at = -inf
        self._second, self._bad = -inf, 0

    def adopt(self, head: bytes, topics: tuple[bytes, ...], now: float) -> None:
        """Goes by the newest epoch's head from now on, and says it soon where it is another one."""
        self._topics = topics
        if head and (self._head is None or self._head.data != head):
            self._head = Head.parse(head)
            self.newest = max(self.newest, self._head.term.epoch)
            self._say_soon(now)

    def say(self, now: float) -> Iterator[tuple[bytes, bytes]]:
        """Returns topics and payloads to publish, where it is time."""
        if now < self.next_at or self._head is None:
            return
        for topic in self._topics:
            if topic not in self._silent:
                yield topic, self._head.data
        self._silent.clear()
        self._said_at, self._is_soon = now, False
        self.next_at = now + self._rng.uniform(1.0, 1.5) * HOUR_S

    def hear(self, topic: bytes, payload: bytes, now: float) -> bool:
        """Takes what another member says; returns whether it is of a newer epoch than any before."""
        if self._head is None:
            return False
        if payload == self._head.data:
            if self._is_soon:
                self._silent.add(topic)
            return False
        head = self._believed(payload, now)
        if head is None:
            return False
        if head.term.epoch < self._head.term.epoch:
            self._say_soon(max(now, self._said_at + SAY_AGAIN_S - SAY_SOON_S))
        elif head.term.epoch > self.newest:
            self.newest = head.term.epoch
            return True
        return False

    def _say_soon(self, now: float) -> None:
        if not self._is_soon:
            self._silent.clear()
        self._is_soon = True
        self.next_at = min(self.next_at, now + self._rng.uniform(0, SAY_SOON_S))

    def _believed(self, payload: bytes, now: float) -> Head | None:
        """Returns a head that the owner has signed; None for anything else, which is counted."""
        if self._heard is not None and payload == self._heard.data:
            return self._heard
        assert self._head is not None
        with suppress(GroupFileError):
            head = Head.parse(payload)
            if head.name == self._head.name:
                head.verify(self._owner)
                self._heard = head
                return head
        self._drops[Drop.BAD_BEACON] += 1
        if now - self._second >= 1.0:
            self._second, self._bad = now, 0
        self._bad += 1
        self.is_flooded |= self._bad > FLOOD_PER_S
        return None
