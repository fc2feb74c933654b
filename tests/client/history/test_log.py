"""client/history/log.py with its guard, store and sync, over real client and server cores in virtual time."""

from pathlib import Path
from typing import Any

import pytest

from kcast.client.errors import Backlog
from kcast.client.events import Drop, FloorRose, LogTrouble
from kcast.client.history.arrivals import WAITING_MAX
from kcast.client.history.entries import NotKept, Row, StoreError
from kcast.client.history.ids import CLOCK_MIN, ID_BYTES, PARENTS_MAX, Stamp, attributes_of, from_text, id_of
from kcast.client.history.index import LOWEST
from kcast.client.history.log import MAILBOX_BYTES, PENDING_MAX, Keeping
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.lines import room
from kcast.pubsub.wire import encode_topic
from tests.support.log_lab import LogLab, Outcome


def test_an_entry_is_on_disk_and_then_with_all_and_who_comes_late_gets_it_though_its_author_is_gone() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    first = ann.append(b"hi")
    lab.run(2)
    second = bob.append(b"hello")
    lab.run(2)
    assert first.result is not None and second.result is not None
    assert second.result.parents == (first.result.id,)
    for each in ann, bob:
        assert [entry.payload for entry in each.entries()] == [b"hi", b"hello"]
    lab.leave(ann)
    eve = lab.join()
    lab.run(20)
    assert [entry.payload for entry in eve.entries()] == [b"hi", b"hello"]
    assert eve.log.status().digest == bob.log.status().digest


def test_an_entry_is_kept_by_as_many_others_as_wanted_or_it_is_said_how_many_there_are() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    kept = ann.append(b"hi", confirm=1)
    lab.run(3)
    assert kept.result is not None and bob.entries()[0].id == kept.result.id
    alone = ann.append(b"hi", confirm=2)
    lab.run(6)
    assert isinstance(alone.error, NotKept) and alone.error.kept == 1
    bob.store.file.is_durable = False  # as where no file is given
    forgetful = ann.append(b"hi", confirm=1)
    lab.run(6)
    assert len(bob.entries()) == 3 and isinstance(forgetful.error, NotKept)


def test_many_entries_at_once_are_confirmed_in_time() -> None:
    """Though a holder says no more than eight lines a second to one who asks: a line speaks of several."""
    lab = LogLab()
    ann, _ = lab.join(), lab.join()
    lab.run(3)
    many = [ann.append(b"hi", confirm=1) for _ in range(300)]
    lab.run(6)
    assert all(each.result is not None for each in many)


def test_an_entry_of_912_bytes_has_four_parents_and_one_of_1043_has_none() -> None:
    """On a topic of 12 bytes, whatever its number is."""
    stamp = Stamp(CLOCK_MIN, [bytes([each]) * ID_BYTES for each in range(PARENTS_MAX)])
    fits = room(encode_topic(b"weather/oslo")).text_bytes - MAILBOX_BYTES
    for some, bytes_max in (stamp, 912), (stamp._replace(parents=[]), 1043):
        taken = sum(len(f";{name}={value}") for name, value in attributes_of(some).items())
        assert fits - taken == bytes_max


def test_an_entry_that_leaves_no_room_for_its_parents_has_none() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    ann.append(b"hi")
    lab.run(2)
    taken = len(f";c={attributes_of(Stamp(CLOCK_MIN, []))['c']}")
    full = ann.append(b"x" * (room(encode_topic(b"chat")).text_bytes - MAILBOX_BYTES - taken))
    lab.run(2)
    assert full.result.parents == () and len(ann.log.status().heads) == 2


def test_what_is_below_the_floor_or_more_than_the_disk_takes_is_counted_and_not_taken() -> None:
    lab = LogLab()
    ann = lab.join(keeping=Keeping(entries_max=2))
    lab.run(3)
    for _ in range(4):
        ann.append(b"hi")
        lab.run(2)
    old, new = (Row(entry_id, "AUTHOR", 1, b"%@AUTHOR.1 hi") for entry_id in (LOWEST, b"\xfe" * ID_BYTES))
    ann.log.came(old, lab.now)
    assert ann.drops == {Drop.TOO_OLD: 1} and not ann.log.is_known(LOWEST)
    for _ in range(PENDING_MAX):
        ann.append(b"hi")
    with pytest.raises(Backlog, match="wait for the disk"):
        ann.append(b"hi")
    ann.log.came(new, lab.now)
    assert ann.drops[Drop.SLOW_CONSUMER] == 1 and not ann.log.is_known(new.entry_id)


def test_who_comes_a_moment_later_gets_what_is_younger_than_what_holders_speak_of() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    ann.append(b"hi")
    lab.run(0.5)
    eve = lab.join()
    outcome = eve.synced()
    lab.run(2)
    assert [entry.payload for entry in eve.entries()] == [b"hi"]
    assert outcome.result == (1, 1, True)


def test_who_comes_late_waits_for_no_parents_but_those_that_somebody_has() -> None:
    """A floor has risen at one holder; the other one, which is asked later, has all."""
    for is_alone in (True, False):
        lab = LogLab()
        bob, ann = lab.join(), lab.join(keeping=Keeping(entries_max=4))
        lab.run(3)
        for number in range(6):
            ann.append(b"%d" % number)
            lab.run(0.5)
        lab.run(3)
        if is_alone:
            lab.leave(bob)
        eve = lab.join()
        outcome = eve.synced()
        lab.run(1.5)
        assert outcome.result.complete and len(ann.log.index) == 4
        assert [entry.payload for entry in eve.entries()] == [b"%d" % at for at in range(2 * is_alone, 6)]
        assert not any(entry.orphan for entry in eve.entries())


def test_who_was_away_asks_at_once_for_all_since_then() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    for number in range(40):
        ann.append(b"%d" % number)
        if number == 5:
            away = lab.clients.popitem()
            assert away[1] is bob.core
        lab.run(0.1)  # of the last 5 s nobody says what there is
    lab.clients.update([away])
    ann.append(b"new")
    lab.run(1)
    assert len(bob.entries()) == 41


def test_who_hears_another_newcomer_first_goes_on_to_who_holds_something() -> None:
    for seed in range(24):
        lab = LogLab(seed)
        ann = lab.join()
        lab.run(3)
        ann.append(b"hi")
        lab.run((1, 10)[seed % 2])
        outcomes = list[Outcome]()
        for _ in range(3):
            outcomes.append(lab.join().synced())
            lab.run(seed % 4 / 4)
        lab.run(3)
        assert [outcome.result[1:] for outcome in outcomes] == [(1, True)] * 3
        ben = lab.join(b"other").synced(), lab.join(b"other").synced()
        lab.run(3)
        assert [outcome.result for outcome in ben] == [(1, 0, True)] * 2, "where nobody has anything"


def test_what_is_over_a_limit_comes_once_and_not_with_each_sync() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    for number in range(100):
        ann.append(b"%d" % number)
    lab.run(5)
    eve = lab.join(limit=FixedWindow(50, 1e6))
    lab.run(120)
    assert len(eve.entries()) == 50 <= eve.drops[Drop.LIMITED] < 60


def test_a_log_that_is_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    lab = LogLab()
    ann = lab.join(path=tmp_path / "ann.db")
    lab.run(3)
    outcomes = [ann.append(b"%d" % number, timeout_s=1e6) for number in range(5)]
    while not all(outcome.done() for outcome in outcomes):
        lab.run(0.1)
    before = ann.log.status()
    lab.leave(ann)
    again = lab.join(path=tmp_path / "ann.db")
    assert again.log.status()._replace(holders=0) == before._replace(holders=0)
    assert again.log.status().heads == [outcomes[-1].result.id]
    lab.run(3)
    later = again.append(b"later", timeout_s=1e6)
    while not later.done():
        lab.run(0.1)
    assert later.result.parents == (outcomes[-1].result.id,)


def test_what_waits_for_its_parents_is_not_asked_for_again_unless_it_had_to_leave() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    clock = int(ann.log.unix_s() * 1e6)
    parent = id_of(clock - 10_000, b"chat", b"")
    for number in range(WAITING_MAX):
        ann.log.came(
            Row(id_of(clock - number, b"chat", b""), "p", 5000 - number, b"m", parents=(parent,)), lab.now
        )
    first = 5001 - WAITING_MAX
    assert next(ann.log.runs.slices(LOWEST, 500)).text == f"p:{first}-5000"
    ann.log.came(Row(id_of(clock - 9_999, b"chat", b""), "p", 1, b"m", parents=(parent,)), lab.now)
    assert next(ann.log.runs.slices(LOWEST, 500)).text == f"p:1,{first}-4999", "the largest id has left"


def test_entries_leave_by_their_age_and_the_floor_rises_in_steps() -> None:
    lab = LogLab()
    ann = lab.join(keeping=Keeping(age_s=1000))
    lab.run(3)
    ann.append(b"hi")
    lab.run(995)
    assert len(ann.entries()) == 1
    lab.run(20)
    floors = [event.floor for event in ann.told if isinstance(event, FloorRose)]
    assert not ann.entries() and 100 <= len(floors) <= 103, "and not each second, for it is written"


def test_a_store_that_cannot_be_read_is_a_trouble_of_both_told_once_and_when_it_is_over() -> None:
    lab = LogLab()
    ann = lab.join()
    lab.run(3)
    ann.append(b"hi")
    lab.run(10)

    def fail(*args: object) -> Any:
        raise StoreError("a.db: it is damaged")

    with pytest.MonkeyPatch.context() as patch:
        for reads in "rows", "lacking":
            patch.setattr(ann.store, reads, fail)
        bob = lab.join()
        lab.run(300)
        for each in ann, bob:
            (trouble,) = (event for event in each.told if isinstance(event, LogTrouble))
            assert trouble.text is not None
            each.told.clear()
    lab.run(150)
    assert len(bob.entries()) == 1
    for each in ann, bob:
        assert each.told == [LogTrouble(b"chat", None)]


def test_what_is_pinned_stays_below_the_floor_and_comes_to_who_pins_it_too() -> None:
    lab = LogLab()
    ann = lab.join(keeping=Keeping(entries_max=4))
    lab.run(3)
    made = [ann.append(b"%d" % number) for number in range(10)]
    lab.run(0.5)
    first = from_text(made[0].result.id)
    assert first is not None
    bob, eve = (lab.join(keeping=Keeping(entries_max=4)) for _ in "12")
    ann.log.pin([first])
    lab.run(60)
    assert first in ann.log.index and first < ann.log.floor
    copies = eve.drops.copy()
    bob.log.pin([first])
    lab.run(200)
    payloads = [sorted(entry.payload for entry in each.entries()) for each in (ann, bob, eve)]
    newest = [b"6", b"7", b"8", b"9"]
    assert payloads == [[b"0", *newest], [b"0", *newest], newest] and not bob.log.pins
    assert eve.drops == copies
    assert len(bob.log.status().heads) == 1, "what is pinned is no parent of new ones"


def test_what_one_adds_is_above_ones_floor_also_where_the_clock_went_back() -> None:
    lab = LogLab()
    ann = lab.join(keeping=Keeping(age_s=600))
    ann.core.clock_offset_s += 3600
    lab.run(3)
    ann.core.clock_offset_s -= 3600
    outcome = ann.append(b"hi")
    lab.run(3)
    assert ann.entries() == [outcome.result] and ann.log.index.first is not None


def test_a_copy_is_under_way_until_it_is_held_or_cannot_be_and_awaited_once() -> None:
    lab = LogLab()
    ann, bob = lab.join(), lab.join()
    lab.run(3)
    assert ann.log._sync is not None
    holder = ann.log._sync.having.holders[bob.log.name]
    clock = int(ann.log.unix_s() * 1e6)
    parent = id_of(clock - 10_000, b"chat", b"")
    rows = [
        Row(id_of(clock - number, b"chat", b""), "p", 5 - number, b"m", parents=(parent,)[number:])
        for number in range(2)
    ]
    for row in rows:
        ann.log.came(row, lab.now, holder)
        assert ann.log.asked_for(row, lab.now) is None and not ann.drops
    assert ann.log.copies_waiting == 2
    lab.run(1)
    assert ann.log.copies_waiting == 1 == ann.log.got
    ann.log._rise(rows[0].entry_id + b"~")
    assert ann.log.copies_waiting == 0
