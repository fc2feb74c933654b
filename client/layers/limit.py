"""A limit per sender: so many messages, or bytes, in a window of time. Sans-IO."""

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import NamedTuple

SENDERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """What one sender may send in a window, which begins with its first message.

    - `count`: messages in a window, 1 or more.
    - `window_s`: seconds that a window lasts.
    - `size_bytes`: bytes of payload in a window; by default any number.
    - `ban_s`: seconds for which a sender is left out that sends more; by default until its window ends. It
      needs proven keys: else others could have a sender left out.

    A sender is known by its key where that is proven, else by its publisher's name, which anyone can claim.
    """

    count: int
    window_s: float
    size_bytes: int | None = None
    ban_s: float = 0.0

    def __post_init__(self) -> None:
        size_bytes = self.size_bytes
        for name, given in (
            ("count", self.count),
            ("size_bytes", size_bytes if size_bytes is not None else 1),
        ):
            if not isinstance(given, int) or isinstance(given, bool):
                raise TypeError(f"{name} is of type {type(given).__name__}: give a whole number")
            if given < 1:
                raise ValueError(f"{name} is {given}: give 1 or more")
        for name, seconds in (("window_s", self.window_s), ("ban_s", self.ban_s)):
            if not isinstance(seconds, Real):
                raise TypeError(f"{name} is of type {type(seconds).__name__}: give a number of seconds")
        if not 0 < self.window_s < inf:
            raise ValueError(f"window_s is {self.window_s}: give more than 0 seconds")
        if not 0 <= self.ban_s < inf:
            raise ValueError(f"ban_s is {self.ban_s}: give 0 or more seconds")


class Verdict(NamedTuple):
    """Seconds for which a sender is left out, and whether this is the first time in its window."""

    wait_s: float
    is_first: bool


class _Window:
    __slots__ = "count", "is_over", "size_bytes", "until"

    def __init__(self, until: float) -> None:
        self.until, self.count, self.size_bytes, self.is_over = until, 0, 0, False


class Windows:
    """The windows of the senders of late, 4,096 at most: of more, the one goes that began to send first.

    | state | sign | next state |
    |---|---|---|
    | unknown, or its window has ended | message | within, in a new window |
    | within | message that is one too many, or too long | over, until the window or the ban ends |
    | over | message | over |
    """

    def __init__(self, limit: FixedWindow) -> None:
        self._limit = limit
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def take(self, sender: str, size_bytes: int, now: float) -> Verdict | None:
        """Counts a message; returns None where it is within the limit."""
        limit = self._limit
        window = self._windows.get(sender)
        if window is None or now >= window.until:
            self._windows.pop(sender, None)
            window = self._windows[sender] = _Window(now + limit.window_s)
            if len(self._windows) > SENDERS_MAX:
                self._windows.popitem(last=False)
        if window.is_over:
            return Verdict(window.until - now, is_first=False)
        window.count += 1
        window.size_bytes += size_bytes
        if window.count <= limit.count and window.size_bytes <= (limit.size_bytes or inf):
            return None
        window.is_over = True
        if limit.ban_s:
            window.until = now + limit.ban_s
        return Verdict(window.until - now, is_first=True)
