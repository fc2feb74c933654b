"""What every driver must do with logs: scenarios beside those of `driver_suite`."""

from pathlib import Path
from tempfile import TemporaryDirectory

from kcast.client.errors import ClientClosed, MessageTooLarge
from kcast.client.events import FloorRose
from kcast.client.history.entries import NotKept, StoreError
from kcast.pubsub.wire import TopicError
from tests.support.driver_suite import Servers, events_until, raising, scenario
from tests.support.drivers import Driver

SOON_S = 10.0


@scenario
async def logs_give_what_one_missed_and_keep_it(driver: Driver, servers: Servers) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "ann.db"
        async with driver.client(servers.cluster) as ann, driver.client(servers.cluster) as eve:
            async with ann.history("log/a", file) as log:
                first = await log.append("hi")
                second = await log.append("there")
                assert second.parents == (first.id,) and second.payload == b"there"
                async with eve.history("log/a") as late:
                    synced = await late.synced(SOON_S)
                    assert (synced.holders, synced.got, synced.complete) == (1, 2, True)
                    assert [entry async for entry in late.entries(live=False)] == [first, second]
                    third = await late.append("ho", confirm=1, timeout_s=SOON_S)
                    assert third.parents == (second.id,)
                    got = []
                    async for entry in log.entries(since=second.id):
                        got.append(entry)
                        if len(got) == 2:
                            break
                    assert got == [second, third]
                    with raising(NotKept, "of 2 others"):
                        await late.append("alone", confirm=2, timeout_s=0.7)
            async with eve.history("log/a", file) as again:
                payloads = [entry.payload async for entry in again.entries(last=3, live=False)]
                assert payloads[:2] == [b"there", b"ho"] and again.status().entries == 4


@scenario
async def logs_say_what_is_wrong(driver: Driver, servers: Servers) -> None:
    with TemporaryDirectory() as folder:
        foreign = Path(folder) / "foreign"
        foreign.write_bytes(b"no store" * 1000)
        client = driver.client(servers.cluster)
        async with client:
            for topic, store, error, text in (
                ("t" * 121, None, TopicError, "120"),
                ("t", foreign, StoreError, "foreign: it is no store"),
                ("t", Path(folder) / "no" / "folder", StoreError, "folder"),
            ):
                with raising(error, text):
                    client.history(topic, store)
            async with client.history("log/b", count=2) as log:
                with raising(MessageTooLarge, "room"):
                    await log.append(bytes(1200))
                with raising(ValueError, "'x' is no id"):
                    log.confirmations("x")
                pinned = await log.append("pinned")
                log.pin([pinned.id])
                events = client.events()
                rest = [await log.append(str(number)) for number in range(4)]
                await events_until(events, FloorRose)
                left = [entry async for entry in log.entries(live=False)]
                assert left == [pinned, *rest[2:]]
                for text, wrong in (
                    ("confirm is -1", lambda: log.append("x", confirm=-1)),
                    ("timeout_s is nan", lambda: log.append("x", timeout_s=float("nan"))),
                    ("timeout_s is -1", lambda: log.synced(-1.0)),
                    ("last is -1", lambda: anext(log.entries(last=-1))),
                    ("since is 'yesterday'", lambda: anext(log.entries(since="yesterday"))),
                ):
                    with raising(ValueError, text):
                        await wrong()
            for method in (lambda: log.append("late"), log.synced, lambda: anext(log.entries())):
                with raising(ClientClosed, "this log is closed"):
                    await method()
        with raising(ClientClosed, "closed"):
            await log.append("late")
