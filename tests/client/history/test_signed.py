"""Logs whose senders are named: their entries alone count, and their word on what they keep."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.cluster import Cluster
from kcast.client.errors import MessageTooLarge
from kcast.client.events import Drop
from kcast.client.history.entries import NotKept, Row
from kcast.client.history.ids import Stamp, attributes_of, id_of
from kcast.client.history.log import MAILBOX_BYTES
from kcast.client.messages.lines import Publisher
from kcast.client.sealed.guards import SignedGuard, senders_of
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.writers import SignedWriter
from kcast.pubsub import wire
from tests.support import sealed_by_hand
from tests.support.drivers import Driver, Loop, Threads
from tests.support.log_lab import LogLab, Participant
from tests.support.sync_lab import TOPIC, make_entries

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {"asyncio": Loop(asyncio.SelectorEventLoop), "threads": Threads()}
ALICE, BOB, MALLORY = (
    Identity.from_seed("key", seed)
    for seed in (sealed_by_hand.ALICE.seed, sealed_by_hand.BOB.seed, bytes([13]) * 32)
)
SOON_S = 10.0


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_the_word_of_named_senders_alone_counts(driver: Driver, cluster: Cluster, tmp_path: Path) -> None:
    senders = [ALICE.signer.key_text, BOB.signer.key_text]

    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=ALICE) as alice,
            driver.client(cluster, identity=BOB) as bob,
            driver.client(cluster, identity=MALLORY) as mallory,
            driver.client(cluster) as eve,
            alice.history("signed", tmp_path / "alice.db", senders=senders) as of_alice,
        ):
            # Who keeps it, and is not named, is asked, too, and not believed.
            async with mallory.history("signed", tmp_path / "mallory.db", senders=senders) as of_mallory:
                with pytest.raises(ValueError, match="sign with one of the keys"):
                    await of_mallory.append("mine")
                with pytest.raises(NotKept):
                    await of_alice.append("first", confirm=1, timeout_s=2.0)
            async with bob.history("signed", tmp_path / "bob.db", senders=senders) as of_bob:
                assert (await of_bob.synced(SOON_S)).complete
                kept = await of_alice.append("second", confirm=1, timeout_s=SOON_S)
                assert kept.sender == senders[0]
                async with eve.history("signed") as of_eve:  # whatever anybody says
                    await of_eve.append("of nobody")
                payloads = [entry.payload async for entry in of_bob.entries(live=False)]
                assert payloads == [b"first", b"second"]
            async with eve.history("signed", tmp_path / "eve.db") as of_eve:
                await of_eve.append("forged")
                await of_eve.synced(SOON_S)
            # What she has in her store does not count there either, until it comes again, and is proven.
            async with eve.history("signed", tmp_path / "eve.db", senders=senders) as of_eve:
                assert (await of_eve.synced(SOON_S)).complete
                entries = [(entry.payload, entry.sender) async for entry in of_eve.entries(live=False)]
                assert entries == [(b"first", senders[0]), (b"second", senders[0])]
                assert of_eve.status().digest == of_alice.status().digest

    driver.run(scenario())


def test_a_signed_entry_of_765_bytes_has_four_parents() -> None:
    """On a topic of 12 bytes, whatever its number is: 17 more where that has one digit, and not 18."""
    clock = 1_790_000_000_000_000
    parents = [id_of(clock - 1 - number, b"weather/oslo", b"") for number in range(4)]
    attributes = attributes_of(Stamp(clock, parents))
    for size, fits in (765 + 17, True), (765 + 18, False):
        writer = SignedWriter(partial(Publisher, "AbCdEfGhIjK"), ALICE.signer)
        with nullcontext() if fits else pytest.raises(MessageTooLarge):
            writer.lines(b"weather/oslo", [b"a" * size], clock / 1e6, attributes, MAILBOX_BYTES)


class Signing(Participant):
    signs = True

    def line(
        self, topic: bytes, payload: bytes, attributes: Mapping[str, str], spare_bytes: int, now: float
    ) -> tuple[int, bytes]:
        writer = SignedWriter(lambda: self.core.publications.publisher, ALICE.signer)
        given = wire.encode_topic(topic), [payload], now + self.clock_offset_s, attributes, spare_bytes
        first, (line,) = writer.lines(*given)
        return first, line


def test_a_copy_that_nobody_named_has_signed_is_not_taken_and_what_follows_it_does_not_wait() -> None:
    lab = LogLab()
    ann, of_alice = lab.join(), lab.join(kind=Signing)
    lab.run(3)
    for holder in (of_alice, ann, of_alice):
        holder.append(b"of alice" if holder is of_alice else b"forged")
        lab.run(1)
    assert [len(entry.parents) for entry in ann.entries()] == [0, 1, 1]
    eve = lab.join(inner=SignedGuard(senders_of(frozenset([ALICE.signer.key])), lab.now + ann.clock_offset_s))
    lab.run(2)
    entries = [(entry.payload, entry.sender) for entry in eve.entries()]
    assert entries == [(b"of alice", ALICE.signer.key_text)] * 2
    assert eve.drops[Drop.UNSIGNED] and not len(eve.log._arrivals)


def test_signed_holders_speak_by_one_server_and_cost_180_bytes_a_second() -> None:
    """Of ten days, and with the headers. Three are as many as speak where there are more."""
    lab = LogLab()
    entries = make_entries(1000, 20)
    for _ in range(3):
        holder = lab.join(topic=TOPIC, kind=Signing)
        for each in entries:
            holder.log.came(Row(*each), lab.now)
    lab.run(100.0)
    lab.sent.clear()
    lab.run(200.0)
    size_bytes = sum(28 + len(datagram) for _, datagram in lab.sent if b" have " in datagram)
    said = [line for _, line in lab.lines() if b" have " in line]
    assert all(len(holder.log.index) == 1000 for holder in lab.participants)
    assert len(set(said)) == len(said) > 20
    assert size_bytes / 200 < 180
