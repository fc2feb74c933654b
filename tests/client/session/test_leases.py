"""client/session/leases.py: when a lease is to be asked for, and whether it stands."""

import re
from math import inf
from random import Random

import pytest

from kcast.client.session import leases as leasing
from kcast.client.session.leases import (
    ALL,
    DUE,
    RENEWALS,
    STANDING,
    TRANSITIONS,
    Leases,
    Place,
    State,
    Step,
)
from kcast.pubsub.limits import LEASES_KEPT_FREE
from tests.support.forms import Seeds


def live(*topics: bytes, now: float = 0.0, ttl_s: float = 60.0) -> Leases:
    leases = Leases()
    for topic in topics:
        leases.want(topic, now)
    leases.take_due(now, 1000, 100_000)
    for topic in topics:
        assert leases.grant(topic, now, now + ttl_s, now + ttl_s / 3)
    return leases


def taken(leases: Leases, until: float, places: tuple[Place, ...] = ALL) -> list[bytes]:
    return leases.take_due(until, 1000, 100_000, places)


def test_the_table_is_as_it_is_told() -> None:
    lines = (leasing.__doc__ or "").splitlines()
    head = next(line for line in lines if line.split()[:1] == ["state"])
    columns = [(match.group(), match.start()) for match in re.finditer(r"\w+", head)][1:]
    told = {}
    for line in lines:
        if line.startswith("    ") and line.split()[:1] and line.split()[0] in list(State):
            cells = {step: line[at:].split("  ")[0] for step, at in columns}
            told[State(line.split()[0])] = {Step(step): State(to) for step, to in cells.items() if to}
    assert told == TRANSITIONS


WAYS = {State.WANTED: "", State.ASKED: "t", State.LIVE: "tg", State.RENEWING: "tgt"}
T = b"t"


def walked(steps: str) -> Leases:
    leases = Leases()
    leases.want(T, 0.0)
    for step in steps:
        if step == "t":
            assert leases.take_due(inf, 1, 100) == [T]
        else:
            leases.grant(T, 1.0, 60.0, 20.0)
    return leases


def test_each_transition_is_what_happens() -> None:
    for state, steps in TRANSITIONS.items():
        for step, after in steps.items():
            leases = walked(WAYS[state])
            lease = leases._leases[T]
            assert lease.state is state
            match step:
                case Step.TAKE:
                    assert leases.take_due(inf, 1, 100) == [T]
                case Step.AGAIN:
                    leases.ask_again([T], 7.0)
                case Step.GRANT:
                    assert leases.grant(T, 2.0, 62.0, 7.0) == (state not in STANDING)
                case Step.DENY:
                    assert leases.deny(T, 2.0, 7.0) == (state in STANDING)
                case Step.HOLD:
                    assert leases.deny(T, 2.0, inf) == (state in STANDING)
                case Step.END:
                    assert leases.expire(60.0) == [T]
            assert lease.state is after, (state, step)
            assert leases.is_live(T) == (after in STANDING)
            assert leases.has_new == (after not in STANDING)
            due_at = (20.0 if step is Step.END else 7.0) if after in DUE else None
            assert leases.first_due() == due_at, (state, step)


def test_new_ones_and_renewals_are_apart() -> None:
    leases = live(b"old")
    leases.want(b"new", 5.0)
    assert leases.has_new
    assert (leases.next_due(), leases.next_due(RENEWALS)) == (5.0, 20.0)
    assert (leases.next_due((Place.NEW,)), leases.next_due(())) == (5.0, None)
    assert leases.is_due(5.0)
    assert not leases.is_due(5.0, RENEWALS)
    assert not leases.is_due(5.0, ())
    assert taken(leases, 20.0, RENEWALS) == [b"old"]
    assert taken(leases, 20.0, (Place.NEW,)) == [b"new"]
    assert taken(leases, inf) == []


def test_the_first_eight_that_stand_are_apart_from_more() -> None:
    topics = [b"%02d" % number for number in range(12)]
    leases = live(*topics)
    assert taken(leases, 20.0, (Place.FIRST,)) == topics[:LEASES_KEPT_FREE]
    assert taken(leases, 20.0, (Place.MORE,)) == topics[LEASES_KEPT_FREE:]
    leases.ask_again(topics, 30.0)
    leases.deny(topics[3], 10.0, inf)
    leases.unwant(topics[0])
    assert taken(leases, 30.0, (Place.MORE,)) == topics[10:], "two have moved up"
    leases.ask_again(topics, 40.0)
    leases.put_behind([topics[1], b"nobody's", topics[3]])
    assert set(taken(leases, 40.0, (Place.MORE,))) == {topics[11], topics[1]}


def test_whoever_has_few_has_none_but_the_first() -> None:
    leases = live(b"t", b"u")
    leases.put_behind([b"t"])
    assert leases.next_due((Place.MORE,)) is None
    assert set(taken(leases, 20.0, (Place.FIRST,))) == {b"t", b"u"}


def test_what_has_been_due_for_longest_goes_first_whatever_its_place() -> None:
    leases = live(b"old")
    leases.want(b"a", 19.0)
    leases.want(b"b", 21.0)
    assert leases.take_due(30.0, 2, 1000) == [b"a", b"old"]
    assert taken(leases, 30.0) == [b"b"]


def test_taken_is_not_due_until_it_is_said() -> None:
    leases = Leases()
    leases.want(b"t", 0.0)
    taken(leases, 0.0)
    assert not leases.is_due(1e9)
    assert leases.next_due() is None
    leases.ask_again([b"t", b"nobody's"], 3.0)
    assert leases.next_due() == 3.0
    assert taken(leases, 3.0) == [b"t"]


def test_one_that_ends_is_new_again() -> None:
    leases = live(b"t")
    assert leases.expire(59.9) == []
    assert leases.expire(60.0) == [b"t"]
    assert not leases.is_live(b"t")
    assert leases.has_new
    assert not leases.is_due(60.0, RENEWALS)
    assert taken(leases, 60.0, (Place.NEW,)) == [b"t"]


def test_denied_is_new_again_and_old_answers_do_not_matter() -> None:
    leases = live(b"t", now=10.0)
    assert not leases.deny(b"t", 9.9, 50.0), "asked before it was granted"
    assert leases.is_live(b"t")
    assert leases.deny(b"t", 11.0, 50.0)
    assert not leases.deny(b"t", 12.0, 40.0), "it did not stand"
    assert not leases.is_live(b"t")
    assert not leases.is_due(39.9)
    assert taken(leases, 40.0) == [b"t"]
    assert not leases.grant(b"t", 11.9, 70.0, 30.0), "asked before it was denied"
    assert leases.grant(b"t", 12.1, 70.0, 30.0)
    assert not leases.deny(b"nobody's", 13.0, 50.0)


def test_void_ends_all_and_what_was_asked_before_revives_none() -> None:
    leases = live(b"t", b"u")
    assert set(leases.void(5.0)) == {b"t", b"u"}
    assert leases.void(5.0) == []
    assert not leases.grant(b"t", 4.9, 64.9, 24.9)
    assert not leases.deny(b"t", 4.9, 30.0)
    assert set(taken(leases, 5.0, (Place.NEW,))) == {b"t", b"u"}
    assert leases.grant(b"t", 5.0, 65.0, 25.0)


def test_unwanted_is_forgotten() -> None:
    leases = live(b"t", b"u")
    leases.unwant(b"t")
    leases.unwant(b"t")
    assert not leases.is_wanted(b"t")
    assert not leases.has_new
    assert taken(leases, inf) == [b"u"]
    leases.unwant(b"u")
    assert not leases.has_new
    assert not leases.is_due(inf)
    assert leases.expire(inf) == []


@pytest.mark.parametrize("stale_max", [0, 1, inf])
def test_many_moves_against_a_naive_account(
    seeds: Seeds, stale_max: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds(2, 10):
        monkeypatch.setattr(leasing, "STALE_MAX", stale_max)
        rng = Random(seed)
        leases = Leases()
        due: dict[bytes, float] = {}
        until: dict[bytes, float] = {}
        now = 0.0
        topics = [b"%d" % number for number in range(8)]
        for _ in range(400):
            now += rng.choice((0.0, 0.5, 1.0, 7.0))
            topic = rng.choice(topics)
            match rng.randrange(7):
                case 0:
                    if topic not in due:
                        due[topic] = now
                    leases.want(topic, now)
                case 1:
                    leases.unwant(topic)
                    due.pop(topic, None)
                    until.pop(topic, None)
                case 2:
                    for each in taken(leases, now):
                        assert due[each] <= now
                        due[each] = inf
                    assert not [each for each in due if due[each] <= now]
                case 3:
                    if topic in due:
                        leases.grant(topic, now, now + 20, now + 6)
                        due[topic], until[topic] = now + 6, now + 20
                case 4:
                    if topic in due:
                        leases.deny(topic, now, now + 3)
                        due[topic] = now + 3
                        until.pop(topic, None)
                case 5:
                    leases.expire(now)
                    until = {each: at for each, at in until.items() if at > now}
                case _:
                    if rng.random() < 0.2:
                        assert set(leases.void(now)) == set(until)
                        until = {}
                        due = dict.fromkeys(due, now)
            assert {each for each in topics if leases.is_live(each)} == set(until)
            assert leases.has_new == (len(due) > len(until))
            assert len(leases._places[Place.FIRST]) == min(LEASES_KEPT_FREE, len(until)), "others moved up"
            first = leases.next_due()
            real = min((at for at in due.values() if at < inf), default=inf)
            assert (inf if first is None else first) <= real
            exact = leases.first_due(ALL)
            assert (inf if exact is None else exact) == real
            assert leases.is_due(now) == any(at <= now for at in due.values())
            assert leases.is_due(now, RENEWALS) == any(due[each] <= now for each in until)


def test_heap_of_expiries_does_not_grow_with_renewals() -> None:
    """`kcast serve --ttl 86400`, a topic renewed every 25 s: one entry a renewal, for a day."""
    leases, now = Leases(), 0.0
    leases.want(b"t", now)
    for _ in range(1000):
        leases.take_due(now, 63, 1000)
        leases.grant(b"t", now, now + 86_400.0, now + 25.0)
        leases.expire(now)
        now += 25.0
    assert len(leases._expiring) < 10, f"{len(leases._expiring)} entries for one lease"
