"""sealed/group_owner.py: which epoch comes next and when it begins, and what the owner keeps."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nacl")

from kcast.client.sealed import group_file, group_owner
from kcast.client.sealed.group_file import Role, Term
from kcast.client.sealed.group_owner import DAY_S, NOTICE_S, SEEN_S, Membership, OwnGroup, load, rekey, save
from kcast.client.sealed.membership import GroupError
from tests.support.groups import ALICE, BOB, MALLORY, NAME, NOW_UNIX_S, OWNER

T = NOW_UNIX_S


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def own(*terms: Term) -> OwnGroup:
    return OwnGroup(NAME, OWNER.note_key.verifier, (Membership.of(OWNER.member_word),), terms)


def at(epoch: int, from_unix_s: float, after: int | None = None) -> Term:
    begin = int(from_unix_s)
    return Term(epoch, epoch - 1 if after is None else after, begin, begin + 90 * DAY_S, begin + 7 * DAY_S)


def test_the_first_epoch_holds_at_once() -> None:
    assert own().next_term(T + 0.5, is_now=True) == at(1, T)


def test_the_next_one_begins_in_ten_minutes_or_at_once() -> None:
    group = own(at(1, T))
    assert group.next_term(T + 1000.5, is_now=False) == at(2, T + 1001 + NOTICE_S)
    assert group.next_term(T + 1000.5, is_now=True) == at(2, T + 1000)
    term = replace(group, life_days=5).next_term(T + 1000, is_now=True)  # told to be stale before it ends
    assert (term.fresh_until_unix_s, term.until_unix_s) == (T + 1000 + 4.5 * DAY_S, T + 1000 + 5 * DAY_S)
    assert group.next_term(T, is_now=True) == at(2, T + 1)  # two do not begin in one second
    assert group.next_term(T - 5000, is_now=True) == at(2, T - 5000, after=0)  # the clock was set back


def test_one_that_waits_is_replaced_if_there_is_time_for_all_to_see_it() -> None:
    group = own(at(1, T), at(2, T + NOTICE_S))
    for seconds in (10, 300, NOTICE_S - SEEN_S - 1):  # and what it changes, as a removal, is not put off
        assert group.next_term(T + seconds, is_now=False) == at(3, T + NOTICE_S, after=1)
    assert group.next_term(T - 5000, is_now=False) == at(
        3, T - 5000 + NOTICE_S, after=0
    )  # the clock was fast
    too_late = group.next_term(T + NOTICE_S - SEEN_S, is_now=False)
    assert (too_late.epoch, too_late.after) == (3, 2)
    at_once = group.next_term(T + 10, is_now=True)
    assert (at_once.epoch, at_once.after, at_once.from_unix_s) == (3, 1, T + 10)
    assert group.with_term(at_once).terms == (at(1, T), at_once)
    assert group.with_term(too_late).terms == (*group.terms, too_late)


def test_what_somebody_does_every_nine_minutes_puts_no_removal_off() -> None:
    group = own(at(1, T))
    for minute in range(0, 60, 9):
        group = group.with_term(group.next_term(T + 60 * minute, is_now=False))
    assert group.terms[1].from_unix_s == T + NOTICE_S


def test_numbers_rise_over_what_was_seen_elsewhere() -> None:
    """What is kept here may be an old copy: an epoch's number must not be used twice."""
    assert own(at(1, T)).next_term(T + 9, is_now=True, seen=7) == at(8, T + 9, after=1)


def test_members_come_change_and_go() -> None:
    group = own().with_member(Membership.of(ALICE.member_word))
    group = group.with_member(Membership.of(ALICE.member_word, Role.WRITER, is_sender=True))
    found = group.member(ALICE.signer.key)
    assert found is not None and (found.role, found.is_sender) == (Role.WRITER, True)
    assert len(group.members) == 2
    group = group.without_member(OWNER.signer.key)
    with pytest.raises(GroupError, match="is no member of ops: 'kcast group show ops' shows who is"):
        group.without_member(BOB.signer.key)
    with pytest.raises(GroupError, match="has no other member"):
        group.without_member(ALICE.signer.key)


def test_each_epoch_has_new_secrets_and_who_left_opens_none_of_them() -> None:
    group = own().with_member(Membership.of(ALICE.member_word)).with_member(Membership.of(BOB.member_word))
    group, first, data = rekey(group, OWNER.note_key, group.next_term(T, is_now=True))
    assert group_file.parse(data) == first
    group, second, _ = rekey(
        group.without_member(BOB.signer.key), OWNER.note_key, group.next_term(T + 9, is_now=True)
    )
    assert [term.epoch for term in group.terms] == [1, 2]
    one, two = (file.open(ALICE) for file in (first, second))
    assert one is not None and two is not None and not set(one.secrets) & set(two.secrets)
    assert first.open(BOB) == one
    assert second.open(BOB) is None


def test_another_key_than_the_owners_is_refused_and_a_renamed_one_is_not() -> None:
    group = own()
    renamed = type(OWNER).from_seed("renamed", OWNER.note_key.seed)
    assert group_owner.signing_key(group, renamed).verifier == group.owner
    with pytest.raises(GroupError, match=r"ops is owned by key\+.*: name its key by --key"):
        group_owner.signing_key(group, MALLORY)


def test_it_is_kept_for_the_user_alone_without_any_secret(config: Path) -> None:
    group = own(at(1, T), at(3, T + 9, after=1)).with_member(
        Membership.of(ALICE.member_word, Role.WRITER, is_sender=True)
    )
    old = os.umask(0)
    try:
        with group_owner.changing():
            save(group)
    finally:
        os.umask(old)
    path = config / "kcast" / "own-groups" / "ops.json"
    assert load(NAME) == group and group_owner.owned() == [NAME]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert set(json.loads(path.read_text())) == {
        "name",
        "owner",
        "life_days",
        "fresh_days",
        "file",
        "epochs",
        "members",
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "x", '{"name": 1}', "[" * 100_000, b"\xff".decode("latin-1"), "null"]
)
def test_what_is_damaged_is_told_in_one_line(text: str) -> None:
    with group_owner.changing():
        save(own(at(1, T)))
    path = group_owner.path_of(NAME)
    path.write_text(text)
    with pytest.raises(GroupError) as raised:
        load(NAME)
    assert str(raised.value) == f"{path}: it is damaged: put a copy of it back there that you have kept"


def test_a_group_that_is_not_there() -> None:
    with pytest.raises(GroupError, match="there is no group ops of yours: 'kcast group new ops' makes one"):
        load(NAME)
    with pytest.raises(GroupError, match="cannot be a group's name: give 1 to 64"):
        load("../x")
