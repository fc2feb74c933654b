"""One's own entries, until a server has taken them and as many others have them as wanted. Sans-IO.

| state | sign | next state |
|---|---|---|
| to be written | the store has it on disk | on its way |
| on its way | a server took it | taken |
| on its way | none did | to leave again, after 1 s, doubling, to 30 s |

Beside that, from when it is on disk, others are asked each 0.5 s whether they have it, until enough of them
have said so, or the time for that is over. One line asks for several, since a holder says little to a mailbox
in a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import SupportsBytes

from kcast.client.events import Outcome, Published
from kcast.client.history.entries import Entry, NotKept, Row
from kcast.client.history.ids import to_text
from kcast.client.history.words import KEEP_IDS_MAX, Keep, Kept, short_of
from kcast.client.messages import base64url
from kcast.client.publishing.waiters import Waiter, fail

ASK_INTERVAL_S = 0.5
GATHER_S = 0.15  # between lines that ask
Q_BYTES = 6
AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 30.0

Send = Callable[[bytes, float, Waiter], object]
Say = Callable[[SupportsBytes, float], object]


@dataclass(slots=True, eq=False)
class _Own:
    row: Row
    entry: Entry
    waiter: Waiter
    confirm: int
    until: float
    q: str = ""  # until others are asked
    send_at: float = inf
    wait_s: float = AGAIN_S_MIN
    ask_at: float = inf
    is_taken: bool = False
    voters: set[str] = field(default_factory=set)


class OwnEntries:
    """The entries that a log has made. `send` publishes a message, and tells its waiter what became of it;
    `say` says something to all holders; `name` is the log's mailbox."""

    def __init__(self, send: Send, say: Say, name: str, rng: Random) -> None:
        self._send, self._say, self._name, self._rng = send, say, name, rng
        self._ask_at = -inf  # when others may be asked again
        self._own: dict[bytes, _Own] = {}
        self.now = 0.0

    def __len__(self) -> int:
        return len(self._own)

    @property
    def on_the_way(self) -> int:
        """How many of them no server has taken yet."""
        return sum(not own.is_taken for own in self._own.values())

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        times = (
            min(own.send_at, max(own.ask_at, self._ask_at), inf if own.waiter.done() else own.until)
            for own in self._own.values()
        )
        return min(times, default=inf)

    def begin(self, row: Row, entry: Entry, waiter: Waiter, confirm: int, until: float) -> None:
        """Takes an entry that is being written. The waiter is told as `Log.append` says."""
        self._own[row.entry_id] = _Own(row, entry, waiter, confirm, until)

    def held(self, row: Row, now: float) -> None:
        """An entry is on disk: if it is one of these, it leaves."""
        own = self._own.get(row.entry_id)
        if own is not None:
            own.row, own.send_at, own.ask_at = row, now, now

    def kept(self, kept: Kept, by: str, now: float) -> None:
        """Another one has some of them on disk."""
        for own in self._own.values():
            if own.q == kept.q and short_of(own.row.entry_id, own.q) in kept.shorts:
                own.voters.add(by)
                own.ask_at = now

    def handle_timeout(self, now: float) -> None:
        """Sends, asks, and tells, where it is time."""
        self.now = now
        asked = list[_Own]()
        for own in list(self._own.values()):
            if now >= own.send_at:
                own.send_at = inf
                self._send(own.row.message, now, _Receipts(own, self))
            if own.waiter.done():
                own.ask_at = inf
            elif own.ask_at < inf and len(own.voters) >= own.confirm:
                own.waiter.set_result(own.entry)
            elif now >= own.until:
                own.waiter.set_exception(NotKept(to_text(own.row.entry_id), len(own.voters), own.confirm))
            elif now >= max(own.ask_at, self._ask_at):
                own.ask_at = now + ASK_INTERVAL_S
                asked.append(own)
            if own.is_taken and own.waiter.done():
                del self._own[own.row.entry_id]
        self._ask(asked, now)

    def _ask(self, asked: Sequence[_Own], now: float) -> None:
        new = [own for own in asked if not own.q]
        for number, own in enumerate(new):
            is_more = number % KEEP_IDS_MAX
            own.q = new[number - 1].q if is_more else base64url.encode(self._rng.randbytes(Q_BYTES))
        for q in dict.fromkeys(own.q for own in asked):
            self._ask_at = now + GATHER_S
            self._say(Keep(q, self._name, [own.row.entry_id for own in asked if own.q == q]), now)

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Ends all waiting."""
        for own in self._own.values():
            fail(own.waiter, make_error())
        self._own.clear()


class _Receipts:
    """Waits for what became of an entry that was published."""

    def __init__(self, own: _Own, entries: OwnEntries) -> None:
        self._own, self._entries = own, entries

    def done(self) -> bool:
        """Whether nothing is to be told any more."""
        return False

    def set_result(self, published: Published) -> None:
        """Is told which servers took it."""
        own = self._own
        if Outcome.RECEIPT in published.servers.values():
            own.is_taken, own.send_at = True, inf
        else:
            own.send_at, own.wait_s = self._entries.now + own.wait_s, min(2 * own.wait_s, AGAIN_S_MAX)

    def set_exception(self, error: BaseException) -> None:
        """Is told that there will be no outcome."""

    def exception(self) -> None:
        """Nobody looks at it."""
