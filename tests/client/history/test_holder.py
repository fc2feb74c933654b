"""client/history/holder.py: what is answered, and how much of it."""

from itertools import pairwise
from typing import Any

import pytest

from kcast.client.events import Drop
from kcast.client.history.index import HIGHEST, LOWEST, Index
from kcast.client.history.runs import FIRST, LAST, parse_runs
from kcast.client.history.words import Ask, Keep, Parts, Sent, What, parse_word, short_of
from tests.support.sync_lab import Entry, LabLog, SyncLab, make_entries, name_of

BOB, ADA = "BBBBBBBBBBB", "AAAAAAAAAAA"
Q = "abcdefgh"
ENTRIES = make_entries(1000, 7)


def holder(entries: list[Entry] = ENTRIES) -> LabLog:
    return SyncLab(1).open(BOB, entries)


def asked(log: LabLog, word: Any, now: float) -> list[Any]:
    """What a question brings: messages, then words."""
    log.outbox.clear()
    log.sync.hear_word(word, now)
    assert all(said.where == word.mine for said in log.outbox)
    return [said.payload if said.is_copy else parse_word(said.payload) for said in log.outbox]


def word_of(log: LabLog, mine: str, now: float) -> str:
    *_, sent = asked(log, Ask(Q, mine, "-", LOWEST, HIGHEST, 1, runs={}), now)
    return str(sent.word)


def test_an_answer_is_what_is_lacking_oldest_first_and_how_far_that_goes() -> None:
    log = holder()
    word = word_of(log, ADA, 0.0)
    lo, hi = ENTRIES[100].id, ENTRIES[900].id
    *copies, sent = asked(log, Ask(Q, ADA, word, lo, hi, 64, runs={}), 2.0)
    assert copies == [each.message for each in ENTRIES[100:164]]
    assert sent == Sent(Q, ENTRIES[164].id, 64, word)
    held: dict[str, list[tuple[int, int]]] = {}
    for each in ENTRIES:
        if each not in ENTRIES[200:205]:
            held.setdefault(each.publisher, []).append((each.seq, each.seq))
    question = Ask(Q, ADA, word, lo, hi, 64, FIRST, LAST, held)
    assert asked(log, question, 2.0) == [
        *(each.message for each in ENTRIES[200:205]),
        Sent(Q, hi, 5, word),
    ]
    some = ENTRIES[203]
    narrow = question._replace(start=(some.publisher, some.seq), stop=(some.publisher, some.seq + 1))
    assert asked(log, narrow, 2.0) == [some.message, Sent(Q, hi, 1, word)]
    shorts = frozenset(short_of(each.id, Q) for each in ENTRIES[100:898])
    by_shorts = Ask(Q, ADA, word, lo, hi, 1, shorts=shorts)
    assert asked(log, by_shorts, 2.0) == [ENTRIES[898].message, Sent(Q, ENTRIES[899].id, 1, word)]


def test_parts_have_equal_counts_and_reach_over_the_range_or_are_cut_to_what_fits() -> None:
    log = holder()
    lo, hi = ENTRIES[100].id, ENTRIES[900].id
    (parts,) = asked(log, What(Q, ADA, "-", lo, hi), 0.0)
    assert isinstance(parts, Parts) and len(parts.parts) == 24 and parts.parts[-1][0] == hi
    index = Index(each.id for each in ENTRIES)
    bounds = [lo, *(bound for bound, _ in parts.parts)]
    assert [block for _, block in parts.parts] == [index.block(low, high) for low, high in pairwise(bounds)]
    log.room_bytes = 300
    (cut,) = asked(log, What(Q, ADA, "-", lo, hi), 0.0)
    assert cut.parts == parts.parts[: len(cut.parts)] and 200 < len(bytes(cut)) <= 300
    (none,) = asked(log, What(Q, ADA, "-", HIGHEST[:-1] + b"\0", HIGHEST), 0.0)
    assert [(bound, block.entries) for bound, block in none.parts] == [(HIGHEST, 0)]
    (two,) = asked(log, What(Q, ADA, "-", ENTRIES[5].id, ENTRIES[7].id), 0.0)
    assert [block.entries for _, block in two.parts] == [1, 1]


def test_a_mailbox_that_has_not_asked_is_not_flooded() -> None:
    log = holder()
    question = Ask(Q, ADA, "-", LOWEST, HIGHEST, 512, runs={})
    for now in (0.0, 1.0, 2.5):
        lines = [asked(log, question, now + 0.01 * number) for number in range(20)]
        assert [len(each) for each in lines] == [8, *[0] * 19]
    assert log.drops[Drop.LIMITED] == 3 * 19
    word = word_of(log, ADA, 10.0)
    assert len(asked(log, question._replace(word=word), 10.5)) == 513
    assert word_of(log, ADA, 20.0) == word and word_of(log, name_of(1), 20.0) != word
    other = question._replace(mine=name_of(1), word=word)
    assert len(asked(log, other, 30.0)) == 8, "it is another's"
    for number in range(50):
        asked(log, question, 40.0 + number / 100)
    assert len(asked(log, question._replace(word=word), 40.6)) == 513, (
        "who asks in my name takes nothing of mine"
    )


def test_a_thousand_who_ask_for_all_get_what_the_bounds_let_them_have() -> None:
    big = make_entries(600, 7, payload_bytes=900)
    log = holder(big)
    words = {name: word_of(log, name, number) for number in range(1000) if (name := name_of(number))}
    log.drops.clear()
    for second in (2000.0, 2002.0):
        size_bytes = answered = 0
        of_one = [0]
        for number, (name, word) in enumerate(words.items()):
            for at in (0.0, 0.1) if number < 3 else (0.2,):
                got = asked(log, Ask(Q, name, word, LOWEST, HIGHEST, 512, runs={}), second + at)
                size = sum(len(each) for each in got if isinstance(each, bytes))
                size_bytes += size
                of_one[-1] += size
                answered += bool(got)
                assert not got or got[-1].lines == len(got) - 1
                assert not got or got[-1].next == big[len(got) - 1].id, "a part of it, said as such"
            of_one.append(0)
        assert 3_000_000 < size_bytes <= 4_000_000 and max(of_one) <= 1_000_000
    assert log.drops[Drop.LIMITED] >= 1900
    for number, (name, word) in enumerate(words.items()):
        asked(log, What(Q, name, word, LOWEST, HIGHEST), 3000.0)
        assert number < 200 or not log.outbox
    assert len(log.sync.answers._used) <= 200, "nothing else is known of those who ask"
    many = holder(make_entries(20_000, 20_000))
    word = word_of(many, ADA, 3050.0)
    runs = {name_of(0): [(1, 1)]}
    for at, question in (
        (3052.0, What(Q, ADA, word, LOWEST, HIGHEST)),
        (3054.0, Ask(Q, ADA, word, LOWEST, HIGHEST, 1, runs=runs)),
    ):
        answered = sum(bool(asked(many, question, at)) for _ in range(60))
        assert answered == 17, "a question that looks at so many counts three times"
    word = word_of(log, ADA, 3100.0)
    assert sum(len(asked(log, What(Q, ADA, word, LOWEST, HIGHEST), 3102.0)) for _ in range(60)) == 50


def test_runs_are_never_unrolled() -> None:
    log = holder()
    word = word_of(log, ADA, 0.0)
    runs = parse_runs(" ".join(f"{name_of(number)}:1-{10**18 - 1}" for number in range(7)))
    assert runs is not None
    assert asked(log, Ask(Q, ADA, word, LOWEST, HIGHEST, 64, runs=runs), 2.0) == [Sent(Q, HIGHEST, 0, word)]


def test_those_who_wait_for_a_commit_are_few_and_wait_for_10_s() -> None:
    log = holder()
    log.shelf.kept = set()
    for number in range(100):
        log.sync.hear_said(Keep(f"{number:08}", name_of(number), [ENTRIES[0].id]), 0.0)
    assert log.drops[Drop.LIMITED] == 36
    log.sync.answers.handle_timeout(2.0)
    log.shelf.kept = {ENTRIES[0].id}
    log.words.clear()
    log.sync.answers.committed(9.0)
    log.sync.answers.handle_timeout(9.0)
    answered = [said.where for said in log.words if said.payload.startswith(b"kept")]
    assert answered == [name_of(number) for number in range(36, 100)], "the newest ones"
    log.sync.answers.committed(9.5)
    log.sync.answers.handle_timeout(11.0)
    assert len(log.words) == 64 and log.sync.answers.next_at == pytest.approx(float("inf"))
