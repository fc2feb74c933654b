"""The fifo table in simulation: clients who believe its estimates keep their leases while their number grows.

Clients come, and go without a word, so that the table fills with leases of those who are gone. Each client
renews as the last receipt made it believe that it must, and no sooner.
"""

from dataclasses import dataclass, field

import pytest

from kcast.hashring.policy import Policy
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, Limits
from tests.simulation.crowd import Churn, Witness
from tests.simulation.options import Options
from tests.simulation.world import World
from tests.support.forms import few_of

pytestmark = pytest.mark.long

CAPACITY = 120
FEW, MANY = 10, 100
TTL_S = 60
QUIET_S = 60.0


@dataclass(repr=False)
class Growth:
    """A run: ten clients for a minute, then steadily more, then as many as there are, for a minute."""

    world: World
    witness: Witness
    churn: Churn
    promises: list[tuple[int, int, int, float]] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = [
            f"{time:5} s: {clients:4} clients, {leases:4} leases, {promise_s:5.1f} s promised"
            for time, clients, leases, promise_s in self.promises
        ]
        told = f"{self.churn.came} clients came; refused: {dict(self.witness.refusals)}"
        return "\n".join([told, f"fewer: {self.witness.fewer}", *lines])


def grow(grow_s: float, life_s: float = 120.0, seed: int = 1) -> Growth:
    options = Options(
        seed=seed,
        servers=1,
        clients=0,
        topics=10,
        policy=Policy.from_scheme("S"),
        ttl_s=TTL_S,
        table="fifo",
        limits=Limits(leases=CAPACITY),
        uneven=False,
        delay_s=0.01,
    )
    world = World(options)
    growth = Growth(world, Witness(world), Churn(world, life_s))
    server = world.servers[0]
    for step in range(int(2 * QUIET_S + grow_s) * 4):
        share = min(1.0, max(0.0, (step / 4 - QUIET_S) / grow_s))
        growth.churn.fill_up(round(FEW + share * (MANY - FEW)))
        world.run_for(0.25)
        for client in world.clients if step % 4 == 0 else ():
            for topic in client.subscribed:
                believes = client.core.lease_counts(topic)[0] == 1
                assert not believes or world.leased_at(client, topic), growth
        if step % 40 == 39:
            promise_s = server.core.leases.promise_s(server.now)
            growth.promises.append(((step + 1) // 4, len(world.clients), len(server.core.leases), promise_s))
    world.finish()
    return growth


@pytest.mark.parametrize(("grow_s", "refused_share"), few_of([(60.0, 0.3), (600.0, 0.15)]))
def test_who_believes_the_estimates_keeps_its_lease_while_clients_grow_tenfold(
    grow_s: float, refused_share: float
) -> None:
    growth = grow(grow_s)
    print(growth)
    assert growth.witness.fewer == [], growth
    assert len(growth.witness.refused) <= refused_share * growth.churn.came, growth
    evicted = growth.world.servers[0].core.counts["leases_evicted"]
    assert evicted, f"the table was never full\n{growth}"
    promises = [promise_s for _, _, _, promise_s in growth.promises]
    assert promises[0] == TTL_S and FIFO_PROMISE_S_MIN <= min(promises) < TTL_S / 2, growth
