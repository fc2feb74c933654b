"""The sync of a log: what it says that it has, asks for, and answers. Sans-IO. PROTOCOL §9.12.

Both sides only pull: who lacks something asks who has it. Nothing here is proven: what comes is judged by the
log, as everything is.
"""

from collections.abc import Sequence
from math import inf

from kcast.client.history.entries import StoreError
from kcast.client.history.having import Having, clock_bound
from kcast.client.history.holder import Answers
from kcast.client.history.host import Held, SyncHost
from kcast.client.history.ids import clock_of
from kcast.client.history.index import LOWEST, after
from kcast.client.history.puller import Puller
from kcast.client.history.words import Ask, Have, Parts, Said, Sent, What

RECENT_S = 60.0  # what is older, and missing, shows in the next `have`
UNREAD_S = 60.0  # after which a failed read is no trouble any more
SILENT = "those who hold what is missing do not answer: see that one of them runs"
WANT_S = 0.25  # between questions that a `keep` leads to, whoever says so many


class LogSync:
    """A log's part in the sync, from when its leases stand.

    The log gives it what is said, asks whether a copy is awaited, and tells which of these count.
    """

    def __init__(self, host: SyncHost, held: Held, now: float) -> None:
        self._host = host
        self._held = held
        self._want_at = -inf
        self._unread = "", -inf  # why the store could not be read, and until when that is told
        self.having = Having(host, held, now)
        self.puller = Puller(host, held, self.having)
        self.answers = Answers(host, held, self.having.draw_delay)

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        return min(self.having.next_at, self.puller.next_at, self.answers.next_at)

    def trouble(self, now: float) -> str | None:
        """Returns why others get nothing, or nothing comes from them."""
        unread, until = self._unread
        return unread if now < until else SILENT if self.having.are_silent else None

    def handle_timeout(self, now: float) -> None:
        """Does what is due."""
        self.puller.handle_timeout(now)
        self.having.handle_timeout(now)
        self.answers.handle_timeout(now)

    def hear_said(self, said: Said, now: float, sender: str | None = None) -> None:
        """Takes what was said on the topic `sync`, and the key that proves by whom."""
        if said.mine == self._host.name:
            return
        if isinstance(said, Have):
            self.having.hear(said, now, sender)
            self.puller.handle_timeout(now)
            return
        self.answers.hear_keep(said, now)
        lo = max(self._held.floor, clock_bound(int((self._host.unix_s() - RECENT_S) * 1e6)))
        lacking = sorted(each for each in said.ids if each >= lo and each not in self._held.index)
        if lacking and now >= self._want_at:
            self._want_at = now + WANT_S
            self.puller.want(lacking[0], after(lacking[-1]), now, said.mine)

    def want_parents(self, missing: Sequence[tuple[bytes, bytes]], now: float) -> None:
        """Asks for ranges of parents that have not come. Where no sync goes on, what came before them may be
        missing, too, as where somebody was away: all is asked for since the last entry that is there."""
        if self.puller.is_syncing:
            for lo, hi in missing:
                self.puller.want(lo, after(hi), now)
        elif missing:
            first, last = min(lo for lo, _ in missing), max(hi for _, hi in missing)
            recent = clock_bound(max(0, clock_of(first) - int(RECENT_S * 1e6)))
            lo = max(recent, self._held.floor, after(self._held.index.last_before(first) or LOWEST))
            self.puller.want(lo, after(last), now, entries=0)

    def hear_word(self, word: Ask | What | Parts | Sent, now: float) -> None:
        """Takes what was said in the mailbox."""
        if isinstance(word, Ask | What):
            try:
                self.answers.hear(word, now)
            except StoreError as error:  # who asks goes to the next holder
                self._unread = str(error), now + UNREAD_S
        else:
            self.puller.hear(word, now)
