"""client/history/puller.py and having.py: what is asked of holders that behave, and of others."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from kcast.client.events import Drop
from kcast.client.history.having import bounds_back, clock_bound
from kcast.client.history.ids import clock_of, id_of
from kcast.client.history.index import HIGHEST, LOWEST, Block, after
from kcast.client.history.puller import LINES_MAX
from kcast.client.history.runs import PLACE_CHARS
from kcast.client.history.words import Ask, Have, Keep, Parts, Sent, What, parse_said, parse_word
from tests.support.sync_lab import UNIX_S, Entry, LabLog, SyncLab, make_entries, make_entry, name_of

ADA, EVE, LIAR = "AAAAAAAAAAA", "EEEEEEEEEEE", "LLLLLLLLLLL"
WORD = "wordword"
ENTRIES = make_entries(2000, 4)
HI = int((UNIX_S - 5) * 1e6)


class Alone:
    """A log that hears what the test says."""

    def __init__(self, entries: Sequence[Entry] = (), floor: bytes = LOWEST) -> None:
        self.lab = SyncLab(1)
        self.lab.is_cut = lambda name, said: True
        self.log = self.lab.open(ADA, entries, floor=floor)
        self.lab.know(ENTRIES)
        self._seen = 0
        self.lab.run(10.0)
        self.new()

    def new(self) -> list[Any]:
        """What it has said since the last call."""
        words = self.log.words[self._seen :]
        self._seen = len(self.log.words)
        return [(parse_said if said.where == "sync" else parse_word)(said.payload) for said in words]

    def asked(self) -> list[Any]:
        return [word for word in self.new() if isinstance(word, Ask | What)]

    def have(self, held: LabLog, mine: str = LIAR) -> Have:
        """Says what another has."""
        lab = SyncLab(2)
        lab.now = self.lab.now
        log = lab.open(mine, held.shelf.entries.values(), floor=held.shelf.floor)
        log.sync.handle_timeout(lab.now)
        (said,) = (parse_said(said.payload) for said in log.words)
        assert isinstance(said, Have)
        self.log.sync.hear_said(said, self.lab.now)
        return said

    def answer(self, ask: Ask | What, lines: Sequence[Entry], next_: bytes, count: int | None = None) -> None:
        """Sends copies, and says so."""
        for each in lines:
            self.copy(each)
        said = Sent(ask.q, next_, len(lines) if count is None else count, WORD)
        self.log.sync.hear_word(said, self.lab.now)

    def copy(self, entry: Entry) -> bool:
        holder = self.log.sync.puller.copy_came(entry.id, entry.publisher, entry.seq, self.lab.now)
        if holder and self.log.shelf.add(entry):
            self.log.sync.puller.took(holder, self.lab.now)
        return holder is not None


def full() -> LabLog:
    return SyncLab(3).open(LIAR, ENTRIES)


def test_questions_grow_while_answers_come_whole_and_halve_where_they_do_not() -> None:
    alone = Alone()
    alone.have(full())
    at, asked = 0, []
    while at < 1400:
        (ask,) = alone.asked()
        assert isinstance(ask, Ask) and ask.lo == (ENTRIES[at].id if at else LOWEST) and ask.hi == HIGHEST
        asked.append(ask.lines_max)
        alone.answer(ask, ENTRIES[at : at + ask.lines_max], ENTRIES[at + ask.lines_max].id)
        at += ask.lines_max
        alone.lab.run(alone.lab.now + 0.05)
    assert asked == [64, 128, 256, 512, 512]
    (ask,) = alone.asked()
    alone.answer(ask, ENTRIES[at : at + 200], ENTRIES[at + 400].id, count=400)
    asked_at_once = len(alone.log.words)
    alone.lab.run(alone.lab.now + 0.3)
    on, again = alone.asked()
    assert asked_at_once < len(alone.log.words), "others may come by another server"
    assert (again.lo, again.hi) == (ask.lo, ENTRIES[at + 400].id), "again where fewer came"
    assert (on.lo, on.hi) == (ENTRIES[at + 400].id, HIGHEST)
    assert [each.lines_max for each in (again, on)] == [200, 512]
    assert again.runs != ask.runs, "with what has come meanwhile"


def test_sixteen_questions_and_1024_lines_are_under_way_lowest_first() -> None:
    holes = make_entries(9000, 4, seed=5)
    alone = Alone([each for at, each in enumerate(holes) if at % 3])
    alone.have(SyncLab(3).open(LIAR, holes))
    (first,) = alone.asked()
    assert first.word == "-", "until it has a word, one at a time"
    alone.answer(first, [], ENTRIES[0].id)
    alone.lab.run(alone.lab.now + 0.45)
    asked = alone.asked()
    assert len(asked) == 16 and {each.lines_max for each in asked} == {64}
    assert [each.lo for each in asked] == sorted(each.lo for each in asked)
    cuts = sorted((each.start, each.stop) for each in asked if isinstance(each, Ask))
    assert all(one[1] <= other[0] for one, other in pairwise(cuts))
    sync = alone.log.sync.puller._sync
    assert sync is not None
    sync.lines_max = 512
    for ask in asked[:12]:
        alone.answer(ask, [], HIGHEST)
    alone.lab.run(alone.lab.now + 0.2)
    more = alone.asked()
    assert [each.lines_max for each in more][:1] == [512]
    assert alone.log.sync.puller._lines_free(sync) >= 0 and len(more) > 1, "also where they are asked again"
    sizes = [len(said.payload) for said in alone.log.words]
    assert max(sizes) <= alone.log.room_bytes < max(sizes) + 2 * PLACE_CHARS


def test_copies_are_under_way_until_they_are_held_but_what_is_known_to_be_missing_is_asked_for() -> None:
    alone = Alone()
    alone.have(full())
    (ask,) = alone.asked()
    alone.log.shelf.copies_waiting = LINES_MAX  # for their parents, or the disk
    alone.answer(ask, ENTRIES[1:64], ENTRIES[64].id, count=64)
    alone.lab.run(alone.lab.now + 0.3)
    (again,) = alone.asked()
    assert (again.lo, again.hi, again.lines_max) == (ask.lo, ENTRIES[64].id, 1)
    alone.answer(again, ENTRIES[:1], again.hi)
    alone.log.sync.puller.want(ENTRIES[100].id, ENTRIES[101].id, alone.lab.now)
    alone.lab.run(alone.lab.now + 2.0)
    assert not alone.asked(), "nor what is to come with the others"
    alone.log.sync.puller.want(ENTRIES[5].id, ENTRIES[6].id, alone.lab.now)
    alone.lab.run(alone.lab.now + 0.1)
    (wanted,) = alone.asked()
    alone.answer(wanted, [], wanted.hi)
    alone.log.shelf.copies_waiting = 0
    alone.log.sync.handle_timeout(alone.lab.now)
    (on,) = alone.asked()
    assert on.lo == ENTRIES[64].id


def test_answers_that_cannot_be_are_dropped_and_the_question_goes_on() -> None:
    alone = Alone(ENTRIES[:100])
    alone.have(full())
    (ask,) = alone.asked()
    drops = alone.log.drops
    block = Block(1, bytes(12))
    for wrong in (
        Sent(ask.q, ask.lo, 0, WORD),
        Sent(ask.q, LOWEST, 0, WORD),
        Sent(ask.q, HIGHEST, ask.lines_max + 1, WORD),
    ):
        alone.log.sync.hear_word(wrong, alone.lab.now)
    assert drops == {Drop.MALFORMED_MESSAGE: 3}
    for other in (Sent("--------", HIGHEST, 0, WORD), Parts(ask.q, [(HIGHEST, block)])):
        alone.log.sync.hear_word(other, alone.lab.now)
    assert drops[Drop.UNAWAITED] == 2 and not alone.asked()
    alone.lab.run(alone.lab.now + 1.5)
    (again,) = alone.asked()
    assert (again.lo, again.hi, again.q) == (ask.lo, ask.hi, ask.q)
    alone.answer(again, ENTRIES[100:110], HIGHEST)
    assert drops[Drop.UNAWAITED] == 2 and [each.q for each in alone.asked()] != [ask.q]


def test_parts_beyond_a_question_are_dropped() -> None:
    alone = Alone(ENTRIES)
    alone.log.sync.puller.want(ENTRIES[5].id, ENTRIES[1500].id, alone.lab.now)
    alone.have(full())
    (what,) = alone.asked()
    assert isinstance(what, What)
    one, other = (ENTRIES[700].id, Block(9, bytes(12))), (ENTRIES[900].id, Block(200, bytes(12)))
    for wrong in ([(HIGHEST, one[1])], [(ENTRIES[5].id, one[1]), one], [one, (ENTRIES[1501].id, one[1])]):
        alone.log.sync.hear_word(Parts(what.q, wrong), alone.lab.now)
    assert alone.log.drops[Drop.MALFORMED_MESSAGE] == 3
    alone.log.sync.hear_word(Parts(what.q, [one, other]), alone.lab.now)
    assert [alone.asked()[0].lo] == [ENTRIES[5].id], "one at a time, lowest first"


def test_a_copy_that_is_outside_every_open_question_is_not_awaited() -> None:
    alone = Alone(ENTRIES[:1000])
    assert not alone.copy(ENTRIES[1500]), "nothing was asked"
    alone.have(SyncLab(3).open(LIAR, ENTRIES[:1500]))
    (ask,) = alone.asked()
    assert not alone.copy(ENTRIES[3]) and ENTRIES[3].id < ask.lo
    assert alone.copy(ENTRIES[1200]) and not alone.copy(ENTRIES[1200])
    came = [alone.copy(each) for each in ENTRIES[1201:1400]]
    assert sum(came) == ask.lines_max - 1, "no more than was asked for"
    alone.log.shelf.add(ENTRIES[1000])
    alone.answer(ask, [], ENTRIES[1300].id, count=64)
    (ask,) = alone.asked()
    assert ask.lo == ENTRIES[1300].id and not alone.copy(ENTRIES[1270])


def test_a_copy_counts_for_no_answer_that_does_not_reach_it() -> None:
    alone = Alone()
    alone.have(full())
    (ask,) = alone.asked()
    assert alone.copy(ENTRIES[500]), "of another answer"
    alone.answer(ask, ENTRIES[1:64], ENTRIES[64].id, count=64)  # one is lost
    alone.lab.run(alone.lab.now + 1.0)
    assert any(ask.lo <= ENTRIES[0].id < ask.hi for ask in alone.asked()), "it is asked for again"


def lie(alone: Alone, seconds: float, answer: Callable[[Any], None], every_s: float = 1.0) -> Counter[str]:
    """Says each while that something differs, and answers what is asked; returns what was asked."""
    asked = Counter[str]()
    number = 0
    until = alone.lab.now + seconds
    while alone.lab.now < until:
        number += 1
        hi = int((UNIX_S + alone.lab.now - 5) * 1e6)
        have = Have(LIAR, hi, LOWEST, [Block(10**6, number.to_bytes(12, "big"))] * 3)
        alone.log.sync.hear_said(have, alone.lab.now)
        end = alone.lab.now + every_s
        while alone.lab.now < end:
            for word in alone.new():
                asked[type(word).__name__] += 1
                if isinstance(word, Ask | What):
                    answer(word)
            alone.lab.run(min(end, alone.lab.now + 0.05))
    return asked


@pytest.mark.parametrize("lie_of", ["nothing is missing", "next is a step further", "other parts"])
def test_who_always_differs_is_asked_less_and_less(lie_of: str) -> None:
    alone = Alone(ENTRIES)

    def answer(word: Any) -> None:
        here = word.lo if lie_of == "next is a step further" else HIGHEST[:-1]
        step = min(word.hi, after(here)) if lie_of == "next is a step further" else word.hi
        if isinstance(word, Ask):
            said: Any = Sent(word.q, step, 0, WORD)
        else:
            middle = clock_bound((clock_of(word.lo) + clock_of(word.hi)) // 2)
            bounds = sorted({word.hi, middle if word.lo < middle < word.hi else word.hi})
            said = Parts(word.q, [(bound, Block(10**6, bytes(12))) for bound in bounds])
        alone.log.sync.hear_word(said, alone.lab.now)

    first = lie(alone, 120.0, answer)
    assert 3 <= first["Ask"] + first["What"] <= 3 * 300
    later = lie(alone, 3600.0, answer, 5.0)
    assert later["Ask"] + later["What"] <= 3 * 300, "after 10 min, and 20, and 40"
    assert later["Have"] <= 3600 / 5, "it does not hurry to tell"


def test_what_others_say_of_impossible_times_is_ignored() -> None:
    alone = Alone(ENTRIES)
    block, hi = Block(10**6, bytes(12)), int((UNIX_S + 5) * 1e6)
    for wrong in (
        Have(LIAR, hi, clock_bound(hi), [block]),
        Have(LIAR, hi, clock_bound(hi + 10**9), [block]),  # a floor in the future
        Have(LIAR, hi, HIGHEST, [block]),
        Have(LIAR, hi, clock_bound(hi - 60_000_000), [block] * 2),  # above another bound
        Have(LIAR, hi + 71_000_000, LOWEST, [block]),
    ):
        alone.log.sync.hear_said(wrong, alone.lab.now)
    alone.lab.run(alone.lab.now + 100.0)
    assert alone.log.drops == {Drop.MALFORMED_MESSAGE: 5} and not alone.asked()
    assert not alone.log.sync.having.holders
    alone.log.sync.hear_said(Have(ADA, hi, LOWEST, [block]), alone.lab.now)
    assert not alone.log.sync.having.holders, "that is oneself"


def test_blocks_reach_back_2_16_and_128_minutes_and_the_last_to_the_floor() -> None:
    floor = clock_bound(HI - 7_200_000_000)
    bounds = bounds_back(HI, floor, 3)
    assert bounds == [clock_bound(HI - minutes * 60_000_000) for minutes in (0, 2, 16, 120)]
    assert bounds_back(HI, floor, 4) is None, "128 minutes are below it"
    alone = Alone(ENTRIES)
    have = alone.have(full())
    assert len(have.blocks) == 6 and sum(block.entries for block in have.blocks) == 2000
    assert alone.log.sync.having.confirming(ENTRIES[-1].id)[0].name == LIAR
    assert not alone.asked()
    some = Alone(ENTRIES[:-3])
    some.have(full())
    (ask,) = some.asked()
    confirmed = [bool(some.log.sync.having.confirming(each.id)) for each in ENTRIES]
    assert 0 < confirmed.index(False) <= 1997 and not any(confirmed[confirmed.index(False) :])
    assert ask.lo == some.log.sync.having.holders[LIAR].equal[1], "from the first block that differs"


def test_many_holders_are_remembered_and_no_more() -> None:
    alone = Alone(ENTRIES)
    block = Block(10**6, bytes(12))
    for number in range(3000):
        alone.log.sync.hear_said(Have(name_of(number), HI, LOWEST, [block]), alone.lab.now)
    having = alone.log.sync.having
    assert len(having.holders) == 1024 and set(having.fresh) <= set(having.holders)
    words = alone.new()
    alone.lab.run(alone.lab.now + 60.0)
    words += alone.new()
    asked = sum(isinstance(word, Ask | What) for word in words)
    assert asked <= 3 * (60 / 4 + 1), "one after the other, each three times in 4 s"
    assert sum(isinstance(word, Have) for word in words) < 60
    alone.lab.run(alone.lab.now + 700.0)
    assert not having.holders and not having.fresh


def test_fifty_are_compared_in_a_second_and_the_others_later() -> None:
    alone = Alone(ENTRIES)
    said, having = alone.have(full()), alone.log.sync.having
    for number in range(99):
        having.hear(said._replace(mine=name_of(number)), alone.lab.now)
    assert 45 < len(having.fresh) < 55
    alone.log.sync.handle_timeout(alone.lab.now)
    alone.lab.run(alone.lab.now + 10.0)
    assert not having.fresh and not alone.asked()


def test_nothing_is_said_while_entries_come() -> None:
    alone = Alone(ENTRIES)
    alone.have(full())
    for _ in range(60):
        alone.log.sync.puller.took(alone.log.sync.having.holders[LIAR], alone.lab.now)
        alone.lab.run(alone.lab.now + 1.0)
    assert not alone.new()
    alone.lab.run(alone.lab.now + 60.0)
    assert alone.new()


def test_who_has_fewer_is_asked_only_if_it_still_differs_after_a_while() -> None:
    alone = Alone(ENTRIES)
    alone.have(SyncLab(3).open(LIAR, ENTRIES[:9]))
    alone.lab.run(alone.lab.now + 9.0)
    assert not alone.asked()
    alone.lab.run(alone.lab.now + 2.0)
    assert alone.asked()


def test_who_has_answered_is_asked_before_those_who_were_only_heard() -> None:
    alone = Alone(ENTRIES[:1000])
    alone.have(SyncLab(3).open(LIAR, ENTRIES[:1010]))
    (ask,) = alone.asked()
    alone.answer(ask, ENTRIES[1000:1010], HIGHEST)
    alone.lab.run(alone.lab.now + 60.0)
    for number in range(40):
        block, hi = Block(10**6, bytes(12)), int((UNIX_S + alone.lab.now - 5) * 1e6)
        alone.log.sync.hear_said(Have(name_of(number), hi, LOWEST, [block]), alone.lab.now)
    alone.have(full())
    alone.log.words.clear()
    alone.lab.run(alone.lab.now + 8.0)
    assert LIAR in {said.where for said in alone.log.words}, "within one silence"


def test_who_was_heard_just_now_is_asked_before_those_who_may_be_gone() -> None:
    alone, theirs = Alone(ENTRIES[:-1]), SyncLab(3).open(LIAR, ENTRIES[:-1])
    for number in range(9):
        alone.have(theirs, name_of(number))
    alone.lab.run(alone.lab.now + 50.0)
    alone.have(theirs)
    alone.log.sync.puller.want(ENTRIES[-1].id, HIGHEST, alone.lab.now)
    alone.log.sync.handle_timeout(alone.lab.now)
    assert alone.log.words[-1].where == LIAR


def test_who_says_again_and_again_that_lines_were_sent_which_do_not_come_is_silent() -> None:
    alone = Alone(ENTRIES[:1000])
    alone.have(full())
    holder, until = alone.log.sync.having.holders[LIAR], alone.lab.now + 20.0
    while not holder.silences and alone.lab.now < until:
        for ask in alone.asked():
            alone.answer(ask, [], ask.hi, count=8)
        alone.lab.run(alone.lab.now + 0.1)
    assert holder.silences == 1


def test_who_gives_a_little_with_each_answer_keeps_nobody_from_asking_others() -> None:
    alone, given = Alone(), iter(ENTRIES)
    alone.have(full())
    while alone.lab.now < 80.0:
        for ask in alone.asked():
            alone.answer(ask, [each := next(given)], after(each.id))
        alone.have(full(), name_of(1))
        alone.lab.run(alone.lab.now + 0.5)
    assert {LIAR, name_of(1)} <= {said.where for said in alone.log.words}


def test_who_is_gone_is_not_asked_again_until_heard() -> None:
    alone = Alone(ENTRIES[:1000])
    alone.have(full())
    alone.lab.run(alone.lab.now + 300.0)
    assert len(alone.asked()) == 3 * 3
    alone.have(full())
    alone.lab.run(alone.lab.now + 300.0)
    assert len(alone.asked()) == 3


def test_pinned_entries_are_asked_for_by_who_lacks_them_once_of_each_holder_and_by_nobody_else() -> None:
    floor, pinned = ENTRIES[1000].id, ENTRIES[7].id
    bob = Alone([ENTRIES[7], *ENTRIES[1000:]], floor=floor)
    bob.log.sync.having._say(bob.lab.now)
    (said,) = (word for word in bob.new() if isinstance(word, Have))
    assert said.pinned is not None and said.pinned.entries == 1
    alone = Alone(ENTRIES[1000:], floor=floor)

    def asked(have: Have) -> list[Any]:
        alone.log.sync.hear_said(have._replace(mine=LIAR), alone.lab.now)
        alone.lab.run(alone.lab.now + 0.1)
        return alone.asked()

    assert not asked(said), "it has pinned nothing"
    alone.log.shelf.pins = {pinned, ENTRIES[8].id}
    assert not asked(said._replace(pinned=None)), "who has the same floor has none of them"
    (ask,) = asked(said)
    assert isinstance(ask, Ask) and (ask.lo, ask.hi) == (pinned, after(pinned))
    alone.answer(ask, [ENTRIES[7]], ask.hi)
    alone.log.shelf.pins.remove(pinned)
    for _ in range(10):
        for ask in [*alone.asked(), *asked(said)]:
            assert ask.lo == ENTRIES[8].id
            alone.answer(ask, [], ask.hi)
    alone.lab.run(alone.lab.now + 100.0)
    assert not asked(said)
    assert asked(said._replace(pinned=Block(2, bytes(12)))), "it has another one now"


def test_the_first_sync_brings_what_is_younger_than_what_holders_speak_of() -> None:
    lab = SyncLab(4)
    young = make_entry(int((UNIX_S + 28) * 1e6), LIAR, 1)
    lab.open(LIAR, [*ENTRIES, young])
    lab.run(30.0)
    ada = lab.open(ADA, ENTRIES)
    lab.run(31.0)
    assert young.id in ada.shelf.index


def test_the_first_sync_brings_all_from_our_floor_on() -> None:
    """Also of the block that reaches below it, which cannot be compared."""
    lab = SyncLab(4)
    lab.open(LIAR, ENTRIES)
    lab.run(30.0)
    ada = lab.open(ADA, [], floor=ENTRIES[1000].id)
    lab.run(31.0)
    asked = [parse_word(said.payload) for said in ada.words if said.where != "sync"]
    assert isinstance(asked[0], Ask) and asked[0].lo == ENTRIES[1000].id


def test_who_speaks_of_times_ahead_is_looked_at_once_these_have_come() -> None:
    alone = Alone(ENTRIES)
    asked = []
    for _ in range(14):
        hi = int((UNIX_S + alone.lab.now + 8) * 1e6)
        alone.log.sync.hear_said(Have(LIAR, hi, LOWEST, [Block(10**6, bytes(12))]), alone.lab.now)
        alone.lab.run(alone.lab.now + 1.0)
        asked.append(len(alone.asked()))
    assert not any(asked[:10]) and any(asked), "what it says meanwhile does not put that off"


def test_newcomers_one_after_the_other_are_answered_once_a_second() -> None:
    alone = Alone()
    for number in range(40):
        hi = int((UNIX_S + alone.lab.now - 5) * 1e6)
        alone.log.sync.hear_said(Have(name_of(number), hi, LOWEST, [Block(1, bytes(12))]), alone.lab.now)
        alone.lab.run(alone.lab.now + 0.1)
    said = sum(isinstance(word, Have) for word in alone.new())
    assert 3 <= said <= 4 + 5, "and some in intervals"


def test_what_is_wanted_during_a_pause_is_asked_for_after_it() -> None:
    alone = Alone(ENTRIES[:-1])
    alone.have(full())
    alone.lab.run(alone.lab.now + 20.0)
    assert alone.log.sync.having.holders[LIAR].silences == 3
    alone.log.sync.having.fresh.clear()
    alone.log.sync.puller.want(ENTRIES[-1].id, HIGHEST, alone.lab.now)
    alone.log.sync.handle_timeout(alone.lab.now)
    alone.asked()
    paused_until = alone.log.sync.puller.next_at
    alone.lab.run(paused_until - 0.1)
    assert not alone.asked()
    alone.lab.run(paused_until + 0.1)
    assert alone.asked() and paused_until < 60.0


def test_invented_ids_lead_to_few_questions_and_old_ones_to_none() -> None:
    alone = Alone(ENTRIES)
    alone.have(full())

    def asked(age_s: float) -> int:
        """Says such ids 20 times in a second, and that they are nowhere."""
        found = 0
        for number in range(40):
            clock = int((UNIX_S + alone.lab.now - age_s) * 1e6)
            ids = [id_of(clock, b"T", b"%d %d" % (number, at)) for at in range(16)]
            alone.log.sync.hear_said(Keep(f"{number:08}", EVE, ids), alone.lab.now)
            alone.lab.run(alone.lab.now + 0.05)
            for ask in alone.asked():
                found += 1
                alone.answer(ask, [], ask.hi)
        return found

    assert asked(3600.0) == 0 < asked(1.0) <= 8


def test_those_with_a_higher_floor_do_not_silence_who_speaks_of_more() -> None:
    alone, floor = Alone(ENTRIES), ENTRIES[500].id
    alone.lab.run(100.0)
    said = []
    for lowest in LOWEST, floor:
        alone.new()
        for _ in range(200):
            for number in range(3):
                log = SyncLab(3).open(LIAR, [each for each in ENTRIES if each.id >= lowest], floor=lowest)
                alone.have(log, name_of(number))
            alone.lab.run(alone.lab.now + 1.0)
        said.append(sum(isinstance(word, Have) for word in alone.new()))
    assert said[0] <= 1 and 9 <= said[1] <= 11, "once in each 20 s"


def test_only_who_was_silent_is_left_alone_for_a_while() -> None:
    alone = Alone(ENTRIES[:-1])
    alone.have(full())
    alone.lab.run(alone.lab.now + 20.0)
    assert alone.log.sync.having.holders[LIAR].silences == 3 and alone.asked()
    alone.have(full())
    alone.lab.run(alone.lab.now + 1.0)
    assert not alone.asked()
    alone.have(full(), EVE)
    assert len(alone.asked()) == 1


def test_what_is_on_disk_after_a_sync_has_ended_was_brought_by_it() -> None:
    alone, entry = Alone(ENTRIES[:1000]), ENTRIES[1000]
    alone.have(SyncLab(3).open(LIAR, ENTRIES[:1001]))
    (ask,) = alone.asked()
    puller, holder = alone.log.sync.puller, alone.log.sync.having.holders[LIAR]
    assert puller.copy_came(entry.id, entry.publisher, entry.seq, alone.lab.now) is holder
    alone.answer(ask, [], HIGHEST, count=1)
    assert holder.vain == 1 and not puller.is_syncing
    alone.have(SyncLab(4).open(EVE, ENTRIES[:1002]), EVE)
    (ask,) = alone.asked()
    alone.answer(ask, [], HIGHEST)
    puller.took(holder, alone.lab.now)
    assert holder.vain == 0, "though there was a sync with another one since"
