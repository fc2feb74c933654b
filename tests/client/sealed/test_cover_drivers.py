"""Cover traffic of both drivers, over a real server."""

import asyncio
import os
from concurrent.futures import Future, wait
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster
from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge
from kcast.client.events import Drop, Outcome
from kcast.client.sealed.membership import Group
from tests.support.groups import ALICE, OWNER
from tests.support.sealed_lines import epoch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

GROUP = Group("ops", OWNER.note_key.verifier, (epoch(),), 4_000_000_000)
RATE = 50.0
WAIT_S = 20.0


def test_asyncio(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(WAIT_S), aio.Client(cluster, identity=ALICE, group=GROUP) as client:
            subscription = client.subscribe("a")
            await subscription.ready()
            async with client.cover("a", rate=RATE, size=100) as cover:
                outcomes = [cover.put(f"{number}") for number in range(3)]
                assert [outcome.done() for outcome in outcomes] == [False] * 3
                for number in range(3):
                    delivery = await subscription.get()
                    assert delivery is not None
                    assert (delivery.seq, delivery.payload) == (number + 1, b"%d" % number)
                    assert (delivery.group, delivery.sender) == ("ops", ALICE.signer.key_text)
                for outcome in outcomes:
                    assert set((await outcome).servers.values()) == {Outcome.RECEIPT}
                while client.drops[Drop.COVER] < 5:
                    await asyncio.sleep(0.02)
                with pytest.raises(ValueError, match="cover traffic runs on this topic"):
                    await client.publish("a", "x")
                with pytest.raises(ValueError, match="cover traffic runs on this topic"):
                    await client.publish_many("a", ["x"])
                await client.publish("b", "another topic")
                await client.publish("a", "for all to read", seal=False)
                with pytest.raises(MessageTooLarge):
                    cover.put("x" * 101)
                unwanted = cover.put("cancelled")
                unwanted.cancel()
                await cover.put("wanted")
                last = await subscription.get()
                assert last is not None
                assert last.payload == b"wanted"
                late = cover.put("late")
                assert cover.waiting == 1
            with pytest.raises(ClientClosed, match="before the message's tick"):
                await late
            with pytest.raises(ClientClosed, match="has ended"):
                cover.put("later")
            await client.publish("a", "as before")

    asyncio.run(scenario())


def test_threads(cluster: Cluster) -> None:
    with blocking.Client(cluster, identity=ALICE, group=GROUP) as client:
        subscription = client.subscribe("a", hold_s=2 * WAIT_S)  # and holds back nothing for a dummy
        subscription.ready(WAIT_S)
        with client.cover("a", rate=RATE, size=100) as cover:
            outcomes = [cover.put(f"{number}") for number in range(3)]
            for number in range(3):
                delivery = subscription.get(WAIT_S)
                assert delivery is not None
                assert (delivery.seq, delivery.payload) == (number + 1, b"%d" % number)
            assert all(outcome.result(WAIT_S).receipts for outcome in outcomes)
            wait_until(lambda: client.drops[Drop.COVER] >= 5)
            with pytest.raises(ValueError, match="cover traffic runs on this topic"):
                client.publish("a", "x")
            with pytest.raises(MessageTooLarge):
                cover.put("x" * 101)
            late = cover.put("late")
            assert cover.waiting <= 1
        assert wait([late], WAIT_S).done
        with pytest.raises(ClientClosed):
            cover.put("later")
        client.publish("a", "as before")


def test_what_waits_ends_with_the_client(cluster: Cluster) -> None:
    with blocking.Client(cluster, identity=ALICE, group=GROUP) as client:
        cover = client.cover("a", rate=0.01, size=100, queue_max=2)
        wait_until(lambda: client.counts["published"] == 1)  # the dummy of the first tick
        outcomes: list[Future[Any]] = [cover.put("second"), cover.put("third")]
        with pytest.raises(Backlog):
            cover.put("fourth")
    for outcome in outcomes:
        with pytest.raises(ClientClosed, match="closed before the outcome was known"):
            outcome.result(WAIT_S)
    with pytest.raises(ClientClosed):
        cover.put("later")


def test_a_forked_process_has_none(cluster: Cluster) -> None:
    with blocking.Client(cluster, identity=ALICE, group=GROUP) as client:
        cover = client.cover("a", rate=RATE, size=100)
        cover.put("first").result(WAIT_S)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cover.put("in the child")
            except ClientClosed:
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        cover.put("in the parent").result(WAIT_S)


@pytest.mark.parametrize("module", [aio, blocking])
def test_without_a_group_there_is_none(cluster: Cluster, module: Any) -> None:
    async def scenario() -> None:
        async with aio.Client(cluster) as client:
            client.cover("a", rate=1.0, size=10)

    with pytest.raises(ValueError, match="cover traffic is sealed: give a group"):
        if module is aio:
            asyncio.run(scenario())
        else:
            with blocking.Client(cluster) as client:
                client.cover("a", rate=1.0, size=10)
    with pytest.raises(ClientClosed):
        module.Client(cluster).cover("a", rate=1.0, size=10)
