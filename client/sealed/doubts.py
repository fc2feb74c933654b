"""What looks wrong in messages that are dropped: one's own clock, or somebody who forges. Sans-IO.

A clock that is wrong drops all that is signed or sealed, and nothing says why. It is recognised by messages
that are proven and not in time, of three keys or more, where none has been in time for a minute. To prove
what is dropped anyway costs a signature, so few are looked at. Whoever replays old messages of three keys on
a topic where nothing else comes can make a sound clock look wrong: this is a hint, and changes nothing.
"""

from collections import OrderedDict
from math import inf
from statistics import median

from kcast.client.events import ClockDoubt, Forged

SILENCE_S = 60.0  # without a message in time
SENDERS_MIN = 3
LOOK_INTERVAL_S = 1.0  # between messages that are proven though they are dropped, ...
_LOOKS_MAX = 3.0  # ... of which this many may come at once: programs publish on the minute
TOLD_AGAIN_S = 3600.0
_SENDERS_MAX = 16

FORGED_PER_S = 100.0
_FORGED_TOLD_AGAIN_S = 60.0
_TOPICS_MAX = 1024


class ClockWatch:
    """Looks for a wrong clock in what comes to one subscription. Times are in seconds since 1970."""

    def __init__(self, begun_s: float) -> None:
        self._in_time_at = begun_s
        self._looks, self._looked_at = _LOOKS_MAX, begun_s
        self._told_at = -inf
        self._off: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # by key: when, and how far

    def is_in_time(self, now: float) -> None:
        """Takes note of a proven message that is in time."""
        self._in_time_at = now
        self._told_at = -inf
        if self._off:
            self._off.clear()

    def wants_proof(self, key: bytes, now: float) -> bool:
        """Whether a message that is not in time should be proven all the same."""
        if now < self._in_time_at:  # the clock was set back
            self._in_time_at = now
        since_s, self._looked_at = max(0.0, now - self._looked_at), now
        self._looks = min(_LOOKS_MAX, self._looks + since_s / LOOK_INTERVAL_S)
        known = self._off.get(key)
        if self._looks < 1 or (known is not None and now < known[0] + SILENCE_S / 4):
            return False
        self._looks -= 1
        return True

    def is_off(self, topic: bytes, key: bytes, off_s: float, now: float) -> ClockDoubt | None:
        """Takes note of a proven message that is not in time; returns what to tell."""
        self._off[key] = now, off_s
        self._off.move_to_end(key)
        if len(self._off) > _SENDERS_MAX:
            self._off.popitem(last=False)
        lately = [off for at, off in self._off.values() if at > now - SILENCE_S and (off > 0) == (off_s > 0)]
        if (
            len(lately) < SENDERS_MIN
            or now < self._in_time_at + SILENCE_S
            or now < self._told_at + TOLD_AGAIN_S
        ):
            return None
        self._told_at = now
        return ClockDoubt(topic, len(lately), round(median(lately), 1))


class ForgeryMeter:
    """Counts messages that claim a key and are not signed by it."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # by topic: the second, how many
        self._told_at: OrderedDict[bytes, float] = OrderedDict()

    def count(self, topic: bytes, now: float) -> Forged | None:
        """Takes note of one; returns what to tell, once a minute for a topic at most."""
        second = int(now)
        began, count = self._counts.get(topic, (second, 0))
        forged = None
        if began != second:
            per_second = count / max(1, second - began)
            if per_second > FORGED_PER_S and now >= self._told_at.get(topic, -inf) + _FORGED_TOLD_AGAIN_S:
                self._told_at[topic] = now
                self._bound(self._told_at)
                forged = Forged(topic, round(per_second, 1))
            began, count = second, 0
        self._counts[topic] = began, count + 1
        self._bound(self._counts)
        return forged

    @staticmethod
    def _bound(kept: OrderedDict[bytes, float] | OrderedDict[bytes, tuple[int, int]]) -> None:
        if len(kept) > _TOPICS_MAX:
            kept.popitem(last=False)
