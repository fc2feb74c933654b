"""Checkers of what clients never do, whatever servers say: ask without end, or compute without end."""

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from kcast.client.session.allowance import ALL_S
from kcast.pubsub.endpoint import Address
from tests.simulation.checker import Checker
from tests.simulation.hosts import SLICE_S
from tests.simulation.ledger import ClientTurn, is_answer, is_control, lines_of

if TYPE_CHECKING:
    from tests.simulation.world import World

WINDOW_S = 10.0
REQUESTS_MAX = 50  # in a window
REPEATS_MAX = 16  # the application may ask for three


class RequestsBounded(Checker):
    """A client asks one server for cookies and leases so often at the most, not counting what copies cause;
    and sends it no line again and again, but once for each refusal for the rate."""

    name = "requests-bounded"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._asked: defaultdict[tuple[str, Address], deque[float]] = defaultdict(deque)
        self._copies: defaultdict[tuple[str, Address], deque[float]] = defaultdict(deque)
        self._refused: defaultdict[tuple[str, Address], int] = defaultdict(int)
        self._sent: defaultdict[tuple[str, Address, bytes], int] = defaultdict(int)

    def client_turn(self, turn: ClientTurn) -> None:
        name, now = turn.host.name, turn.now
        for packet in turn.packets:
            self._refused[name, packet.source] += packet.data.count(b" rate ")
            if not is_answer(packet.data):
                self._copies[name, packet.source].append(now)
        for destination, data in turn.sent:
            lines = lines_of(data)
            publishes = [line for line in lines if b" " in line and not is_control(line)]
            for line in publishes:
                self._repeat(name, destination, line)
            if not publishes:
                self._ask(name, destination, now)

    def _repeat(self, name: str, server: Address, line: bytes) -> None:
        """Counts numbered lines: others may be published again on purpose."""
        if line.partition(b" ")[2].startswith(b"%@"):
            self._sent[name, server, line] += 1
            if self._sent[name, server, line] > REPEATS_MAX + self._refused[name, server]:
                self.fail(f"{name} has sent {server} {line!r} {self._sent[name, server, line]} times")

    def _ask(self, name: str, server: Address, now: float) -> None:
        asked, copies = self._asked[name, server], self._copies[name, server]
        asked.append(now)
        for times in (asked, copies):
            while times and times[0] <= now - WINDOW_S:
                times.popleft()
        if len(asked) > REQUESTS_MAX + len(copies):
            self.fail(
                f"{name} has asked {server} for something {len(asked)} times in {WINDOW_S:g} s, in which "
                f"{len(copies)} copies came"
            )


class StampsBounded(Checker):
    """A client computes for all servers no longer than it allows itself (§7.8), but for its last slice."""

    name = "stamps-bounded"

    def client_turn(self, turn: ClientTurn) -> None:
        spending = turn.host.core.sessions.spending
        slice_s = self.world.options.tries_per_ms * 1000 * SLICE_S * spending.try_s
        if spending.spent_s > ALL_S + slice_s:
            self.fail(f"{turn.host.name} has spent {spending.spent_s:.3f} s on stamps, {ALL_S:g} s are right")
