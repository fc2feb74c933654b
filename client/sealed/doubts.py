"""What looks wrong in messages that are dropped: one's own clock, or somebody who floods. Sans-IO.

A clock that is wrong drops all that is signed or sealed, and nothing says why. It is recognised by proven
messages that are out of time by the same for a minute or more, in which none has been in time. To prove what
is dropped anyway costs a signature, so one a second is looked at. It may be the sender's clock that is wrong,
and whoever replays old messages at their pace, where nothing else comes, can make a sound clock look so: this
is a hint, and changes nothing.
"""

from collections import OrderedDict
from math import inf

from kcast.client.events import ClockDoubt, Forged

SILENCE_S = 60.0  # without a message in time
STEADY_S = 15.0  # by which what is out of time by the same may differ: by what delays it
LOOK_INTERVAL_S = 1.0  # between messages that are proven though they are dropped
TOLD_AGAIN_S = 3600.0

FLOOD_PER_S = 100.0
_FLOOD_TOLD_AGAIN_S = 60.0
_COUNTS_MAX = 1024


class ClockWatch:
    """Looks for a wrong clock in what comes to one subscription. Times are in seconds since 1970."""

    def __init__(self, begun_s: float) -> None:
        self._in_time_at = begun_s
        self._looked_at = self._told_at = -inf
        self._first: tuple[float, float] | None = None  # when a message was out of time first, and how far

    def is_in_time(self, now: float) -> None:
        """Takes note of a proven message that is in time."""
        self._in_time_at = now
        self._told_at = -inf
        self._first = None

    def wants_proof(self, now: float) -> bool:
        """Whether a message that is not in time should be proven all the same."""
        if now < self._in_time_at:  # the clock was set back
            self._in_time_at, self._first = now, None
        if abs(now - self._looked_at) < LOOK_INTERVAL_S:
            return False
        self._looked_at = now
        return True

    def is_off(self, topic: bytes, sender: str, off_s: float, now: float) -> ClockDoubt | None:
        """Takes note of a proven message that is not in time; returns what to tell."""
        if self._first is None:
            self._first = now, off_s
        first_at, first_off_s = self._first
        if now < max(first_at, self._in_time_at) + SILENCE_S:
            return None
        if abs(off_s - first_off_s) > STEADY_S:
            self._first = now, off_s
            return None
        if now < self._told_at + TOLD_AGAIN_S:
            return None
        self._told_at = now
        return ClockDoubt(topic, sender, round(off_s, 1))


class FloodMeter:
    """Counts messages that claim a key and are not signed by it, and those of a key that comes as ever new
    processes."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[bytes, str | None], tuple[int, int, float]] = OrderedDict()

    def count(self, topic: bytes, sender: str | None, now: float) -> Forged | None:
        """Takes note of one; returns what to tell, once a minute for a topic and a sender at most."""
        second, forged = int(now), None
        began, count, told_at = self._counts.get((topic, sender), (second, 0, -inf))
        if began != second:
            per_second = count / max(1, second - began)
            if per_second > FLOOD_PER_S and now >= told_at + _FLOOD_TOLD_AGAIN_S:
                told_at = now
                forged = Forged(topic, round(per_second, 1), sender)
            began, count = second, 0
        self._counts[topic, sender] = began, count + 1, told_at
        self._counts.move_to_end((topic, sender))
        if len(self._counts) > _COUNTS_MAX:
            self._counts.popitem(last=False)
        return forged
