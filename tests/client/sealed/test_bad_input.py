"""Bad input to the clients, by options on signing and sealing: one line each that says what to do, and
nothing is sent."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster
from kcast.client.errors import MessageTooLarge
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import GroupError
from kcast.client.sealed.topics import topic_start
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError
from tests.support import sealed_by_hand
from tests.support.attack_stage import ALICE, BOB, epoch, group_of
from tests.support.client_paths import Through
from tests.support.drivers import Driver, Loop, Threads
from tests.support.groups import MALLORY

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {"asyncio": Loop(asyncio.SelectorEventLoop), "threads": Threads()}
IDENTITY = Identity.from_seed("alice", sealed_by_hand.ALICE.seed)
LATE = 10**11
OPS = group_of(epoch(1, 1), until_unix_s=LATE)
OF_BOB = group_of(epoch(1, 1, senders=frozenset([BOB.key])), until_unix_s=LATE)
ENDED = replace(OPS, until_unix_s=2)
OF_ANOTHER = replace(group_of(epoch(7, 1), until_unix_s=LATE), owner=MALLORY.note_key.verifier)
TO_WRITE = replace(OPS, epochs=(replace(OPS.epochs[0], private=None),))
BOBS_TOPIC = topic_start([BOB.key])
BOTH_TOPIC = topic_start([ALICE.key, BOB.key])
TOPIC = "weather/oslo"

ME: dict[str, Any] = {"identity": IDENTITY}
IN_OPS: dict[str, Any] = {**ME, "group": OPS}

Case = tuple[dict[str, Any], dict[str, Any], type[Exception], str]

PUBLISHING: dict[str, Case] = {
    "sign without a key": ({}, {"sign": True}, ValueError, "give the client an identity"),
    "raw with sign": (ME, {"raw": True, "sign": True}, ValueError, "leave raw out, or give sign=False"),
    "raw with an identity": (ME, {"raw": True}, ValueError, "leave raw out"),
    "raw with seal": (ME, {"raw": True, "seal": OPS}, ValueError, "seal=False"),
    "raw with a group": (IN_OPS, {"raw": True}, ValueError, "seal=False"),
    "seal without a group": ({}, {"seal": True}, ValueError, r"give the client one, as Client\(group="),
    "an unknown group": (ME, {"seal": "nope"}, KcastError, "kcast group join"),
    "a group's name that cannot be": (ME, {"seal": "No pe"}, KcastError, "give 1 to 64"),
    "a group's file that is not there": (
        ME,
        {"seal": "./nope.group"},
        KcastError,
        "get it from the group's owner",
    ),
    "a group of another type": ({}, {"seal": 7}, TypeError, "give a Group, its name, or its file"),
    "another group of the same name": (
        IN_OPS,
        {"seal": OF_ANOTHER},
        ValueError,
        "two groups ops, .* use a client for each",
    ),
    "a group that has ended": (ME, {"seal": ENDED}, GroupError, "Get a newer file from its owner"),
    "a group without its member's key": ({}, {"seal": OPS}, ValueError, "give the client an identity"),
    "sealed and not signed": (IN_OPS, {"sign": False}, ValueError, "what is sealed is signed"),
    "a group whose senders are others": (
        ME,
        {"seal": OF_BOB},
        GroupError,
        "is none of them: nothing was sent.*kcast group add ops WORD --sender",
    ),
    "a topic that names another key": (ME, {"topic": BOBS_TOPIC}, TopicError, "that 'kcast key show' prints"),
    "a topic that names another key, sealed": (
        IN_OPS,
        {"topic": f"{BOBS_TOPIC}/oslo"},
        TopicError,
        "Use the topic that 'kcast key show' prints",
    ),
    "a topic that names two keys": (ME, {"topic": BOTH_TOPIC}, TopicError, "or name all"),
    "a topic that names keys, and no key": ({}, {"topic": BOBS_TOPIC}, TopicError, "sign with one of them"),
    "a topic that names keys, not signed": (
        ME,
        {"topic": topic_start([ALICE.key]), "sign": False},
        TopicError,
        "sign with one of them",
    ),
    "too large once sealed": (
        IN_OPS,
        {"payload": b"x" * 629},
        MessageTooLarge,
        "629 bytes, 1 too many. Sealed on this topic, at most 628 fit: send less, or split it",
    ),
    "too large once signed": (
        ME,
        {"payload": b"x" * 1000},
        MessageTooLarge,
        "1000 bytes. The topic, and .* leave room for 941 bytes of text, .* or for any 702",
    ),
    "an option misspelt": (ME, {"signed": True}, TypeError, "sign"),
    "senders that are no keys": (
        ME,
        {"topic": BOTH_TOPIC, "senders": ["alice"]},
        ValueError,
        "kcast key show",
    ),
}


def is_one_line(error: BaseException) -> bool:
    """Whether a message is one line, and has something to say."""
    text = str(error)
    return "\n" not in text and len(text) > 20


@pytest.fixture(autouse=True)
def no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has neither keys nor groups."""
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("KCAST_KEY", raising=False)


class Sent:
    """What a client has put on its way: nothing here may hold a message."""

    def __init__(self) -> None:
        self.through: Through | None = None

    def __call__(self, core: Any) -> Through:
        self.through = Through(core)
        return self.through

    @property
    def data(self) -> bytes:
        """All of it."""
        assert self.through is not None
        return b"".join(transmit.data for transmit in self.through.sent)


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize("case", PUBLISHING)
def test_publishing(case: str, driver: Driver, cluster: Cluster) -> None:
    options, given, kind, says = PUBLISHING[case]
    sent = Sent()
    given = dict(given)
    topic, payload = given.pop("topic", TOPIC), given.pop("payload", b"rain")

    async def scenario() -> None:
        async with driver.client(cluster, path=sent, **options) as client:
            with pytest.raises(kind, match=says) as caught:
                await client.publish(topic, payload, **given)
            assert is_one_line(caught.value)
            if case != "an option misspelt":
                with pytest.raises(kind, match=says) as caught:
                    await client.publish_many(topic, [payload, payload], **given)
                assert is_one_line(caught.value)
            await client.flush()
            outcome = await client.publish("other", b"x", sign=False, seal=False)
            assert (outcome.seq, outcome.receipts) == (1, 1), "no number was used up for what was not sent"

    driver.run(scenario())
    assert b" %@" in sent.data
    assert sent.data.count(b" %@") == sent.data.count(b"other %@")


SUBSCRIBING: dict[str, Case] = {
    "no senders": ({}, {"senders": []}, ValueError, "give the keys whose messages count"),
    "one key in place of a list": ({}, {"senders": ALICE.key_text}, TypeError, "give a list of keys"),
    "senders that are no keys": ({}, {"senders": ["alice"]}, ValueError, "kcast key show"),
    "another set than the topic names": (
        {},
        {"topic": BOTH_TOPIC, "senders": [ALICE.key_text]},
        ValueError,
        "give all that it names",
    ),
    "an unknown group": (ME, {"group": "nope"}, KcastError, "kcast group join"),
    "no key for a group by its name": ({}, {"group": "nope"}, KcastError, "kcast key new"),
    "a group to write in only": (ME, {"group": TO_WRITE}, KcastError, "ask its owner to add you"),
    "another group of the same name": (IN_OPS, {"group": OF_ANOTHER}, ValueError, "use a client for each"),
    "group=True without a group": ({}, {"group": True}, ValueError, r"as Client\(group="),
    "times out of range": ({}, {"senders": [ALICE.key_text], "back_s": 0}, ValueError, "give more than 0"),
    "times too long": (ME, {"group": OPS, "ahead_s": 1e6}, ValueError, "at most 86400 seconds"),
    "an option misspelt": ({}, {"sender": [ALICE.key_text]}, TypeError, "did you mean senders"),
}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize("case", SUBSCRIBING)
def test_subscribing(case: str, driver: Driver, cluster: Cluster) -> None:
    options, given, kind, says = SUBSCRIBING[case]
    sent = Sent()
    given = dict(given)
    topic = given.pop("topic", TOPIC)

    async def scenario() -> None:
        async with driver.client(cluster, path=sent, **options) as client:
            with pytest.raises(kind, match=says) as caught:
                client.subscribe(topic, **given)
            assert is_one_line(caught.value)
            await client.flush()
            assert client.counters()["leases_wanted"] == 0

    driver.run(scenario())
    assert topic.encode() not in sent.data


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_group_that_is_given_again_with_a_newer_epoch_is_gone_by(driver: Driver, cluster: Cluster) -> None:
    newer = group_of(epoch(1, 1, next_from_unix_s=2), epoch(2, 2), until_unix_s=LATE)

    async def scenario() -> None:
        async with (
            driver.client(cluster, identity=IDENTITY, group=OPS) as client,
            driver.client(cluster, identity=IDENTITY, group=newer) as reader,
        ):
            subscription = reader.subscribe(TOPIC)
            await subscription.ready()
            await client.publish(TOPIC, "in the old epoch")
            await client.publish(TOPIC, "in the new epoch", seal=newer)
            await client.publish(TOPIC, "by default, too")
            for payload in (b"in the new epoch", b"by default, too"):
                delivery = await subscription.get(timeout_s=10)
                assert delivery is not None
                assert delivery.payload == payload

    driver.run(scenario())


OPENING: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "publisher beside identity": (
        {"publisher": "me", "identity": IDENTITY},
        ValueError,
        "leave publisher out",
    ),
    "publisher beside group": ({"publisher": "me", "group": OPS}, ValueError, "leave publisher out"),
    "no such key": ({"identity": "nope"}, KcastError, "kcast key new"),
    "no such key file": ({"identity": Path("nope.pem")}, KcastError, "kcast key new"),
    "no key for a group": ({"group": "ops"}, KcastError, "kcast key new"),
    "a group not joined": ({"identity": IDENTITY, "group": "ops"}, KcastError, "kcast group join"),
    "a group of another type": ({"group": 7}, TypeError, "give a Group, its name, or its file"),
}


@pytest.mark.parametrize("make", [aio.Client, blocking.Client], ids=["aio", "blocking"])
@pytest.mark.parametrize("case", OPENING)
def test_opening(case: str, make: Callable[..., object], cluster: Cluster) -> None:
    options, kind, says = OPENING[case]
    with pytest.raises(kind, match=says) as caught:
        make(cluster, **options)
    assert is_one_line(caught.value)
