"""Tells repeats of proven messages from new ones. Sans-IO. PROTOCOL §9.6.

Each process numbers its messages on a topic. Of each process a *window* is kept: the highest number, and
which of the 1,024 up to it were taken. Only proven messages move it, and a jump upwards moves it at once: who
may publish may number as he likes, and harms nobody but himself, since a window is of one key.

What is kept is bounded. When a window is forgotten, the time of its newest message becomes the *floor*: of a
process that is not known, nothing is taken that is not newer, now or once it is known again, since its
window may be the one that was forgotten. The floor is that of its key: no key makes another's messages too
old. Only of more than 4,096 keys does one have to share. A key that has several windows pays for its new ones
itself: whoever goes by thousands of names pushes nobody out. Nor is anything taken that was sent more than
30 s before all this began, since it may have been taken by a subscriber before this one.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass

from kcast.client.events import Drop

WINDOW = 1024  # numbers
PROCESSES_MAX = 4096
BEFORE_START_S = 30.0

_MASK = (1 << WINDOW) - 1

Process = tuple[bytes, str, bytes]
"""A topic, a publisher's name, and what proves its messages: its key, or `enc`."""


@dataclass(slots=True)
class _Window:
    """Bit n of `taken` stands for the number `highest` - n. `floor_ms` is the floor when it began."""

    highest: int
    taken: int
    newest_ms: int
    floor_ms: int


class Replays:
    """The windows of the processes that were heard last. `begun_ms` is the time at the start, in ms since
    1970."""

    def __init__(self, begun_ms: int, processes_max: int = PROCESSES_MAX) -> None:
        self._oldest_ms = begun_ms - int(BEFORE_START_S * 1000)
        self._floor_ms = self._oldest_ms - 1
        self._processes_max = processes_max
        self._windows: OrderedDict[Process, _Window] = OrderedDict()
        self._counts: Counter[bytes] = Counter()  # of windows, by key
        self._floors_ms: dict[bytes, int] = {}  # of keys of which a window was forgotten

    def __len__(self) -> int:
        return len(self._windows)

    def is_too_old(self, sent_ms: int) -> bool:
        """Whether a message of this time is never taken."""
        return sent_ms < self._oldest_ms

    def begin_earlier(self, begun_ms: int) -> None:
        """Takes that all this began earlier than it seemed: the clock was wrong, and was set back."""
        before_ms, self._oldest_ms = self._oldest_ms, begun_ms - int(BEFORE_START_S * 1000)
        if self._floor_ms == before_ms - 1:
            self._floor_ms = self._oldest_ms - 1

    def take(self, process: Process, seq: int, sent_ms: int) -> Drop | None:
        """Takes a proven message; returns why it is not taken, None where it is."""
        window = self._windows.get(process)
        if window is None:
            key = process[2]
            floor_ms = max(self._floor_ms, self._floors_ms.get(key, 0))
            if sent_ms <= floor_ms:
                return Drop.TOO_OLD
            if len(self._windows) >= self._processes_max:
                self._forget_for(key)
            self._windows[process] = _Window(seq, 1, sent_ms, floor_ms)
            self._counts[key] += 1
            return None
        if sent_ms <= window.floor_ms:
            return Drop.TOO_OLD
        ahead = seq - window.highest
        if ahead > 0:
            window.taken = ((window.taken << ahead) | 1) & _MASK if ahead < WINDOW else 1
            window.highest = seq
        elif ahead <= -WINDOW or window.taken >> -ahead & 1:
            return Drop.REPLAYED
        else:
            window.taken |= 1 << -ahead
        window.newest_ms = max(window.newest_ms, sent_ms)
        self._windows.move_to_end(process)
        return None

    def _forget_for(self, key: bytes) -> None:
        """Forgets a window, so that this key can have another one."""
        if self._counts[key] > 1:
            oldest = next(process for process in self._windows if process[2] == key)
            forgotten = self._windows.pop(oldest)
            self._counts[key] -= 1
            self._raise_floor(key, forgotten.newest_ms)
            return
        oldest, forgotten = self._windows.popitem(last=False)
        self._raise_floor(oldest[2], forgotten.newest_ms)
        self._counts[oldest[2]] -= 1
        if not self._counts[oldest[2]]:
            del self._counts[oldest[2]]

    def _raise_floor(self, key: bytes, newest_ms: int) -> None:
        """Takes nothing more of a key's unknown processes that is not newer. Of too many keys, the one whose
        floor was raised longest ago has that of all from then on."""
        self._floors_ms[key] = max(self._floors_ms.pop(key, 0), newest_ms)
        if len(self._floors_ms) > self._processes_max:
            self._floor_ms = max(self._floor_ms, self._floors_ms.pop(next(iter(self._floors_ms))))
