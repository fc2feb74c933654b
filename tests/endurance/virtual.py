"""Hours of virtual time: clients come and go, servers restart, attackers attack, and memory is measured.

The checkers of the simulation keep an account of all that was ever sent, so they are left out. What is
measured is what the cores hold, and whatever Python allocates beside the bookkeeping of the test.
"""

import gc
import tracemalloc
from collections.abc import Callable
from functools import lru_cache, partial
from unittest.mock import patch

from kcast.client.session import requests
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import Limits
from tests.simulation.crowd import Churn
from tests.simulation.hosts import ClientHost
from tests.simulation.ledger import ClientTurn, Ledger, ServerTurn
from tests.simulation.options import Options
from tests.simulation.world import World

SAMPLE_S = 1800.0
LATE_MAX = 8  # requests whose late answers are still of use: 256 of each server take days to be there
_Cache = type(lru_cache(int))
OPTIONS = Options(
    seed=8,
    servers=5,
    clients=6,
    topics=8,
    policy=Policy(3, 2, 3),
    ttl_s=60,
    loss=0.02,
    duplicate=0.02,
    reorder=0.02,
    faults=1,
    limits=Limits(publishers=16),  # so that what is bounded is soon full
    window_count=2_000,
    publishers_max=64,
    hostile_servers=1,
    tries_per_ms=25,
    try_s=4e-4,
)


class _NoLedger(Ledger):
    """Keeps no account: one of hours would outgrow what it observes."""

    def server_turn(self, turn: ServerTurn) -> None:
        turn.boot.tap.take_evicted()
        turn.boot.tap.lines.clear()

    def client_turn(self, turn: ClientTurn) -> None:
        pass

    def publish(self, host: ClientHost, topic: bytes, payload: bytes, *, confirm: bool, raw: bool) -> None:
        pass

    def forge(self, datagram: bytes) -> None:
        pass


class EndlessWorld(World):
    """A world without checkers, in which something always happens. An exception in a core ends it."""

    def __init__(self, options: Options = OPTIONS) -> None:
        super().__init__(options)
        self.checkers.clear()
        self.ledger = _NoLedger(self.clock)
        self.churn = Churn(self, life_s=300.0)
        for client in self.clients:
            for topic in self.topics[:3]:
                client.subscribe(topic)
        self._every(5.0, self._publish)
        self._every(20.0, partial(self.churn.fill_up, options.clients + 6))
        self._every(10.0, self.attacker.act)
        self._every(1200.0, self._restart)
        self._every(900.0, self._rebind)

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        act()
        self.clock.after(self.rng.expovariate(1 / interval_s), partial(self._every, interval_s, act))

    def _publish(self) -> None:
        client = self.rng.choice(self.clients)
        client.publish(
            self.rng.choice(self.topics), [b"%d" % self.rng.getrandbits(60)], confirm=self.rng.random() < 0.7
        )

    def _restart(self) -> None:
        server = self.rng.choice(self.servers)
        server.crash()
        self.clock.after(self.rng.choice((0.1, 30.0)), server.restart)

    def _rebind(self) -> None:
        self.clients[0].rebind(self.new_client_address())

    def note_cookies(self, packet: object) -> None:
        """Keeps no account of cookies either."""


def _empty_caches() -> None:
    """Empties caches of functions, the cores' own among them: they are bounded, and would fill for days."""
    gc.collect()
    for cache in [each for each in gc.get_objects() if type(each) is _Cache]:
        cache.cache_clear()


def run(hours: float, tell: Callable[[str], None], sample_s: float = SAMPLE_S) -> list[float]:
    """Runs a world for so long; returns the bytes that are allocated, sample by sample."""
    samples: list[float] = []
    tracemalloc.start()
    try:
        with patch.object(requests, "LATE_MAX", LATE_MAX):
            world = EndlessWorld()
            while world.clock.time < hours * 3600:
                world.run_for(sample_s)
                samples.append(_allocated_bytes(world))
                tell(
                    f"{world.clock.time / 3600:.1f} h: {samples[-1] / 1e6:.2f} MB, "
                    f"{world.churn.came} clients have come"
                )
    finally:
        tracemalloc.stop()
    return samples


def _allocated_bytes(world: EndlessWorld) -> float:
    """Returns what is allocated beside the bookkeeping of the test, and what waits in the cores' caches."""
    world.network._receivers = {
        address: receiver for address, receiver in world.network._receivers.items() if receiver.is_up
    } | {address: server for server in world.servers for address in server.addresses}
    world.network._legs.clear()
    for server in world.servers:
        server.boot.tap.lines.clear()  # of one that lies, whose turns no ledger hears of
    _empty_caches()
    return float(tracemalloc.get_traced_memory()[0])
