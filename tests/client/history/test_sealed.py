"""Logs of sealed topics: one for each epoch of the group, shown as one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from time import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.errors import ClientClosed, MessageTooLarge
from kcast.client.events import Drop, LogTrouble
from kcast.client.history.entries import Entry, Row, StoreError, Synced
from kcast.client.history.epochs import Cursors, Epochs
from kcast.client.history.ids import Stamp, attributes_of, id_of
from kcast.client.history.index import LOWEST
from kcast.client.history.log import MAILBOX_BYTES, Log
from kcast.client.layers.words import layer_topic
from kcast.client.messages.guard_and_writer import Proven
from kcast.client.sealed.guards import SealedGuard
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import Group, GroupError
from kcast.client.sealed.topics import hidden
from kcast.client.sealed.writers import SealedWriter
from tests.support import sealed_by_hand
from tests.support.attack_stage import epoch, group_of
from tests.support.drivers import Driver, Loop, Threads
from tests.support.log_lab import LogLab, Outcome

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {"asyncio": Loop(asyncio.SelectorEventLoop), "threads": Threads()}
ALICE, BOB = (
    Identity.from_seed("key", seed) for seed in (sealed_by_hand.ALICE.seed, sealed_by_hand.BOB.seed)
)
FIRST = epoch(1, 1)
PLACES = [hidden(epoch(number).topic_secret, b"chat") for number in (1, 2)]
SOON_S = 10.0
FOR_EVER = 10**11
NOW = 1_790_000_000
OPS = group_of(FIRST, until_unix_s=FOR_EVER)


def after(group: Group) -> Group:
    """The group with another epoch, which holds from now on."""
    *earlier, last = group.epochs
    now = int(time())
    epochs = *earlier, replace(last, next_from_unix_s=now), epoch(last.number + 1, now)
    return group_of(*epochs, until_unix_s=FOR_EVER)


async def adopt(client: Any, group: Group) -> None:
    await client.publish("elsewhere", "x", seal=group)


async def first(count: int, entries: AsyncIterator[Entry]) -> list[Entry]:
    found = []
    async for entry in entries:
        found.append(entry)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_one_log_over_two_epochs(driver: Driver, cluster: Cluster, tmp_path: Path) -> None:
    """A newcomer gets what was written in the epoch that it comes to, a removed member nothing of that."""
    group = group_of(FIRST, until_unix_s=FOR_EVER)
    key = ALICE.signer.key_text

    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=ALICE, group=group) as alice,
            driver.client(cluster, identity=BOB, group=group) as bob,
            driver.client(cluster) as eve,
            alice.history("chat", tmp_path / "alice.db") as of_alice,
            bob.history("chat") as of_bob,
        ):
            heard = eve.subscribe([layer_topic(place, b"sync") for place in PLACES])
            await heard.ready(SOON_S)
            one = await of_alice.append("one")
            assert (one.payload, one.sender, one.group) == (b"one", key, "ops")
            assert (await of_bob.synced(SOON_S)).complete
            entries = of_bob.entries()
            assert await first(1, entries) == [one]
            later = after(group)
            await adopt(alice, later)
            await adopt(bob, later)
            two = await of_bob.append("two", confirm=1, timeout_s=SOON_S)  # whoever says that
            assert two.parents == () and two.id > one.id
            assert await first(1, entries) == [two]
            assert (await of_alice.synced(SOON_S)).complete
            assert await first(2, of_alice.entries(last=2)) == [one, two]
            assert await first(1, of_alice.entries(last=1)) == [two]
            status = of_alice.status()
            assert (status.entries, status.heads, status.holders) == (2, [one.id, two.id], 1)
            speakers: dict[bytes, set[str | None]] = {}
            while len(speakers) < 2:  # nothing links epochs, not what is said in clear either
                said = await heard.get(SOON_S)
                assert said is not None
                speakers.setdefault(said.topic, set()).add(said.publisher)
            assert len(set().union(*speakers.values(), {one.publisher, two.publisher})) == 2 + sum(
                map(len, speakers.values())
            )
            newcomer = replace(later, epochs=later.epochs[1:])
            removed = replace(later, epochs=later.epochs[:1])
            for who, reads in (newcomer, [two]), (removed, [one]):
                async with (
                    driver.client(cluster, identity=BOB, group=who) as client,
                    client.history("chat") as log,
                ):
                    assert (await log.synced(SOON_S)).complete
                    assert [entry async for entry in log.entries(live=False)] == reads
                    if who is removed:
                        with pytest.raises(GroupError, match="none of its epochs"):
                            await log.append("three")

    driver.run(scenario())


def test_an_epoch_whose_log_cannot_be_opened_waits_and_a_log_that_fails_ends(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, away = tmp_path / "a.db", tmp_path / "away.db"

    async def scenario() -> None:
        group = group_of(FIRST, until_unix_s=FOR_EVER)
        async with DRIVERS["asyncio"].client(cluster, identity=ALICE, group=group) as alice:
            log, events = alice.history("chat", file), alice.events()
            entries = log.entries()
            assert [await log.append("one")] == await first(1, entries)
            file.rename(away)
            await adopt(alice, after(group))
            with pytest.raises(StoreError, match="moved"):
                await log.append("two")
            assert "moved" in str(log.status().trouble)
            away.rename(file)
            assert [await log.append("three")] == await first(1, entries)
            assert log.status().trouble is None
            for text in "moved", "None":
                while not isinstance(event := await events.get(SOON_S), LogTrouble):
                    assert event is not None
                assert text in str(event.text)
            monkeypatch.setattr(Log, "handle_timeout", None)
            with pytest.raises(ClientClosed):
                await log.append("four")
            assert await first(1, entries) == []

    DRIVERS["asyncio"].run(scenario())


def test_a_log_and_cover_traffic_exclude_each_other(cluster: Cluster) -> None:
    async def scenario() -> None:
        group = group_of(FIRST, until_unix_s=FOR_EVER)
        async with DRIVERS["asyncio"].client(cluster, identity=ALICE, group=group) as alice:
            async with alice.history("chat"):
                with pytest.raises(ValueError, match="a log of this topic is open"):
                    alice.cover("chat", rate=1, size=100)
            async with alice.cover("chat", rate=1, size=100):
                with pytest.raises(ValueError, match="cover traffic runs on this topic"):
                    alice.history("chat")
            async with alice.history("chat"):
                pass

    DRIVERS["asyncio"].run(scenario())


def sealed(
    size_bytes: int,
    parents: int = 0,
    at_unix_s: float = NOW,
    of: Group = OPS,
    place: bytes = PLACES[0],
    signer: Any = ALICE.signer,
) -> bytes:
    """Alice's entry, on the first epoch's topic."""
    clock = int(at_unix_s * 1e6)
    stamp = Stamp(clock, [id_of(clock - 1 - number, b"", b"") for number in range(parents)])
    writer = SealedWriter(lambda: of, Random(1).randbytes, lambda: "AbCdEfGhIjK", signer)
    payloads, attributes = [b"a" * size_bytes], attributes_of(stamp)
    _, (line,) = writer.lines(place, payloads, at_unix_s, attributes, MAILBOX_BYTES)
    return line[len(place) + 1 : -1]


def test_a_sealed_entry_of_500_bytes_has_four_parents_and_one_of_596_has_none() -> None:
    for size, parents in (500, 4), (596, 0):
        sealed(size, parents)
        with pytest.raises(MessageTooLarge, match=f"at most {size} fit"):
            sealed(size + 1, parents)


def test_what_was_kept_proves_whenever_it_was_sent_in_its_epoch() -> None:
    message = sealed(5)
    guard = SealedGuard(OPS, NOW + 1_000_000)
    assert guard.glance(PLACES[0], message, NOW + 1_000) is not Drop.UNKNOWN_KEY
    for _ in range(2):  # it remembers nothing
        proven = guard.prove(PLACES[0], message)
        assert isinstance(proven, Proven)
        assert (proven.payload, proven.group, proven.sender) == (b"aaaaa", "ops", ALICE.signer.key_text)
    shorter = replace(FIRST, next_from_unix_s=NOW - 100)
    by_bob = SimpleNamespace(key=ALICE.signer.key, sign_bytes=BOB.signer.sign_bytes)
    for group, of_whom, place, drop in (
        (OPS, message.replace(b";c=zV", b";c=zU"), PLACES[0], Drop.NOT_OPENED),
        (OPS, message, PLACES[1], Drop.UNKNOWN_KEY),
        (OPS, sealed(5, signer=by_bob), PLACES[0], Drop.BAD_SIGNATURE),
        (OPS, b"%@AbCdEfGhIjK.1;c=zVOQzhc_s-- in clear", PLACES[0], Drop.NOT_SEALED),
        (group_of(epoch(2)), message, PLACES[0], Drop.UNKNOWN_KEY),
        (group_of(shorter), message, PLACES[0], Drop.TOO_OLD),
        (group_of(replace(FIRST, from_unix_s=NOW + 100)), message, PLACES[0], Drop.FROM_FUTURE),
        (
            group_of(replace(FIRST, senders=frozenset([BOB.signer.key]))),
            message,
            PLACES[0],
            Drop.UNAUTHORISED,
        ),
    ):
        assert SealedGuard(group, NOW).prove(place, of_whom) is drop


def test_an_epochs_log_is_open_from_a_minute_before_it_until_its_last_message_has_come() -> None:
    """Who reads slowly is told how many entries nobody can open any more."""
    lab = LogLab()
    begin = int(lab.now) + 100
    first, second = replace(FIRST, next_from_unix_s=NOW + begin), epoch(2, NOW + begin)
    group = group_of(first, second, until_unix_s=FOR_EVER)
    guard = SealedGuard(group, NOW + lab.now)
    epochs = Epochs(b"chat", guard, lambda place: lab.join(place, inner=guard).log, lambda: float(NOW))
    epochs.handle_timeout(lab.now)
    (log,) = epochs.logs.values()
    assert log.is_sealed and epochs.in_force is log
    cursors = Cursors(epochs, LOWEST)
    for number in range(3):
        message = sealed(number, at_unix_s=NOW + lab.now, of=group)
        row = lab.participants[0].guard._row(message, NOW + lab.now)
        assert isinstance(row, Row)
        log.came(row, lab.now)
    lab.run(1.0)
    found = [(entry.payload, entry.sender) for entry in cursors.take()]  # as who could open none has rows
    assert found == [(each, ALICE.signer.key_text) for each in (b"", b"a", b"aa")] and not cursors.take()
    assert isinstance(row, Row)
    unread = Cursors(epochs, LOWEST)
    log.came(row._replace(entry_id=bytes([254, *row.entry_id[1:-1], 0])), lab.now)
    lab.run(1.0)
    opened, closed, places = [], [], list[bytes]()
    while epochs.next_at < begin + 1_000:
        lab.now = epochs.next_at
        epochs.handle_timeout(lab.now)
        assert epochs.next_at <= lab.now + 60 and (lab.now > begin - 1 or epochs.begun == [log])
        opened += [(lab.now, each) for each in epochs.logs if each not in places]
        closed += [(lab.now, each) for each in places if each not in epochs.logs]
        places = list(epochs.logs)
    assert opened[1:] == [(begin - 90, PLACES[1])] and closed == [(begin + 150, PLACES[0])]
    assert log.is_over and cursors.leave(log) == 1 and unread.leave(log) == 4
    assert epochs.begun == list(epochs.logs.values())


def test_logs_have_all_of_those_epochs_that_somebody_holds() -> None:
    """Who waits as an epoch's log closes is told what there was."""
    lab = LogLab()
    begin = int(lab.now)
    first, second = replace(FIRST, next_from_unix_s=NOW + begin), epoch(2, NOW + begin)
    guard = SealedGuard(group_of(first, second, until_unix_s=FOR_EVER), NOW + lab.now)
    keeper = lab.join(PLACES[1])
    message = sealed(3, at_unix_s=NOW + begin, of=group_of(second, until_unix_s=FOR_EVER), place=PLACES[1])
    row = keeper.guard._row(message, NOW + lab.now)
    assert isinstance(row, Row)
    keeper.log.came(row, lab.now)
    epochs = Epochs(b"chat", guard, lambda place: lab.join(place, inner=guard).log, lambda: float(NOW))
    epochs.handle_timeout(lab.now)
    for timeout_s, run_s, is_over, told in (
        (0.0, 0.01, False, Synced(0, 0, complete=False)),  # no leases yet
        (5.0, 6.0, False, Synced(1, 1, complete=True)),
        (300.0, 144.0, True, Synced(1, 1, complete=True)),
    ):
        outcome = Outcome()
        epochs.wait_synced(outcome, timeout_s, lab.now)
        lab.run(run_s)
        if is_over:
            assert not outcome.done()
            epochs.handle_timeout(lab.now)
            assert len(epochs.logs) == 1
        assert outcome.result == told


def test_idle_holders_of_a_sealed_topic_cost_a_fifth_more_at_most() -> None:
    """Of what those of a topic in clear cost that has 12 bytes."""

    def size_bytes(topic: bytes, inner: SealedGuard | None) -> int:
        lab = LogLab()
        for _ in range(3):
            lab.join(topic, inner=inner)
        lab.run(100.0)
        lab.sent.clear()
        lab.run(200.0)
        return sum(28 + len(datagram) for _, datagram in lab.sent)

    assert size_bytes(PLACES[0], SealedGuard(OPS, NOW)) < 1.2 * size_bytes(b"weather/oslo", None)
