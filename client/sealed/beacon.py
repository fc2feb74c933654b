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


class Beacon:
    """One client's part of the talk about one group. `now` is in seconds of one clock.

    `newest` is the highest epoch that the owner has signed and that was heard of. What is not believed is
    counted in `drops`, and in `bad`.
    """

    def __init__(self, owner: VerifierKey, rng: Random, drops: Counter[Drop]) -> None:
        self.newest = self.bad = 0
        self.other: Head | None = None  # the last that was news: of an epoch only the owner can make two
        self._owner = owner
        self._drops = drops
        self._rng = rng
        self._head: Head | None = None
        self._topics: tuple[bytes, ...] = ()
        self._soon_at = self._hour_at = inf
        self._silent: set[bytes] = set()  # topics on which another member has said it instead
        self._said_at = -inf

    @property
    def next_at(self) -> float:
        """When to call `say`."""
        return min(self._soon_at, self._hour_at)

    def adopt(self, head: bytes, topics: tuple[bytes, ...], now: float) -> None:
        """Goes by the newest epoch's head from now on, and says it soon where it is another one."""
        self._topics = topics
        if head and (self._head is None or self._head.data != head):
            self._head = Head.parse(head)
            self.newest = max(self.newest, self._head.term.epoch)
            self._say_soon(now)
            self._hour_at = min(self._hour_at, self._hour_after(now))

    def say(self, now: float) -> Iterator[tuple[bytes, bytes]]:
        """Returns topics and payloads to publish, where it is time."""
        if now < self.next_at or self._head is None:
            return
        silent = set() if now >= self._hour_at else self._silent
        for topic in self._topics:
            if topic not in silent:
                yield topic, self._head.data
        if not silent:  # only what was really said counts for the hour
            self._hour_at = self._hour_after(now)
        self._said_at, self._soon_at = now, inf

    def hear(self, topic: bytes, payload: bytes, now: float) -> bool:
        """Takes what another member says; returns whether that is a reason to look at the file."""
        own = self._head
        if own is None or payload == own.data:
            self._silent.add(topic)
        elif (head := self._believed(payload, own.name)) is None:
            pass
        elif head.term.epoch >= self.newest and head not in (own, self.other):
            self.newest, self.other = head.term.epoch, head
            return True
        elif head.term.epoch < own.term.epoch and self._soon_at == inf:
            self._say_soon(now)  # once: many copies would else have it said sooner than by chance
            self._soon_at = max(self._soon_at, self._said_at + SAY_AGAIN_S)
        return False

    def _say_soon(self, now: float) -> None:
        self._silent.clear()
        self._soon_at = now + self._rng.uniform(0, SAY_SOON_S)

    def _hour_after(self, now: float) -> float:
        return now + self._rng.uniform(1.0, 1.5) * HOUR_S

    def _believed(self, payload: bytes, name: str) -> Head | None:
        """Returns a head that the owner has signed; None for anything else, which is counted."""
        with suppress(GroupFileError):
            head = Head.parse(payload)
            head.verify(self._owner)
            if head.name == name:
                return head
        self._drops[Drop.BAD_BEACON] += 1
        self.bad += 1
        return None
