"""Coordinator state: user numbering, readiness, and publishing windows. Pure logic; times are ns after t0.

Users get their ids here, since several processes run them in no fixed order. In a *fixed* test, that of a
scenario file, ids and counts are known beforehand, nothing begins until all users are ready, and then all
have the same window. Otherwise users come and go as locust decides, and each publisher has windows of its
own.
"""

from heapq import heappop, heappush
from typing import Literal, NamedTuple

from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.scenario import Scenario

Kind = Literal["Publisher", "Subscriber", "Mixed"]

OPEN = 1 << 62  # the end of a window that has none yet


class UserIds(NamedTuple):
    """A user's numbers as a client, a publisher, a subscriber; NONE for what it does not do."""

    client_id: int
    pub_id: int
    sub_id: int


class Window(NamedTuple):
    """A time in which a publisher follows its schedule."""

    pub_id: int
    from_ns: int
    to_ns: int


class Roster:
    """The users of one test.

    A fixed test numbers its publishers first, then its subscribers, then the users that do both; pub_id and
    sub_id likewise. Any further user gets the lowest free number of each.
    """

    def __init__(self, scenario: Scenario) -> None:
        publishers, subscribers, mixed = scenario.publishers, scenario.subscribers, scenario.mixed
        self._of_kind: dict[Kind, list[UserIds]] = {
            "Publisher": [UserIds(i, i, NONE) for i in range(publishers)],
            "Subscriber": [UserIds(publishers + i, NONE, i) for i in range(subscribers)],
            "Mixed": [
                UserIds(publishers + subscribers + i, publishers + i, subscribers + i) for i in range(mixed)
            ],
        }
        self._further = _Numbers(publishers + subscribers + mixed)
        self._further_pub = _Numbers(publishers + mixed)
        self._further_sub = _Numbers(subscribers + mixed)
        self._taken: dict[int, tuple[Kind, UserIds, str]] = {}
        self._ready: set[int] = set()
        self._open: dict[int, Window] = {}
        self._closed: list[Window] = []
        self._changed: list[Window] = []

    # --- Users ---------------------------------------------------------------------------------------

    def claim(self, kind: Kind, node: str) -> UserIds:
        """Assigns ids to a user of this kind, which runs at this node."""
        if self._of_kind[kind]:
            ids = heappop(self._of_kind[kind])
        else:
            ids = UserIds(
                self._further.take(),
                NONE if kind == "Subscriber" else self._further_pub.take(),
                NONE if kind == "Publisher" else self._further_sub.take(),
            )
        self._taken[ids.client_id] = kind, ids, node
        return ids

    def ready(self, client_id: int) -> UserIds | None:
        """Marks a user as ready: its leases stand, its servers know it. None if there is no such user."""
        if client_id not in self._taken:
            return None
        self._ready.add(client_id)
        return self._taken[client_id][1]

    def leave(self, client_id: int, t_ns: int) -> None:
        """Removes a user, which has published all that was due before `t_ns`. Its ids are free again."""
        kind, ids, _ = self._taken.pop(client_id, (None, None, None))
        if kind is None or ids is None:
            return
        self._ready.discard(client_id)
        self._close(ids.pub_id, t_ns)
        self._give_back(kind, ids)

    def remove_node(self, node: str, t_ns: int) -> int:
        """Removes all users of a node that is gone. Returns their number."""
        lost = [client_id for client_id, (_, _, there) in self._taken.items() if there == node]
        for client_id in lost:
            self.leave(client_id, t_ns)
        return len(lost)

    @property
    def nodes(self) -> set[str]:
        """The nodes that have users."""
        return {node for _, _, node in self._taken.values()}

    @property
    def count(self) -> int:
        """Number of users."""
        return len(self._taken)

    @property
    def ready_count(self) -> int:
        """Number of users that are ready."""
        return len(self._ready)

    # --- Windows -------------------------------------------------------------------------------------

    def open_window(self, pub_id: int, from_ns: int, to_ns: int = OPEN) -> None:
        """Opens a publisher's window, unless it has an open one. NONE does nothing."""
        if pub_id == NONE or pub_id in self._open:
            return
        self._open[pub_id] = window = Window(pub_id, from_ns, to_ns)
        self._changed.append(window)

    def open_all(self, to_ns: int) -> None:
        """Opens a window from t0 to `to_ns` for every publisher."""
        for _, ids, _ in self._taken.values():
            self.open_window(ids.pub_id, 0, to_ns)

    def close_all(self, t_ns: int) -> None:
        """Ends all open windows at `t_ns`, if they do not end sooner."""
        for pub_id in tuple(self._open):
            self._close(pub_id, t_ns)

    def _close(self, pub_id: int, t_ns: int) -> None:
        window = self._open.pop(pub_id, None)
        if window is None:
            return
        window = window._replace(to_ns=max(window.from_ns, min(window.to_ns, t_ns)))
        self._closed.append(window)
        self._changed.append(window)

    @property
    def windows(self) -> list[Window]:
        """All windows, closed and open."""
        return [*self._closed, *self._open.values()]

    def take_changes(self) -> list[Window]:
        """Returns the windows that were opened or closed since the last call, one for each such event."""
        changed, self._changed = self._changed, []
        return changed

    def _give_back(self, kind: Kind, ids: UserIds) -> None:
        if ids.client_id < self._further.first:
            heappush(self._of_kind[kind], ids)
            return
        self._further.give(ids.client_id)
        self._further_pub.give(ids.pub_id)
        self._further_sub.give(ids.sub_id)


class _Numbers:
    """The numbers from `first` on; the lowest free one is taken first."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._next = first
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        if number != NONE:
            heappush(self._free, number)
