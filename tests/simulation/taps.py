"""What a server reports to its tap, held against what it did: losses are to be attributed by that later."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, LeaseChange
from tests.simulation.checker import Checker
from tests.simulation.ledger import Lease, ServerTurn, topic_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class TapRecord:
    """What one life of a server has reported: the leases that stand, and the lines of the turn."""

    def __init__(self) -> None:
        self.leases: dict[Lease, None] = {}
        self.lines: Counter[tuple[Address, bytes]] = Counter()
        self.evicted: list[Lease] = []
        self.faults: list[str] = []

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        self.lines.update((source, line) for line in lines)
        self.faults += [f"{line!r} as one of {topic!r}" for line in lines if topic_of(line) != topic]

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        lease = address, topic
        if (lease in self.leases) == (change is LeaseChange.OPENED):
            self.faults.append(f"a lease of {address} on {topic!r} as {change.value}")
        if change is LeaseChange.OPENED:
            self.leases[lease] = None
        else:
            self.leases.pop(lease, None)
        if change is LeaseChange.EVICTED:
            self.evicted.append(lease)

    def take_evicted(self) -> list[Lease]:
        """The leases that were pushed out since this was last asked."""
        evicted, self.evicted = self.evicted, []
        return evicted


class TapTrue(Checker):
    """A tap is told of each lease that is opened or ends, and of each line that is admitted, and no other."""

    name = "tap-true"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._sizes: dict[TapRecord, int] = {}

    def server_turn(self, turn: ServerTurn) -> None:
        tap, name = turn.boot.tap, turn.host.name
        if tap.faults:
            self.fail(f"{name} tells its tap of {tap.faults}")
        size = len(turn.host.core.leases)
        if len(tap.leases) != size:
            self.fail(f"{name} holds {size} leases; by what it told its tap they are {len(tap.leases)}")
        if size != self._sizes.get(tap):
            self._sizes[tap] = size
            for lease in turn.boot.promised.live(turn.now):
                if lease not in tap.leases:
                    self.fail(f"{name} has not told its tap of {lease}")
        if not turn.requests and not tap.lines:
            return
        sure, possible = Counter[tuple[Address, bytes]](), Counter[tuple[Address, bytes]]()
        for request in turn.requests:
            lines = [(request.packet.source, line) for line in request.publishes() if request.may_forward]
            lines = [(source, line) for source, line in lines if wire.is_topic(topic_of(line))]
            possible.update(lines)
            if request.forwards:
                sure.update(lines)
        if sure - tap.lines or tap.lines - possible:
            self.fail(
                f"{name} admitted {list(sure - tap.lines)} and did not tell its tap, or told it of "
                f"{list(tap.lines - possible)}, which nobody sent"
            )
        tap.lines.clear()
