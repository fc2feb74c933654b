"""client/driving/protection.py: which group is meant, who follows its epochs, options that do nothing."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import lab
from kcast.client.clusters.watch import News
from kcast.client.core import ClientCore
from kcast.client.driving import protection as made_of
from kcast.client.driving.arguments import ReadOptions, WriteOptions
from kcast.client.driving.protection import Protection
from kcast.client.driving.watches import Watches
from kcast.client.messages.guard_and_writer import Guard
from kcast.client.sealed.dhkem import public_key
from kcast.client.sealed.guards import SealedGuard
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import Group
from kcast.client.sealed.sealing import Epoch
from kcast.client.sealed.topics import hidden
from kcast.client.sealed.writers import SealedWriter
from kcast.client.trust.forms.note import SigningKey
from kcast.pubsub.wire import TopicError

UNIX_S = 1_790_000_000
ME = Identity.from_seed("me", b"\x05" * 32)
OWNER, OTHER = (SigningKey.from_seed("owner", bytes([number]) * 32).verifier for number in (1, 2))


def epoch(number: int, from_unix_s: int, next_from_unix_s: float = float("inf"), group: str = "ops") -> Epoch:
    private = bytes([number + 10] * 32)
    secret = bytes([number] * 32)
    return Epoch(
        *(group, number, from_unix_s, public_key(private), secret, private, next_from_unix_s),
        owner=OWNER.public,
        senders=frozenset([ME.signer.key]),
    )


def group(name: str = "ops", epochs: Sequence[Epoch] = (), source: str = "", **other: Any) -> Group:
    held = tuple(epochs) or (epoch(1, UNIX_S - 1000, group=name),)
    return Group(name, other.get("owner", OWNER), held, UNIX_S + 100_000, held[-1].number, source)


NEXT = group(epochs=[epoch(1, UNIX_S - 1000, UNIX_S + 50), epoch(2, UNIX_S + 50)], source="f")


class GroupWatch:
    """Brings the next epoch at each look."""

    def __init__(self, adopt: Callable[[Group, float], None]) -> None:
        self.look_at = 0.0
        self._adopt = adopt

    def look(self, now: float) -> list[News]:
        self.look_at = now + 60
        self._adopt(NEXT, now)
        return []


def core(offset_s: float = UNIX_S) -> ClientCore:
    made = ClientCore(lab([("127.0.0.1", 7000 + port) for port in range(3)]), Random(1))
    made.clock_offset_s = offset_s
    return made


def protection(of: Group | str | None = None, identity: Identity | None = ME) -> Protection:
    return Protection(core(), identity, of, 0.0)


# --- Groups ------------------------------------------------------------------------------------------


def test_a_group_named_by_its_name_and_by_its_file_goes_on_to_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(made_of, "load", lambda *_: group(source="f"))
    monkeypatch.setattr(made_of, "watch_of", lambda *given: GroupWatch(given[3]))
    watches = Watches(core())
    both = Protection(core(), ME, "ops", 0.0, watches=watches)
    by_file = both.writer({"seal": "./ops.group"}, 0.0)
    watches.look(1.0)
    for writer in (both.writer({}, 1.0), by_file):
        assert writer is not None
        assert writer.place(b"plans", UNIX_S + 60) == hidden(bytes([2] * 32), b"plans")


def test_a_file_of_another_owners_group_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_of, "load", lambda *_: group(owner=OTHER))
    with pytest.raises(ValueError, match="there are two groups ops"):
        protection(group()).writer({"seal": "./theirs.group"}, 0.0)


def test_what_is_sealed_is_signed_by_the_key_that_the_group_was_opened_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(made_of, "load", lambda *_: group())
    monkeypatch.setattr(Identity, "load", lambda: ME)
    for each in (protection("ops", None), protection("ops")):
        options: list[WriteOptions] = [{}, {"sign": True}, {"sign": None}]
        for writing in options:
            writer = each.writer(writing, 0.0)
            assert isinstance(writer, SealedWriter) and writer._signer.key == ME.signer.key
        with pytest.raises(ValueError, match="what is sealed is signed: leave out sign=False"):
            each.writer({"sign": False}, 0.0)
        assert each.writer({"sign": False, "seal": False}, 0.0) is None


def test_of_two_groups_the_one_that_is_named_is_meant() -> None:
    guard = protection(group("dev")).guard([b"t"], {"group": group("ops"), "seal": True}, 0.0)
    assert isinstance(guard, SealedGuard)
    assert guard._group.name == "ops"
    with pytest.raises(ValueError, match="give one of them"):
        protection().guard([b"t"], {"group": group("ops"), "seal": False}, 0.0)


def test_a_clock_that_is_set_forward_does_not_keep_one_from_the_epoch_in_force() -> None:
    of, late_s = core(UNIX_S - 7200), 7200.0
    held = group(epochs=[epoch(1, UNIX_S - 100_000, UNIX_S - 600), epoch(2, UNIX_S - 600)])
    guard: Guard = SealedGuard(held, UNIX_S - late_s)
    of.subscribe(b"plans", 0.0, guard=guard)
    of.clock_offset_s = UNIX_S
    for now in range(1, 100, 30):
        of.handle_timeout(float(now))
    assert hidden(bytes([2] * 32), b"plans") in of._subscriptions


# --- Options -----------------------------------------------------------------------------------------


def test_options_that_would_do_nothing_are_refused() -> None:
    bare = protection(identity=None)
    written: list[WriteOptions] = [{"plain_topic": True}, {"senders": [ME.key_text]}]
    for writing in written:
        with pytest.raises(ValueError, match=r"or leave it out|give the client an identity"):
            bare.writer(writing, 0.0)
    asked: list[ReadOptions] = [{"plain_topic": True}, {"back_s": 5.0}, {"ahead_s": 5.0}]
    for reading in asked:
        with pytest.raises(ValueError, match=r"or leave it out|give senders or a group"):
            bare.guard([b"t"], reading, 0.0)


def test_a_topic_that_none_can_subscribe_to_is_refused_under_its_hidden_name_too() -> None:
    of = protection(group())
    writer = of.writer({}, 0.0)
    with pytest.raises(TopicError):
        of._core.publish(b"", b"x", 0.0, writer=writer)
    with pytest.raises(TopicError):
        of._core.publish_many(b"", [b"x"], 0.0, writer=writer)
