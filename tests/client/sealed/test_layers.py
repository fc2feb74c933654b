"""Requests, services and members whose words are proven, by a key or in a group: forgers are nobody."""

import asyncio
from random import Random
from time import time
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.core import ClientCore
from kcast.client.driving import engine
from kcast.client.errors import NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Drop
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.parts import ANSWER_BYTES_MAX
from kcast.client.layers.words import Answer, Asked, Leaving, Present, layer_topic
from kcast.client.messages.envelope import new_publisher
from kcast.client.sealed.keys import Identity
from kcast.pubsub import clock
from tests.support import sealed_by_hand
from tests.support.attack_stage import epoch, group_of
from tests.support.drivers import Driver, Loop, Threads

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {"asyncio": Loop(asyncio.SelectorEventLoop), "threads": Threads()}
ALICE, BOB, MALLORY = (
    Identity.from_seed("key", seed)
    for seed in (sealed_by_hand.ALICE.seed, sealed_by_hand.BOB.seed, bytes([13]) * 32)
)
OPS = group_of(epoch(1, 1), until_unix_s=10**11)
LONGEST = "t" * 120
SOON_S = 10.0


async def echo(request: Any) -> Any:
    return request.payload + b" of " + (request.sender or "nobody").encode()


async def large(request: Any) -> Any:
    return bytes(ANSWER_BYTES_MAX)


async def forged(request: Any) -> Any:
    return b"forged"


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_only_proven_words_count(driver: Driver, cluster: Cluster) -> None:
    of_alice, of_bob = [ALICE.signer.key_text], [BOB.signer.key_text]

    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=ALICE) as alice,
            driver.client(cluster, identity=BOB) as bob,
            driver.client(cluster, identity=MALLORY) as mallory,
            driver.client(cluster) as anybody,
            alice.service("t", echo, senders=of_bob, limit=FixedWindow(2, 60.0, ban_s=60.0)) as service,
            mallory.service("t", forged),
            anybody.service("t", forged),
        ):
            for _ in range(2):
                reply = await bob.request("t", "x", timeout_s=SOON_S, senders=of_alice)
                assert reply.payload == b"x of " + BOB.signer.key_text.encode()
                assert (reply.worker, reply.sender) == (service.name, ALICE.signer.key_text)
            assert (await anybody.request("t", "x", timeout_s=SOON_S)).payload == b"forged"
            with pytest.raises(RemoteError, match="limited: 60"):
                await bob.request("t", "x", timeout_s=SOON_S, senders=of_alice)
            with pytest.raises((NoWorker, RequestTimeout)):
                await bob.request("t", "x", timeout_s=1.5, senders=[BOB.signer.key_text])
            watching = bob.members("t", senders=of_alice)
            await watching.ready(SOON_S)
            assert [member.name for member in watching.alive] == [service.name]

    driver.run(scenario())


@pytest.mark.parametrize("identity", [BOB, None], ids=["signed", "unsigned"])
def test_what_a_client_says_itself_is_not_left_out(identity: Identity | None, cluster: Cluster) -> None:
    async def scenario() -> None:
        of_alice = [ALICE.signer.key_text]
        async with DRIVERS["asyncio"].client(cluster, identity=identity) as bob:
            bob.members("t", info="bob", senders=of_alice)
            with pytest.raises(NoWorker):
                await bob.request("t", "x", timeout_s=SOON_S, senders=of_alice)
            assert not bob.drops
            async with DRIVERS["asyncio"].client(cluster, identity=MALLORY) as mallory:
                mallory.members("t", info="mallory")
                while not bob.drops[Drop.UNAUTHORISED]:
                    await asyncio.sleep(0.01)

    DRIVERS["asyncio"].run(scenario())


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_group_asks_and_answers_on_the_longest_topic(driver: Driver, cluster: Cluster) -> None:
    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=ALICE, group=OPS) as alice,
            driver.client(cluster, identity=BOB, group=OPS) as bob,
            driver.client(cluster) as anybody,
            alice.service(LONGEST, {"": echo, "large": large}) as service,
        ):
            reply = await bob.request(LONGEST, "x", timeout_s=SOON_S)
            assert (reply.payload, reply.worker) == (b"x of " + BOB.signer.key_text.encode(), service.name)
            assert len((await bob.request(LONGEST, "", "large", SOON_S)).payload) == ANSWER_BYTES_MAX
            with pytest.raises(NoWorker):
                await anybody.request(LONGEST, "x", timeout_s=SOON_S)

    driver.run(scenario())


PROOFS: dict[str, dict[str, Any]] = {"plain": {}, "signed": {"identity": ALICE}, "sealed": {"group": OPS}}


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_clock_that_is_set_by_an_hour_changes_nothing(driver: Driver, proof: str, cluster: Cluster) -> None:
    off_s = 0.0
    given = PROOFS[proof] and {"identity": ALICE} | PROOFS[proof]
    senders = [ALICE.signer.key_text] if proof == "signed" else None

    async def scenario() -> None:
        nonlocal off_s
        async with (
            driver.client(cluster, **given) as client,
            driver.client(cluster, **given) as other,
            client.service("t", echo, senders=senders, limit=FixedWindow(6, 60.0)) as service,
        ):
            members = other.members("t", senders=senders)
            await members.ready(SOON_S)
            for hours in (0, 1, 0, -1, 0):
                off_s = 3600.0 * hours
                reply = await other.request("t", "x", timeout_s=SOON_S, senders=senders)
                assert (reply.worker, reply.attempts) == (service.name, 1)
            assert [member.name for member in members.alive] == [service.name]
            assert (await other.request("t", "x", timeout_s=SOON_S, senders=senders)).payload
            with pytest.raises(RemoteError, match="limited: 60"):
                await other.request("t", "x", timeout_s=SOON_S, senders=senders)

    with mock.patch.object(engine, "time", lambda: time() + off_s):
        driver.run(scenario())


ROOM = {"plain": 770, "signed": 660, "sealed": 590}  # docs/requests.md


@pytest.mark.parametrize("proof", PROOFS)
def test_what_fits_into_a_request(proof: str, cluster: Cluster) -> None:
    given = PROOFS[proof] and {"identity": ALICE} | PROOFS[proof]

    async def scenario() -> None:
        async with DRIVERS["asyncio"].client(cluster, **given) as client:
            for topic, method, size in (("calc", "add", ROOM[proof]), (LONGEST, "m" * 64, 510)):
                async with client.service(topic, {method: echo}):
                    assert (await client.request(topic, bytes(size), method, SOON_S)).payload

    DRIVERS["asyncio"].run(scenario())


class AnHourAhead(ClientCore):
    """A client on a machine whose clock is wrong."""

    @property
    def clock_offset_s(self) -> float:
        return time() - clock.now() + 3600.0

    @clock_offset_s.setter
    def clock_offset_s(self, _: float) -> None:
        pass


@pytest.mark.parametrize("group", [None, OPS], ids=["signed", "sealed"])
def test_a_caller_whose_clock_is_wrong_is_told_what_was_left_out(group: Any, cluster: Cluster) -> None:
    async def scenario() -> None:
        of_alice = None if group else [ALICE.signer.key_text]
        with mock.patch.object(engine, "ClientCore", AnHourAhead):
            wrong = DRIVERS["asyncio"].client(cluster, identity=BOB, group=group)
        async with (
            DRIVERS["asyncio"].client(cluster, identity=ALICE, group=group) as alice,
            wrong as bob,
            alice.service("t", echo, senders=None if group else [BOB.signer.key_text]),
        ):
            with pytest.raises(NoWorker):
                await bob.request("t", "x", timeout_s=SOON_S, senders=of_alice)
            assert bob.drops[Drop.TOO_OLD] and alice.drops[Drop.FROM_FUTURE]

    DRIVERS["asyncio"].run(scenario())


def test_a_flood_of_forgers_keeps_nobody_from_his_answer(cluster: Cluster) -> None:
    """Members, leavers, requests and answers, by the thousand: with `senders=` all others are answered."""
    rng = Random(1)

    async def scenario() -> None:
        driver = DRIVERS["asyncio"]
        async with (
            driver.client(cluster, identity=ALICE) as alice,
            driver.client(cluster, identity=BOB) as bob,
            driver.client(cluster) as forger,
            alice.service("t", echo, senders=[BOB.signer.key_text], concurrency=4) as service,
        ):
            here, mailbox = layer_topic(b"t", b"here"), layer_topic(b"t", service.name.encode())
            asking: dict[str, Any] = {"timeout_s": SOON_S, "senders": [ALICE.signer.key_text]}
            assert (await bob.request("t", "x", **asking)).attempts >= 1
            for _ in range(10):
                names = [new_publisher(rng) for _ in range(100)]
                presence = [bytes(Present(name, 300, ("",))) for name in names]
                words = [bytes(Asked("qqqqqqqq", name, 60_000, "", b"")) for name in names]
                answers = [bytes(Answer("qqqqqqqq", service.name, 0, 1, b"forged")) for _ in names]
                gone = [bytes(Leaving(service.name)) for _ in names]
                await forger.publish_many(here, presence + gone)
                await forger.publish_many(mailbox, words + answers)
                reply = await bob.request("t", "x", **asking)
                assert reply.payload == b"x of " + BOB.signer.key_text.encode()
            assert bob.drops[Drop.UNSIGNED] > 100 and alice.drops[Drop.UNSIGNED] > 100

    DRIVERS["asyncio"].run(scenario())
