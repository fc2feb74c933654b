"""Who is who in a test, who stands ready, and who publishes when: what the leading process keeps.

Users get their numbers here, since several processes run them, and who comes first is chance. In a *fixed*
test, that of a scenario file, numbers and counts are known beforehand, nothing begins until all stand ready,
and then all have one window. Else users come and go as locust has it, and each publisher has windows of its
own. Times are ns after t0. Pure logic: whoever owns it carries the words.
"""

from heapq import heappop, heappush
from typing import Literal, NamedTuple

from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.scenario import Scenario

Kind = Literal["Publisher", "Subscriber", "Mixed"]
KINDS: tuple[Kind, ...] = ("Publisher", "Subscriber", "Mixed")

OPEN = 1 << 62  # the end of a window that has none yet


class Place(NamedTuple):
    """A user's numbers; NONE for what it does not do."""

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

    A fixed test's publishers come first, then its subscribers, then those who do both; and so with their
    numbers of either kind. Whoever comes beyond has the next free number of each.
    """

    def __init__(self, scenario: Scenario) -> None:
        publishers, subscribers, mixed = scenario.publishers, scenario.subscribers, scenario.mixed
        self._of_kind: dict[Kind, list[Place]] = {
            "Publisher": [Place(i, i, NONE) for i in range(publishers)],
            "Subscriber": [Place(publishers + i, NONE, i) for i in range(subscribers)],
            "Mixed": [
                Place(publishers + subscribers + i, publishers + i, subscribers + i) for i in range(mixed)
            ],
        }
        self._further = _Numbers(publishers + subscribers + mixed)
        self._further_pub = _Numbers(publishers + mixed)
        self._further_sub = _Numbers(subscribers + mixed)
        self._taken: dict[int, tuple[Kind, Place, str]] = {}
        self._ready: set[int] = set()
        self._open: dict[int, Window] = {}
        self._closed: list[Window] = []
        self._changed: list[Window] = []

    # --- Who is there --------------------------------------------------------------------------------

    def claim(self, kind: Kind, node: str) -> Place:
        """Numbers for a user of this kind, who runs at this node."""
        if self._of_kind[kind]:
            place = heappop(self._of_kind[kind])
        else:
            place = Place(
                self._further.take(),
                NONE if kind == "Subscriber" else self._further_pub.take(),
                NONE if kind == "Publisher" else self._further_sub.take(),
            )
        self._taken[place.client_id] = kind, place, node
        return place

    def ready(self, client_id: int) -> Place | None:
        """This user is prepared: its leases stand, its servers know it. None for one that is not there."""
        if client_id not in self._taken:
            return None
        self._ready.add(client_id)
        return self._taken[client_id][1]

    def leave(self, client_id: int, t_ns: int) -> None:
        """This user is gone, and has done what was to be done before `t_ns`; its numbers are free again."""
        kind, place, _ = self._taken.pop(client_id, (None, None, None))
        if kind is None or place is None:
            return
        self._ready.discard(client_id)
        self._close(place.pub_id, t_ns)
        self._give_back(kind, place)

    def lose(self, node: str, t_ns: int) -> int:
        """A node is gone, with all its users; how many these were."""
        lost = [client_id for client_id, (_, _, there) in self._taken.items() if there == node]
        for client_id in lost:
            self.leave(client_id, t_ns)
        return len(lost)

    @property
    def nodes(self) -> set[str]:
        """Where there are users."""
        return {node for _, _, node in self._taken.values()}

    @property
    def count(self) -> int:
        """How many users there are."""
        return len(self._taken)

    @property
    def ready_count(self) -> int:
        """How many of them stand ready."""
        return len(self._ready)

    # --- Windows -------------------------------------------------------------------------------------

    def open_window(self, pub_id: int, from_ns: int, to_ns: int = OPEN) -> None:
        """From then on this publisher follows its schedule."""
        if pub_id == NONE or pub_id in self._open:
            return
        self._open[pub_id] = window = Window(pub_id, from_ns, to_ns)
        self._changed.append(window)

    def open_all(self, to_ns: int) -> None:
        """All publishers that there are follow their schedules, from t0 until then."""
        for _, place, _ in self._taken.values():
            self.open_window(place.pub_id, 0, to_ns)

    def close_all(self, t_ns: int) -> None:
        """No publisher goes on beyond `t_ns`."""
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
        """All windows that there are and were."""
        return [*self._closed, *self._open.values()]

    def take_changes(self) -> list[Window]:
        """Windows that were opened or closed since the last call; a closed one is told once more."""
        changed, self._changed = self._changed, []
        return changed

    def _give_back(self, kind: Kind, place: Place) -> None:
        if place.client_id < self._further.first:
            heappush(self._of_kind[kind], place)
            return
        self._further.give(place.client_id)
        self._further_pub.give(place.pub_id)
        self._further_sub.give(place.sub_id)


class _Numbers:
    """The numbers from `first` on, the least free one first."""

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
