"""sealed/membership.py: which epochs are held when, and which file may follow which."""

from math import inf

import pytest

pytest.importorskip("nacl")


from kcast.client.sealed.group_file import GroupFile, Role
from kcast.client.sealed.membership import (
    HELD_MAX,
    LINGER_S,
    GroupError,
    GroupFault,
    follow,
    group_of,
    living,
)
from tests.support.groups import ALICE, BOB, LIFE_S, MALLORY, NOW_UNIX_S, OWNER, made, recipient, secrets

T = NOW_UNIX_S
ME = ALICE


def file(
    epoch: int, after: int | None = None, from_unix_s: int | None = None, **options: object
) -> GroupFile:
    begin = T + 1000 * epoch if from_unix_s is None else from_unix_s
    return made(epoch, after, begin, **options)[0]


def numbers(files: tuple[GroupFile, ...] | None) -> list[int]:
    assert files is not None
    return [each.epoch for each in files]


def test_each_epoch_holds_until_the_next_one_begins() -> None:
    group = group_of([file(1), file(2), file(3)], ME, "there")
    assert (group.name, group.owner, group.newest, group.source) == (
        "ops",
        OWNER.note_key.verifier,
        3,
        "there",
    )
    assert [(each.from_unix_s, each.next_from_unix_s) for each in group.epochs] == [
        (T + 1000, T + 2000),
        (T + 2000, T + 3000),
        (T + 3000, inf),
    ]
    at = {
        T + 999: None,
        T + 1000: 1,
        T + 1999.9: 1,
        T + 2000: 2,
        T + 3000 + LIFE_S - 1: 3,
        T + 3000 + LIFE_S: None,
    }
    for unix_s, number in at.items():
        epoch = group.writing(unix_s)
        assert (epoch and epoch.number) == number, unix_s


def test_one_listens_before_an_epoch_begins_and_150_seconds_after_it_has_ended() -> None:
    group = group_of([file(1), file(2)], ME)

    def held(unix_s: float, lead_s: float = 0) -> list[int]:
        return [epoch.number for epoch in group.held(unix_s, lead_s)]

    assert held(T + 999) == [] and held(T + 999, 1) == [1]
    assert held(T + 1939.9, 60) == [1] and held(T + 1940, 60) == [1, 2]
    assert held(T + 2000 + LINGER_S - 0.1) == [1, 2] and held(T + 2000 + LINGER_S) == [2]
    end = T + 2000 + LIFE_S
    assert held(end + LINGER_S - 0.1) == [2] and held(end + LINGER_S) == []


def test_an_epoch_is_forgotten_150_seconds_after_the_next_one_began() -> None:
    group = group_of([file(1), file(2)], ME)
    dead_at = T + 2000 + LINGER_S
    assert group.without_past(dead_at - 0.1) is group
    assert group.next_change(T) == dead_at
    left = group.without_past(dead_at)
    assert [epoch.number for epoch in left.epochs] == [2]
    assert secrets(1).private not in [epoch.private for epoch in left.epochs]
    files = (file(1), file(2), file(3))
    assert numbers(living(files, dead_at - 0.1)) == [1, 2, 3]
    assert numbers(living(files, dead_at)) == [2, 3]
    assert numbers(living(files, 9e12)) == [3]  # the newest one stays: numbers only rise


def test_a_writer_has_no_private_key_and_all_have_the_senders() -> None:
    members = (recipient(ALICE, Role.WRITER), recipient(BOB, is_sender=True))
    (epoch,) = group_of([file(1, members=members)], ME).epochs
    assert epoch.private is None and epoch.public == secrets(1).public
    assert epoch.senders == {BOB.signer.key}
    all_members = (recipient(ALICE, Role.WRITER), recipient(BOB))
    (epoch,) = group_of([file(1, members=all_members)], ME).epochs
    assert epoch.senders == {ALICE.signer.key, BOB.signer.key}, "where the file names none"


def test_who_is_no_member_of_an_epoch_holds_the_one_before_until_that_begins() -> None:
    group = group_of([file(1), file(2, members=(OWNER, BOB))], ME)
    assert [epoch.number for epoch in group.epochs] == [1]
    assert group.newest == 2
    assert group.writing(T + 1999) is group.epochs[0]
    assert group.writing(T + 2000) is None
    assert group_of([file(1, members=(OWNER,))], ME).epochs == ()


def test_an_epoch_that_is_followed_over_never_holds() -> None:
    """Members who are added one after the other make an epoch each; only the last one of them begins."""
    held: tuple[GroupFile, ...] = (file(1),)
    for epoch in (2, 3, 4):
        followed = follow(held, file(epoch, 1))
        assert numbers(followed) == [1, epoch]
        assert followed is not None
        held = followed
    assert numbers(follow(held, file(5, 4))) == [1, 4, 5]


def test_files_go_by_their_number_whatever_the_clock_says() -> None:
    held: tuple[GroupFile, ...] = (file(1),)
    for epoch in range(2, 2 * HELD_MAX):
        held = follow(held, file(epoch)) or ()
    assert numbers(held) == [*range(HELD_MAX, 2 * HELD_MAX)]


def test_one_who_has_missed_epochs_goes_on_with_the_newest() -> None:
    assert numbers(follow((file(1), file(2)), file(7, 5))) == [7]
    assert numbers(follow((file(1), file(2)), file(7, 2))) == [1, 2, 7]


@pytest.mark.parametrize(
    ("new", "fault", "says"),
    [
        (file(1), GroupFault.ROLLBACK, "it is epoch 1, older than epoch 3, which is held: get"),
        (file(2, 1), GroupFault.ROLLBACK, "older than epoch 3"),
        (file(3, members=(OWNER,)), GroupFault.TWO_TEXTS, "there are two texts of an epoch that is held"),
        (file(1, members=(OWNER,)), GroupFault.TWO_TEXTS, "there are two texts of an epoch that is held"),
        (file(4, name="other"), GroupFault.WRONG_NAME, "it is the group other, and not ops"),
        (file(4, owner=MALLORY), GroupFault.WRONG_OWNER, "its owner is key+"),
        (file(4, 3, T + 3000), GroupFault.TOO_EARLY, "does not begin after epoch 3"),
        (file(4, 1, T + 1000), GroupFault.TOO_EARLY, "does not begin after epoch 1"),
    ],
)
def test_what_may_not_follow(new: GroupFile, fault: GroupFault, says: str) -> None:
    held = (file(1), file(3, 1))
    with pytest.raises(GroupError) as raised:
        follow(held, new)
    assert raised.value.fault is fault and says in str(raised.value)
