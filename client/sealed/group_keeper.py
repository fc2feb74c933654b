"""Keeps a group of a running client up to date. PROTOCOL §9.8.

Like a watch on a cluster file it is polled in the engine's turns, and nobody waits for it: file or URL is
read, judged and stored in a thread (under gevent a greenlet), once a minute, and whenever an epoch's key is
to be forgotten. The interpreter does not wait for the thread when it ends: what it stores is whole or not at
all.
"""

import _thread
from collections import deque
from collections.abc import Callable, Sequence
from time import time

from kcast.client.events import GroupTrouble
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.groups import LOOK_INTERVAL_S, Look, look, member_key
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import Group, GroupFault
from kcast.pubsub.errors import KcastError

POLL_S = 0.25  # while a look is under way
FAILURES_TOLD = 3  # in a row: a file may be missing for a moment while it is replaced
TOLD_AGAIN_S = 86_400.0

LookNow = Callable[[float], Look]  # at a time in seconds since 1970
Start = Callable[[Callable[[], None]], object]


def _in_thread(act: Callable[[], None]) -> None:
    # No threading.Thread: the interpreter must not wait for a look when it ends.
    _thread.start_new_thread(act, ())


def keeper_of(group: Group, identity: Identity, now: float) -> "GroupKeeper":
    """Returns what keeps a group up to date that `groups.load` has returned for this identity."""
    store, me = GroupStore(group.name), member_key(identity)
    return GroupKeeper(group, now, lambda unix_s: look(store, me, unix_s, group.source))


class GroupKeeper:
    """A group in use by one client. For one thread at a time; `look_at` is when to ask again.

    `looking` is called in a thread that `start` starts, once at a time; `clock` returns the seconds since
    1970.
    """

    def __init__(
        self,
        group: Group,
        now: float,
        looking: LookNow,
        *,
        clock: Callable[[], float] = time,
        start: Start = _in_thread,
    ) -> None:
        self.look_at = now
        self._group = group
        self._looking = looking
        self._clock = clock
        self._start = start
        self._due_at = now
        self._is_looking = False
        self._is_closed = False
        self._found: deque[Look | KcastError] = deque()  # the thread appends to it
        self._failures = 0
        self._told_at: dict[str, float] = {}  # by fault
        self._forgot_unix_s = self._clock()  # up to when what has ended was forgotten

    def look(self, now: float) -> Sequence[Group | GroupTrouble]:
        """Returns what is new: the group as it is from now on, and what is wrong."""
        if now < self.look_at or self._is_closed:
            return ()
        news: list[Group | GroupTrouble] = []
        unix_s = self._clock()
        while self._found:
            self._take(self._found.popleft(), now, news)
        if not self._is_looking and (now >= self._due_at or self._has_ended(unix_s)):
            self._forgot_unix_s = unix_s
            self._due_at = now + LOOK_INTERVAL_S
            self._begin(unix_s)
        self._forget(unix_s, news)
        to_forget = now + max(self._group.next_change(unix_s) - unix_s, 0.0)
        self.look_at = now + POLL_S if self._is_looking else min(self._due_at, to_forget)
        return news

    def close(self) -> None:
        """Ends it; a look under way may still store what it finds."""
        self._is_closed = True

    def _has_ended(self, unix_s: float) -> bool:
        """Returns whether an epoch is to be forgotten, on disk too."""
        return self._group.next_change(self._forgot_unix_s) <= unix_s

    def _forget(self, unix_s: float, news: list[Group | GroupTrouble]) -> None:
        group = self._group.without_past(unix_s)
        if group is not self._group:
            self._group = group
            news.append(group)

    def _begin(self, unix_s: float) -> None:
        self._is_looking = True

        def act() -> None:
            try:
                self._found.append(self._looking(unix_s))
            except KcastError as error:
                self._found.append(error)
            except BaseException as error:  # whatever ends the thread must not end all looking for good
                self._found.append(KcastError(f"{type(error).__name__}: {error}"))
                raise

        try:
            self._start(act)
        except RuntimeError as error:  # the system gives no thread now
            self._found.append(KcastError(str(error)))

    def _take(self, found: Look | KcastError, now: float, news: list[Group | GroupTrouble]) -> None:
        self._is_looking = False
        if isinstance(found, KcastError):
            self._tell(GroupTrouble(self._group.name, GroupFault.MALFORMED.value, str(found)), now, news)
            return
        self._failures = self._failures + 1 if found.failure else 0
        if found.group != self._group and found.group.newest >= self._group.newest:
            self._group = found.group
            news.append(found.group)
        for trouble in found.troubles:
            self._tell(trouble, now, news)
        if self._failures >= FAILURES_TOLD:
            text = f"it cannot be seen whether there is a newer epoch: {found.failure}"
            self._tell(GroupTrouble(self._group.name, GroupFault.UNREACHABLE.value, text), now, news)

    def _tell(self, trouble: GroupTrouble, now: float, news: list[Group | GroupTrouble]) -> None:
        """Tells of a fault, once a day at most."""
        told_at = self._told_at.get(trouble.fault)
        if told_at is None or now - told_at >= TOLD_AGAIN_S:
            self._told_at[trouble.fault] = now
            news.append(trouble)
