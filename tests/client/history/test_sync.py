"""The sync of logs over a simulated path, client/history/sync.py: all get all, it costs little, and ends."""

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from kcast.client.events import Drop
from kcast.client.history.index import HIGHEST
from kcast.client.history.words import Keep, Kept, short_of
from tests.support.sync_lab import UNIX_S, Entry, LabLog, Said, SyncLab, make_entries, make_entry, name_of

ADA, BOB, EVE = "AAAAAAAAAAA", "BBBBBBBBBBB", "EEEEEEEEEEE"


def are_equal(logs: Sequence[LabLog]) -> bool:
    return len({log.shelf.index.block(log.shelf.floor, HIGHEST) for log in logs}) == 1


def test_what_a_sync_costs() -> None:
    """As `bench.sync` has it, with fewer entries."""
    entries = make_entries(10_000, 20)
    gone = set(Random(1).sample(range(10_000), 10))
    lab = SyncLab(1, loss=0.02)
    lab.open(BOB, entries)
    lab.run(60.0)
    lab.control_bytes = 0
    ada = lab.open(ADA, [each for at, each in enumerate(entries) if at not in gone])
    at = lab.run(90.0, lambda: len(ada.shelf.index) == 10_000)
    assert at - 60.0 < 5 * 0.25 and lab.control_bytes < 3500
    assert lab.data_bytes < 1.2 * 10 * 380
    assert not ada.drops and not lab.logs[BOB].drops


def test_lines_that_come_after_it_was_said_that_they_were_sent_are_not_asked_for_again() -> None:
    lab = SyncLab(1, rtt_s=0.1)
    lab.late_s = 0.04
    lab.open(BOB, make_entries(2000, 20))
    lab.run(60.0)
    ada = lab.open(ADA, [])
    at = lab.run(90.0, lambda: len(ada.shelf.index) == 2000)
    assert at - 60.0 < 3.0 and lab.copies == 2000 and not ada.drops


def all_have(logs: Sequence[LabLog], entries: int) -> bool:
    return all(len(log.shelf.index) == entries for log in logs)


@pytest.mark.parametrize("publishers", [3, 1000])
def test_all_have_the_same_in_the_end(publishers: int) -> None:
    """30 % of datagrams are lost on their way, clocks are 10 s off, and of each entry some holder has it."""
    for seed in range(3):
        rng = Random(seed)
        entries = make_entries(1000, publishers, seed)
        lab = SyncLab(seed, loss=0.16, rtt_s=0.1)
        shares = [set[int]() for _ in range(4)]
        for number in range(1000):
            for share in rng.sample(shares, 4 if rng.random() < 0.93 else rng.choice((1, 3))):
                share.add(number)
        lab.know(entries)
        for number, share in enumerate(shares):
            lab.open(name_of(number), [entries[at] for at in share], ahead_s=rng.uniform(-10, 10))
        logs = list(lab.logs.values())
        at = lab.run(60.0, partial(all_have, logs, 1000))
        assert are_equal(logs), (seed, [len(log.shelf.index) for log in logs])
        lab.run(at + 60.0)
        assert not any(log.sync.puller.is_syncing for log in logs)


def test_a_short_way_is_not_used_for_more_questions_than_are_answered() -> None:
    entries = make_entries(6000, 6000)
    lab = SyncLab(4, rtt_s=0.002)
    bob = lab.open(BOB, entries)
    gone = set(Random(1).sample(range(6000), 100))
    ada = lab.open(ADA, [each for at, each in enumerate(entries) if at not in gone])
    lab.run(30.0, lambda: len(ada.shelf.index) == 6000)
    assert len(ada.shelf.index) == 6000 and lab.said["what"] + lab.said["ask"] > 100
    assert not bob.drops and not ada.drops


def forged(entries: Sequence[Entry], count: int, mark: bytes) -> list[Entry]:
    """Entries with numbers that others of the publishers have."""
    return [
        make_entry(int((UNIX_S - 3600 - at) * 1e6), each.publisher, each.seq, text=mark)
        for at, each in enumerate(Random(mark).sample(entries, count))
    ]


def test_forged_numbers_hide_nothing() -> None:
    entries = make_entries(5000, 10)
    lab = SyncLab(2, loss=0.02)
    ada = lab.open(ADA, entries + forged(entries, 20, b"one"))
    bob = lab.open(BOB, entries + forged(entries, 7, b"other"))
    lab.run(180.0, lambda: len(ada.shelf.index) == len(bob.shelf.index) == 5027)
    assert are_equal([ada, bob])


def test_what_a_guard_refuses_is_asked_for_less_and_less() -> None:
    entries = make_entries(500, 5)
    lab = SyncLab(3)
    lab.open(BOB, entries)
    ada = lab.open(ADA, entries[:-20])
    ada.may_take = lambda entry: False
    lab.run(600.0)
    copies, asks = lab.copies, lab.said["ask"]
    assert 20 <= copies < 200 and asks < 60
    lab.run(4 * 3600.0)
    assert lab.copies - copies < 6 * 30 and lab.said["ask"] - asks < 60
    assert lab.said["have"] < 4 * 3600 * 0.25, "and they do not go on to tell each other in a hurry"
    ada.may_take = lambda entry: True
    lab.run(12 * 3600.0, lambda: len(ada.shelf.index) == 500)
    assert len(ada.shelf.index) == 500


def test_a_holder_that_falls_silent_amid_an_answer_is_replaced() -> None:
    entries = make_entries(2000, 5)
    lab = SyncLab(4)
    for name in (BOB, EVE):
        lab.open(name, entries)
    lab.run(30.0)
    dead = set[str]()
    copies = 0

    def is_cut(name: str, said: Said) -> bool:
        nonlocal copies
        copies += said.is_copy
        if copies == 100:
            dead.add(name)
        return name in dead

    lab.is_cut = is_cut
    ada = lab.open(ADA, [])
    at = lab.run(90.0, lambda: len(ada.shelf.index) == 2000)
    assert at < 45.0 and len(dead) == 1
    lab.run(at + 10.0)
    one, other = sorted(each.silences for each in ada.sync.having.holders.values())
    assert one == 0 < other


def test_three_silent_holders_are_trouble_and_asked_again_later() -> None:
    entries = make_entries(50, 5)
    lab = SyncLab(5)
    lab.open(BOB, entries)
    lab.is_cut = lambda name, said: name == BOB and said.where != "sync"
    ada = lab.open(ADA, [])
    lab.run(25.0)
    assert ada.sync.having.holders[BOB].silences == 3 and ada.sync.having.are_silent
    lab.is_cut = lambda name, said: False
    lab.run(60.0, lambda: len(ada.shelf.index) == 50)
    lab.run(lab.now + 5.0)
    assert len(ada.shelf.index) == 50 and not ada.sync.having.are_silent


def test_what_is_below_a_floor_does_not_come_back_and_the_rest_does() -> None:
    entries = make_entries(2000, 5)
    lab = SyncLab(6)
    floor = entries[1000].id
    lab.open(BOB, entries)
    ada = lab.open(ADA, entries[1000:1100] + entries[1150:], floor=floor)
    lab.run(90.0)
    assert sorted(ada.shelf.index.ids()) == [each.id for each in entries[1000:]]
    asked = lab.said["what"]
    lab.run(90.0 + 600.0)
    assert 0 < lab.said["what"] - asked <= 11, "once a minute"


def test_holders_with_other_floors_are_equal_and_stay_nearly_silent() -> None:
    entries = make_entries(300, 5)
    lab = SyncLab(6, rtt_s=0.04)
    for number in range(12):
        lab.open(name_of(number), entries[number:], floor=entries[number].id)
    lab.run(100.0)
    lab.said.clear()
    lab.run(400.0)
    assert lab.said["have"] / 300 < 0.4 and lab.copies == 0
    assert 0 < lab.said["what"] + lab.said["ask"] <= 12 * 6, "once a minute"


def test_nobody_speaks_for_a_holder_that_has_signed() -> None:
    lab = SyncLab()
    entries = make_entries(100, 5)
    log, other = (lab.open(name_of(number), entries) for number in range(2))
    lab.run(10.0)
    having = log.sync.having
    true = having.holders[other.name].have
    having.hear(true, lab.now, "key")
    ahead = true._replace(hi=int((log.unix_s() + 55) * 1e6), blocks=true.blocks[:1])
    for sender in None, "mallory":
        having.hear(ahead, lab.now, sender)
    holder = having.holders[other.name]
    assert (holder.sender, holder.have) == ("key", true) and log.drops[Drop.UNSIGNED] == 2
    assert having.confirming(entries[-1].id) == [holder]


def test_what_is_wanted_is_asked_for_alone() -> None:
    entries = make_entries(2000, 2000)
    lab = SyncLab(7)
    lab.open(BOB, entries)
    ada = lab.open(ADA, [])
    ada.sync.having.holders.clear()
    ada.may_take = lambda entry: entry is entries[77]
    lab.run(1.0)
    lab.copies = 0
    ada.sync.puller.want(entries[77].id, entries[78].id, lab.now)
    lab.run(5.0, lambda: len(ada.shelf.index) == 1)
    assert len(ada.shelf.index) == 1


def test_who_is_asked_to_keep_answers_once_it_is_on_disk() -> None:
    entries = [*make_entries(19, 2), make_entry(int((UNIX_S - 1) * 1e6), ADA, 1)]
    lab = SyncLab(8)
    bob, eve = lab.open(BOB, entries), lab.open(EVE, entries[:-1])
    ada = lab.open(ADA, entries)
    lab.run(1.0)
    bob.shelf.kept = set()
    keep = Keep("abcdefgh", ADA, [entries[-1].id])
    ada.say("sync", keep, lab.now)
    lab.run(3.0)
    assert [said.payload[:5] for said in eve.words if said.where == ADA and said.payload[:4] == b"kept"]
    assert entries[-1].id in eve.shelf.index
    assert not any(said.payload[:4] == b"kept" for said in bob.words)
    bob.shelf.kept = {entries[-1].id}
    bob.sync.answers.committed(lab.now)
    lab.run(4.0)
    assert [said.payload for said in bob.words if said.payload[:4] == b"kept"] == [
        bytes(Kept("abcdefgh", frozenset([short_of(entries[-1].id, "abcdefgh")])))
    ]


@pytest.mark.parametrize("holders", [1, 5, 20, 100])
def test_holders_are_nearly_silent_and_few_answer_a_newcomer(holders: int) -> None:
    entries = make_entries(20, 2)
    lab = SyncLab(9, rtt_s=0.04)
    for number in range(holders):
        lab.open(name_of(number), entries)
    lab.run(100.0)
    lab.said.clear()
    lab.run(300.0)
    assert lab.said["have"] / 200 < 0.4 and set(lab.said) == {"have"}
    said = []
    for number in range(5):
        lab.run(lab.now + 21.0)
        lab.said.clear()
        newcomer = lab.open(name_of(1000 + number), entries)
        lab.run(lab.now + 1.0)
        said.append(lab.said["have"])
        del lab.logs[newcomer.name]
    assert min(said) >= 2 and sum(said) / len(said) <= 1 + 7.0
