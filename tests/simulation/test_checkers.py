"""Each checker of the simulation can fail: a core is broken on purpose, and the checker says so by name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from kcast.client.core import ClientCore
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.gaps import GapTracker
from kcast.client.session.credit import Credit
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Transmit
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.simulation import saboteurs
from tests.simulation.checker import InvariantViolation
from tests.simulation.checkers import CHECKERS
from tests.simulation.options import Options
from tests.simulation.scenario import check_determinism, run
from tests.simulation.world import ClientMaker, ServerMaker, World
from tests.support.forms import few_of

pytestmark = pytest.mark.long

CALM = Options(seed=1, servers=3, clients=3, policy=Policy.from_scheme("CH", k=3), publish_interval_s=1.0)
ROUGH = replace(CALM, loss=0.1, faults=6, fault_s=30.0, ttl_s=6, burst=0.1, reorder=0.1, unreachable=0.5)
TOGETHER = replace(ROUGH, together=0.5)
ATTACKED = replace(CALM, attacks=200)
TIGHT = replace(
    ATTACKED,
    limits=Limits(leases=5, publishers=5),
    topics=8,
    subscriptions=4,
    window_count=48,
    publishers_max=2,
)
NARROW = replace(
    TIGHT, limits=Limits(leases_per_address=2, leases_per_prefix=7, topics=6, lines_per_datagram=8)
)
FIFO = replace(TIGHT, table="fifo", ttl_s=30, fault_s=40.0)
HURRIED = replace(CALM, limits=Limits(publishes_per_s=5), burst=0.3)
PRICED = replace(CALM, work_bits=6, tries_per_ms=1, topics=8, subscriptions=4)
PRICED_ATTACKED = replace(PRICED, attacks=200)
SLOW = replace(PRICED, try_s=0.05)
UPLINK = replace(CALM, limits=Limits(uplink_bytes_per_s=20_000), burst=0.1)
ROLLING = replace(CALM, servers=5, policy=Policy(5, 1, 5), drains=2, ttl_s=6)


def with_copies(kind: type[CopyFilter], **settings: Any) -> Callable[[World], None]:
    """Gives each client another filter, behind its back."""

    def sabotage(world: World) -> None:
        for client in world.clients:
            client.copies = client.core._deliveries._copies = kind(**settings)

    return sabotage


def _unbounded_gaps(world: World) -> None:
    for client in world.clients:
        client.gaps = client.core._deliveries.gaps = GapTracker(publishers_max=10**9)


def _stingy(world: World) -> None:
    """Clients publish to fewer servers than the policy says."""
    for client in world.clients:
        client.core.view.policy = replace(client.core.view.policy, publish=1)


def _leaky(world: World) -> None:
    """The network loses datagrams and does not count them, while others are lost too: so nothing else shows
    it."""
    carry, fault_s = world.network._carry, world.options.fault_s
    world.network._carry = (  # type: ignore[method-assign]
        lambda packets, delay_s: (
            None if world.clock.time < fault_s and world.rng.random() < 0.01 else carry(packets, delay_s)
        )
    )


def _late(world: World) -> None:
    """Clients want all topics while the first server drains."""
    for client in world.clients:
        for topic in world.topics:
            world.clock.at(world.options.fault_s + 1.0, partial(client.subscribe, topic))


@dataclass
class Sabotage:
    """What is broken, in which weather, and which checker must say so."""

    checker: str
    options: Options = CALM
    server: ServerMaker = Server
    client: ClientMaker = ClientCore
    then: Callable[[World], None] | None = None


SABOTAGES = {
    "datagrams of 1300 bytes": Sabotage("datagram-size", client=saboteurs.Verbose),
    "answers longer than requests": Sabotage("amplification", server=saboteurs.LongWinded),
    "short requests answered": Sabotage("amplification", ATTACKED, server=saboteurs.Obliging),
    "reply verbs answered": Sabotage("amplification", replace(ATTACKED, seed=3), server=saboteurs.Chatty),
    "two answers to one": Sabotage("amplification", server=saboteurs.AnswersTwice),
    "every cookie good": Sabotage("no-state-before-cookie", ATTACKED, server=saboteurs.Credulous),
    "publish leases for strangers": Sabotage("no-state-before-cookie", server=saboteurs.RemembersAskers),
    "leases without bound": Sabotage("table-bounds", TIGHT, server=saboteurs.Hoarder),
    "lines remembered without bound": Sabotage("table-bounds", TIGHT, then=with_copies(CopyFilter)),
    "publishers followed without bound": Sabotage("table-bounds", TIGHT, then=_unbounded_gaps),
    "limits of addresses, prefixes and topics forgotten": Sabotage(
        "limits-hold", NARROW, server=saboteurs.Unlimited
    ),
    "no room where there is some": Sabotage("refusals-true", TIGHT, server=saboteurs.Timid),
    "no renewal in a full table": Sabotage("refusals-true", TIGHT, server=saboteurs.Haughty),
    "more lines than the rate": Sabotage("rates-hold", HURRIED, server=saboteurs.Patient),
    "fewer lines than the rate": Sabotage("refusals-true", replace(HURRIED, seed=2), server=saboteurs.Grumpy),
    "leases for nothing": Sabotage("work-paid", PRICED_ATTACKED, server=saboteurs.Generous),
    "many leases for the price of one": Sabotage(
        "work-paid", PRICED, server=saboteurs.Cheap, client=saboteurs.Thrifty
    ),
    "a price higher than it is said": Sabotage("work-paid", PRICED, server=saboteurs.Greedy),
    "leases pushed out too early": Sabotage("pushed-out-rightly", FIFO, server=saboteurs.Faithless),
    "a full table that asks no work": Sabotage("prices-true", TIGHT, server=saboteurs.Unworried),
    "work asked though there is room": Sabotage("prices-true", server=saboteurs.Worried),
    "leases that go for no reason": Sabotage("leases-kept", server=saboteurs.Amnesiac),
    "leases that only the client knows of": Sabotage("leases-kept", client=saboteurs.Optimist),
    "leases while draining": Sabotage("draining", ROLLING, server=saboteurs.Indifferent, then=_late),
    "draining in silence": Sabotage("draining", ROLLING, server=saboteurs.Silent),
    "ending at once": Sabotage("draining", ROLLING, server=saboteurs.Sudden),
    "draining for ever": Sabotage("draining", ROLLING, server=saboteurs.Undying),
    "nothing forwarded while draining": Sabotage("complete-delivery", ROLLING, server=saboteurs.Mute),
    "publishers that do not avoid servers": Sabotage(
        "restart-loses-nothing", ROLLING, client=saboteurs.Reckless
    ),
    "a larger audience than there is": Sabotage("audience-true", server=saboteurs.Flatterer),
    "a smaller audience than there is": Sabotage("audience-true", server=saboteurs.Discourager),
    "a tap that is told nothing": Sabotage("tap-true", server=saboteurs.Secretive),
    "a tap that is told of no publishes": Sabotage("tap-true", server=saboteurs.Tactful),
    "answers to strangers not counted": Sabotage("drops-accounted", server=saboteurs.Discreet),
    "copies to whose lease is over": Sabotage(
        "nothing-to-expired-lease", replace(ROUGH, faults=12, seed=2), server=saboteurs.NeverForgets
    ),
    "copies sent twice": Sabotage("nothing-to-expired-lease", server=saboteurs.Doubling),
    "copies refused to who has credit": Sabotage("complete-delivery", server=saboteurs.Distrustful),
    "a subscriber passed over where copies wait": Sabotage(
        "complete-delivery", UPLINK, server=saboteurs.Forgetful
    ),
    "lines of the server's own": Sabotage("nothing-to-expired-lease", server=saboteurs.Gossip),
    "strangers' publishes forwarded": Sabotage("only-vouched-forwarded", ATTACKED, server=saboteurs.Lax),
    "a message invented": Sabotage("nothing-delivered-not-published", client=saboteurs.Inventive),
    "no de-duplication": Sabotage("at-most-once", then=with_copies(saboteurs.AlwaysNew)),
    "a window that is too short": Sabotage("at-most-once", then=with_copies(CopyFilter, window_s=0.001)),
    "a subscriber passed over": Sabotage("complete-delivery", server=saboteurs.Forgetful),
    "a line that is never new": Sabotage("complete-delivery", then=with_copies(saboteurs.NeverNew)),
    "too few servers drawn": Sabotage("complete-delivery", then=_stingy),
    "receipts for everything": Sabotage("receipts-true", ROUGH, client=saboteurs.Boastful),
    "receipts for each of many": Sabotage("receipts-true", TOGETHER, client=saboteurs.BoastfulOfMany),
    "no word of many": Sabotage("receipts-true", TOGETHER, client=saboteurs.SilentOfMany),
    "nothing renewed": Sabotage("leased-again", ROUGH, client=saboteurs.Stoic),
    "datagrams a server does not count": Sabotage("drops-accounted", ROUGH, server=saboteurs.Deaf),
    "datagrams a client does not count": Sabotage("drops-accounted", ATTACKED, client=saboteurs.Swallows),
    "datagrams the network does not count": Sabotage("drops-accounted", ROUGH, then=_leaky),
    "requests without end": Sabotage("requests-bounded", client=saboteurs.Insistent),
    "a line said again and again": Sabotage("requests-bounded", client=saboteurs.Echoing),
    "stamps without end": Sabotage("stamps-bounded", SLOW, client=saboteurs.Lavish),
    "an exception": Sabotage("no-exception", replace(CALM, burst=0.5), server=saboteurs.Fragile),
    "a timer that never rests": Sabotage("no-spinning", server=saboteurs.Restless),
}


def run_sabotaged(sabotage: Sabotage) -> None:
    world = World(sabotage.options, make_server=sabotage.server, make_client=sabotage.client)
    if sabotage.then is not None:
        sabotage.then(world)
    run(world)


@pytest.mark.parametrize("name", few_of(SABOTAGES, 16))
def test_what_is_broken_is_found(name: str) -> None:
    sabotage = SABOTAGES[name]
    with pytest.raises(InvariantViolation) as caught:
        run_sabotaged(sabotage)
    assert caught.value.checker == sabotage.checker, caught.value
    assert caught.value.seed == sabotage.options.seed and caught.value.time > 0 and caught.value.facts
    assert str(caught.value).startswith(f"{sabotage.checker}: seed {sabotage.options.seed}, at ")


@pytest.mark.parametrize("options", few_of(dict.fromkeys(each.options for each in SABOTAGES.values())))
def test_what_is_not_broken_passes(options: Options) -> None:
    run_sabotaged(Sabotage("", options))


def test_a_lease_for_an_old_cookie_is_found() -> None:
    """Clients that renew never show one, so a datagram of long ago comes again."""
    world = World(replace(CALM, clients=1), make_server=saboteurs.TakesOldCookies)
    world.clients[0].subscribe(world.topics[0])
    world.run_for(1.0)
    old = next(p for p in world.network.recent if p.data.startswith(b"%!"))
    world.run_for(200.0)
    world.network.send(Transmit(old.data, len(old.data), (old.destination,)), old.source, "attacker", None)
    with pytest.raises(InvariantViolation, match=r"no-state-before-cookie: .* leases for a cookie of 20"):
        world.run_for(1.0)


def test_a_core_with_chance_of_its_own_is_found() -> None:
    def make(cluster: Any, rng: Random, **settings: Any) -> ClientCore:
        return ClientCore(cluster, Random(), **settings)

    with pytest.raises(InvariantViolation, match="determinism: seed 1"):
        check_determinism(lambda: World(CALM, make_client=make))


def test_a_request_answered_without_its_length_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of 192 bytes, taken out of the product itself: the length check behind it still holds."""
    monkeypatch.setattr("kcast.pubsub.server.REQUEST_BYTES_MIN", 0)
    run_sabotaged(Sabotage("", ATTACKED))


def test_clients_that_do_not_show_that_they_live_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """§7.7: where much comes, usual renewals are too few."""
    options = replace(CALM, seed=4, ttl_s=60, burst=0.3, publish_interval_s=4.0, topics=2, fault_s=60.0)
    monkeypatch.setattr("kcast.client.session.checks.CHECK_INTERVAL_S", 1e9)
    run_sabotaged(Sabotage("", options))
    monkeypatch.setattr(Credit, "took", lambda credit, size_bytes, now: False)
    with pytest.raises(InvariantViolation, match=r"complete-delivery: .* has no credit left for c"):
        run_sabotaged(Sabotage("", options))


def test_every_checker_is_sabotaged() -> None:
    names = {checker.name for checker in CHECKERS}
    assert len(names) == len(CHECKERS)
    assert names <= {sabotage.checker for sabotage in SABOTAGES.values()}
