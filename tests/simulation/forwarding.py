"""The invariants of copies: to whom they go, what they carry, and that none is missing.

Copies leave in slices, and a busy uplink makes them wait. So what came in, and what is due for it, counts
until the server has nothing waiting.
"""

from collections import Counter, defaultdict, deque
from math import inf
from typing import TYPE_CHECKING

from kcast.client.session.credit import PAUSE_S_MAX
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.simulation.checker import Checker
from tests.simulation.credits import CREDIT_BYTES
from tests.simulation.ledger import Boot, ServerTurn, is_answer, topic_of
from tests.simulation.network import family_of

if TYPE_CHECKING:
    from tests.simulation.world import World

LATE_S = 1.0  # copies that wait are sent to a lease that has ended for no longer (§7.1)
ROOM_BYTES = 20 * 1024  # as much as this comes at once and finds credit, where clients ask in time
TURN_S = 0.01  # no host is slower to look at what has come

Copy = tuple[Address, bytes]


def is_all_sent(turn: ServerTurn) -> bool:
    """Whether nothing waits to be sent."""
    return turn.host.core._egress.ready_at(turn.now) == inf


class NothingToExpiredLease(Checker):
    """Copies go to live leases only, as the receipts gave them, and carry only what has come in and was not
    sent yet, to each lease once."""

    name = "nothing-to-expired-lease"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._arrived: defaultdict[Boot, Counter[bytes]] = defaultdict(Counter)
        self._sent: defaultdict[Boot, Counter[Copy]] = defaultdict(Counter)
        self._waits: set[Boot] = set()

    def server_turn(self, turn: ServerTurn) -> None:
        boot, copies = turn.boot, turn.copies
        arrived, sent = self._arrived[boot], self._sent[boot]
        for request in turn.requests:
            arrived.update(request.lines)
        if copies:
            sent.update(copies)
        late_s = LATE_S if boot in self._waits else 0.0
        for destination, line in copies:
            lease = destination, topic_of(line)
            if not boot.possible.has(lease, turn.now - late_s) and lease not in turn.evicted:
                until = boot.possible.at.get(lease)
                over = "none" if until is None else f"one that ended {turn.now - until:.3f} s ago"
                self.fail(f"{turn.host.name} sends {line!r} to {destination}, whose lease is {over}")
            if line not in arrived:
                self.fail(f"{turn.host.name} sends {line!r}, which nobody sent to it")
            if sent[destination, line] > arrived[line]:
                self.fail(f"{turn.host.name} sends {destination} {line!r} more often than it came")
        self._waits.discard(boot)
        if is_all_sent(turn):
            arrived.clear()
            sent.clear()
        else:
            self._waits.add(boot)


class OnlyVouchedForwarded(Checker):
    """A server forwards only what a cookie or a publish lease vouches for."""

    name = "only-vouched-forwarded"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._vouched: defaultdict[Boot, set[bytes]] = defaultdict(set)

    def server_turn(self, turn: ServerTurn) -> None:
        vouched = self._vouched[turn.boot]
        for request in turn.requests:
            if request.may_forward:
                vouched.update(request.publishes())
        for line in {line for _, line in turn.copies} - vouched:
            self.fail(f"{turn.host.name} forwards {line!r}, for which nobody vouched")
        if is_all_sent(turn):
            vouched.clear()


class AllForwarded(Checker):
    """What a server accepts it sends to every live lease of its topic, before it rests. Left out are

    - leases that have ended meanwhile,
    - addresses to which as much was sent as credit allows (§7.7), which is counted, and happens to an honest
      client only if more came than may come at once, while the network loses nothing,
    - copies that the rate of bytes refuses, which are counted, where such a rate is set.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._due: defaultdict[Boot, Counter[Copy]] = defaultdict(Counter)
        self._due_since: defaultdict[Boot, dict[Copy, float]] = defaultdict(dict)
        self._refused_before: dict[Boot, tuple[int, int]] = {}
        self._lately: defaultdict[tuple[Boot, Address], deque[tuple[float, int]]] = defaultdict(deque)
        self.beyond_credit: defaultdict[bytes, set[tuple[str, Address]]] = defaultdict(set)
        """Of a line: by which servers, and to whom, it was not sent because too much had come at once."""

    @property
    def _window_s(self) -> float:
        """In so long two renewals bring credit, also where a client has paused between them."""
        return 2 * (2 * self.world.network.delay_s_max + 4 * TURN_S) + PAUSE_S_MAX

    def server_turn(self, turn: ServerTurn) -> None:
        boot, due, due_since = turn.boot, self._due[turn.boot], self._due_since[turn.boot]
        for request in turn.requests:
            if request.packet.sender is not None and request.forwards:
                for line in request.publishes():
                    copies = [(address, line) for address in boot.audience(topic_of(line), turn.now)]
                    due.update(copies)
                    for copy in copies:
                        due_since.setdefault(copy, turn.now)
        for copy, count in turn.copies.items() if due else ():
            if copy in due:
                due[copy] -= count
        since = turn.now - self._window_s if turn.sent else 0.0
        for destination, data in turn.sent:
            if not is_answer(data):
                lately = self._lately[boot, destination]
                lately.append((turn.now, len(data)))
                while lately[0][0] < since:
                    lately.popleft()
        if not is_all_sent(turn):
            return
        drops = turn.host.core.drops
        refused = drops[Drop.EGRESS_RATE], drops[Drop.CREDIT]
        excused, beyond_credit = (
            count - before
            for count, before in zip(refused, self._refused_before.get(boot, (0, 0)), strict=True)
        )
        self._refused_before[boot] = refused
        if excused and not self.world.options.limits_bytes:
            self.fail(f"{turn.host.name} drops copies for their rate, and no rate is set")
        for (address, line), count in due.items():
            lease = address, topic_of(line)
            if count <= 0 or not boot.is_leased(*lease, turn.now):
                continue
            if boot.leased_since[lease] >= due_since[address, line]:
                continue  # it had ended, and was opened again
            # What is refused is a datagram, which may be as long as any.
            if beyond_credit and boot.credits.unproven_bytes(address) > CREDIT_BYTES - DATAGRAM_BYTES_MAX:
                self._check_honest(turn, address, topic_of(line))
                self.beyond_credit[line].add((boot.name, address))
                continue
            excused -= count
            if excused < 0:
                self.fail(f"{turn.host.name} holds a lease of {address} and does not forward {line!r}")
        due.clear()
        due_since.clear()

    def _check_honest(self, turn: ServerTurn, address: Address, topic: bytes) -> None:
        """A client that takes what comes shows in time that it does."""
        world = self.world
        window_s = self._window_s
        lately = self._lately[turn.boot, address]
        came_bytes = sum(size_bytes for at, size_bytes in lately if at >= turn.now - window_s)
        if came_bytes > ROOM_BYTES - DATAGRAM_BYTES_MAX or not world.was_calm_since(
            world.clock.time - window_s
        ):
            return
        for host in world.clients:
            for session in host.core.sessions.all() if address in host.addresses else ():
                if (
                    session.address in turn.host.addresses
                    and family_of(session.address) == family_of(address)
                    and session.is_leased(topic)
                    and wire.decode_topic(topic) in host.subscribed
                ):
                    self.fail(
                        f"{turn.host.name} has no credit left for {host.name}, to which {came_bytes} bytes "
                        f"went in {window_s:.3f} s, though nothing is lost"
                    )
