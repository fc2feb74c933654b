"""Tells repeats of proven messages from new ones. Sans-IO. PROTOCOL §9.6.

Each process numbers its messages on a topic. Of each process a *window* is kept: the highest number, and
which of the 1,024 up to it were taken. Only proven messages move it, and a jump upwards moves it at once: who
may publish may number as he likes, and harms nobody but himself, since a window is of one key.

What is kept is bounded, and each key pays for itself. Of too many windows, the key that has most gives up its
oldest. The time of the newest message in it becomes the *floor* of this key: of its processes that are not
known, nothing is taken that is not newer, now or once they are known again, since it may have been taken
already. Nor is anything taken that was sent more than 30 s before all this began, since it may have been
taken by a subscriber before this one.
"""

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, field

from kcast.client.events import Drop

WINDOW = 1024  # numbers
WINDOWS_MAX = 4096
BEFORE_START_S = 30.0

_MASK = (1 << WINDOW) - 1


@dataclass(slots=True)
class _Window:
    """Bit n of `taken` stands for the number `highest` - n. `floor_ms` is its key's floor when it began."""

    highest: int
    taken: int
    newest_ms: int
    floor_ms: int


@dataclass(slots=True)
class _Sender:
    """What is kept of a key: the windows of its processes, each a topic and a publisher's name, as they were
    heard last, and its floor; 0 for none."""

    windows: OrderedDict[tuple[bytes, str], _Window] = field(default_factory=OrderedDict)
    floor_ms: int = 0


class Replays:
    """The windows of the processes that were heard last.

    `begun_ms` is the time at the start, in ms since 1970. Whose messages are proven here must be bounded: it
    keeps something of each key. `is_crowded` says of the message that was given last whether its process is
    new, and its key has given up others for such.
    """

    def __init__(self, begun_ms: int, windows_max: int = WINDOWS_MAX) -> None:
        self.begin_earlier(begun_ms)
        self.is_crowded = False
        self._windows_max = windows_max
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()  # as they were heard last
        self._count = 0  # of windows

    def __len__(self) -> int:
        return self._count

    def is_too_old(self, sent_ms: int) -> bool:
        """Whether a message of this time is never taken."""
        return sent_ms < self._oldest_ms

    def begin_earlier(self, begun_ms: int) -> None:
        """Takes that all this began earlier than it seemed: the clock was wrong, and was set back."""
        self._oldest_ms = begun_ms - int(BEFORE_START_S * 1000)

    def keep_only(self, keys: Container[bytes]) -> None:
        """Forgets the windows of keys whose messages are not proven here any more. Their floors stay, since a
        clock that was wrong for a moment may have had these keys go: they may come back."""
        for key, sender in self._senders.items():
            while key not in keys and sender.windows:
                self._give_up(sender)

    def take(self, topic: bytes, publisher: str, key: bytes, seq: int, sent_ms: int) -> Drop | None:
        """Takes a proven message; returns why it is not taken, None where it is."""
        process = topic, publisher
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = _Sender()
        self._senders.move_to_end(key)
        window = sender.windows.get(process)
        self.is_crowded = window is None and sender.floor_ms > 0
        floor_ms = sender.floor_ms if window is None else window.floor_ms
        if sent_ms <= floor_ms:
            return Drop.TOO_OLD
        if window is None:
            if self._count >= self._windows_max:
                # Of the key that has most; of several, of the one heard least lately.
                self._give_up(max(self._senders.values(), key=lambda each: len(each.windows)))
            sender.windows[process] = _Window(seq, 1, sent_ms, floor_ms)
            self._count += 1
            return None
        ahead = seq - window.highest
        if ahead > 0:
            window.taken = ((window.taken << ahead) | 1) & _MASK if ahead < WINDOW else 1
            window.highest = seq
        elif ahead <= -WINDOW or window.taken >> -ahead & 1:
            return Drop.REPLAYED
        else:
            window.taken |= 1 << -ahead
        window.newest_ms = max(window.newest_ms, sent_ms)
        sender.windows.move_to_end(process)
        return None

    def _give_up(self, sender: _Sender) -> None:
        """Forgets the oldest window of a key."""
        _, forgotten = sender.windows.popitem(last=False)
        sender.floor_ms = max(sender.floor_ms, forgotten.newest_ms)
        self._count -= 1
