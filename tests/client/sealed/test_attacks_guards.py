"""Each subscription has its own guard: none gets what only another's lets pass. PROTOCOL §9.6, §9.7."""

import asyncio
from typing import Any

import pytest
import uvloop

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.events import Delivery, Drop
from kcast.client.messages.guard_and_writer import Guard, Guarded
from kcast.client.sealed.guards import SealedGuard, SignedGuard, senders_of
from kcast.client.sealed.keys import Identity
from kcast.pubsub.endpoint import Burst
from tests.support import sealed_by_hand
from tests.support.attack_stage import (
    ALICE,
    BOB,
    NAME,
    Process,
    Stage,
    epoch,
    group_of,
    signed,
    signed_stage,
)
from tests.support.drivers import Driver, Loop, Threads

IN_CLEAR = b"%b %%@AbCdEfGhIjK.1 in clear\n" % NAME
RAW = b"%b raw\n" % NAME
OF_ALICE = signed(payload=b"of Alice")
OF_BOB = signed(by=BOB, payload=b"of Bob")
HIDDEN = Process().line(payload=b"hidden")
PLAIN_TOPIC = Process(wire_topic=NAME).line(payload=b"plain topic")
OTHER_GROUP = Process(epoch(9, group="dev"), wire_topic=NAME).line(payload=b"other group")
ALL = (IN_CLEAR, RAW, OF_ALICE, OF_BOB, HIDDEN, PLAIN_TOPIC, OTHER_GROUP)

PASSES: dict[str, set[bytes]] = {
    "plain": {b"in clear", b"raw", b"of Alice", b"of Bob"},
    "of Alice": {b"of Alice"},
    "of both": {b"of Alice", b"of Bob"},
    "hidden": {b"hidden"},
    "plain topic": {b"plain topic"},
    "dev": {b"other group"},
    "of Alice in group": {b"plain topic"},
}


def guards(unix_s: float) -> dict[str, Guard | None]:
    """The guards of several subscriptions to one topic."""
    of_alice = senders_of(frozenset([ALICE.key]))
    return {
        "plain": None,
        "of Alice": SignedGuard(of_alice, unix_s),
        "of both": SignedGuard(senders_of(frozenset([ALICE.key, BOB.key])), unix_s),
        "hidden": SealedGuard(group_of(), unix_s),
        "plain topic": SealedGuard(group_of(), unix_s, has_plain_topics=True),
        "dev": SealedGuard(group_of(epoch(9, group="dev")), unix_s, has_plain_topics=True),
        "of Alice in group": SealedGuard(group_of(), unix_s, allows=of_alice, has_plain_topics=True),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_each_of_several_subscriptions_to_one_topic_gets_what_its_own_guard_lets_pass(order: int) -> None:
    stage = Stage()
    mine = guards(stage.unix_s)
    for guard in list(mine.values())[::order]:
        stage.subscriber.subscribe(NAME, stage.lab.now, guard=guard)
    stage.wait(1)
    stage.subscriber.events()
    found: dict[str, set[bytes]] = {name: set() for name in mine}
    names = {guard: name for name, guard in mine.items()}
    for line in ALL[::order]:
        for server in list(stage.lab.servers)[:2]:  # the second copy is a duplicate for each
            stage.subscriber.receive(Burst(line, len(line), server), stage.lab.now)
    for told in stage.subscriber.events():
        event = told.event if isinstance(told, Guarded) else told
        if isinstance(event, Delivery):
            assert event.topic == NAME
            to = names[told.guard if isinstance(told, Guarded) else None]
            assert event.payload not in found[to]
            found[to].add(event.payload)
    assert found == PASSES


# --- Clients with their drivers -----------------------------------------------------------------------

DRIVERS: dict[str, Driver] = {
    "asyncio": Loop(asyncio.SelectorEventLoop),
    "uvloop": Loop(uvloop.new_event_loop),
    "threads": Threads(),
}


@pytest.mark.world
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_so_it_is_with_clients(driver: Driver, cluster: Cluster) -> None:
    alice = Identity.from_seed("alice", sealed_by_hand.ALICE.seed)
    bob = Identity.from_seed("bob", sealed_by_hand.BOB.seed)
    ops = group_of(epoch(1, 1))
    dev = group_of(epoch(9, 1, group="dev"))
    for_ever = {"until_unix_s": 10**11}
    ops, dev = group_of(*ops.epochs, **for_ever), group_of(*dev.epochs, **for_ever)
    topic = NAME.decode()

    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=bob) as subscriber,
            driver.client(cluster) as anybody,
            driver.client(cluster, identity=alice, group=ops) as member,
            driver.client(cluster, identity=bob) as stranger,
        ):
            options: dict[str, dict[str, Any]] = {
                "plain": {},
                "of Alice": {"senders": [alice.signer.key_text]},
                "of both": {"senders": [alice.signer.key_text, bob.signer.key_text]},
                "hidden": {"group": ops},
                "plain topic": {"group": ops, "plain_topic": True},
                "dev": {"group": dev, "plain_topic": True},
                "of Alice in group": {"group": ops, "plain_topic": True, "senders": [alice.signer.key_text]},
            }
            subscriptions = {name: subscriber.subscribe(topic, **each) for name, each in options.items()}
            for subscription in subscriptions.values():
                await subscription.ready()
            await anybody.publish(topic, "in clear")
            await anybody.publish(topic, "raw", raw=True)
            await member.publish(topic, "of Alice", seal=False)
            await stranger.publish_many(topic, ["of Bob"])
            await member.publish(topic, "hidden")
            await member.publish(topic, "plain topic", plain_topic=True)
            await stranger.publish(topic, "other group", seal=dev, plain_topic=True)
            for name, subscription in subscriptions.items():
                got = set()
                for _ in PASSES[name]:
                    delivery = await subscription.get(timeout_s=10)
                    assert delivery is not None
                    got.add(delivery.payload)
                    assert (delivery.sender is not None) == (name != "plain")
                    group = options[name].get("group")
                    assert delivery.group == (group and group.name)
                assert got == PASSES[name], name
                with pytest.raises(TimeoutError):
                    await subscription.get(timeout_s=0.05)

    driver.run(scenario())


# --- Drops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "drop"),
    [
        (signed().replace(b";t=", b";X=1;t="), Drop.NOT_UNDERSTOOD),
        (signed().replace(b";g=", b";g=A"), Drop.MALFORMED_MESSAGE),
        (b"%b %%@AbC.0 x\n" % NAME, Drop.MALFORMED_MESSAGE),
        (b"%b %%zz\n" % NAME, Drop.MALFORMED_MESSAGE),
    ],
)
def test_what_cannot_be_read_is_dropped_as_without_a_guard(line: bytes, drop: Drop) -> None:
    assert signed_stage().verdict(line) is drop


def test_a_plain_subscription_neither_opens_nor_shows_what_is_sealed() -> None:
    stage = Stage()
    stage.subscriber.subscribe(NAME, stage.lab.now)
    stage.wait(1)
    assert stage.verdict(PLAIN_TOPIC) is Drop.NOT_UNDERSTOOD
    found = stage.verdict(OF_ALICE)
    assert isinstance(found, Delivery)
    assert found.sender is None, "nobody has verified it"
