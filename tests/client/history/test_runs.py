"""client/history/runs.py beside plain sets of numbers."""

from itertools import pairwise
from random import Random

from kcast.client.history.ids import id_of
from kcast.client.history.runs import FIRST, LAST, Place, Runs, has, parse_place, parse_runs, place_text

BASE = 1_790_000_000_000_000


def an_id(number: int) -> bytes:
    return id_of(BASE + number, b"t", b"")


def test_runs_are_sets_of_numbers_and_slices_reach_over_all_of_them() -> None:
    rng = Random(1)
    for publishers, numbers in ((1, 40), (3, 200), (60, 9)):
        runs, plain, newest = Runs(), set[Place](), dict[str, int]()
        for number in range(400):
            place = (f"P{rng.randrange(publishers)}", rng.randrange(1, numbers))
            runs.add(*place, an_id(number))
            plain.add(place)
            newest[place[0]] = number
        for chars, since in ((10_000, 0), (60, 0), (20, 350), (1, 390)):
            told = {each for each in plain if newest[each[0]] >= since}
            slices = [*runs.slices(an_id(since), chars)]
            assert slices[0].start == FIRST and slices[-1].stop == LAST
            assert all(one.stop == other.start for one, other in pairwise(slices))
            found = set()
            for start, stop, text in slices:
                assert len(text) <= chars or not {",", " "} & set(text)
                read = parse_runs(text)
                assert read is not None
                inside = {each for each in plain | {("P0", 10**6)} if has(read, *each)}
                assert all(start <= each < stop for each in inside)
                found |= inside
            assert found == told
            start, stop = sorted(rng.sample(sorted(plain), 2))
            held = parse_runs(rng.choice(slices).text) or {}
            beyond = [*runs.beyond(held, an_id(since), start, stop)]
            assert sorted(
                (each, seq) for each, low, high in beyond for seq in range(low, high + 1)
            ) == sorted(each for each in told if start <= each < stop and not has(held, *each))
            some = [parse_runs(each.text) or {} for each in runs.slices(an_id(since), chars, start, stop)]
            assert {each for each in plain if any(has(one, *each) for one in some)} == {
                each for each in told if start <= each < stop
            }
    assert len(runs) == 60
    runs.rise(an_id(390))
    assert len(runs) == sum(number >= 390 for number in newest.values())


def test_runs_with_holes_leave_as_the_floor_rises() -> None:
    runs = Runs()
    for number in range(5000):
        runs.add("P", 2 * number + 1, an_id(number))
        runs.add(f"P{number}", 1, an_id(number))
        runs.rise(an_id(number - 100))
    text = " ".join(each.text for each in runs.slices(an_id(0), 10**6))
    assert text.count(",") == 100 and 100 < len(runs) < 300


def test_what_comes_from_others_is_read_and_never_unrolled() -> None:
    read = parse_runs(f"a:1-{10**18 - 1} b:1,3-4,9")
    assert read == {"a": [(1, 10**18 - 1)], "b": [(1, 1), (3, 4), (9, 9)]}
    assert has(read, "a", 10**17) and has(read, "b", 4) and not has(read, "b", 5) and not has(read, "c", 1)
    assert parse_runs("") == {}
    for wrong in (
        *("a", "a:", "a:0", "a:01", "a:2-1", "a:1,1", "a:3,2", "a:1-3,2-4", "a:1 a:2", "a:1  b:1", " a:1"),
        *("a:1-", "a:1 ", "é:1", f"a:{10**18}", "a:1,", "a:1\n"),
    ):
        assert parse_runs(wrong) is None, wrong
    for place in (("a", 1), ("q7Hn2sV0aLx", 10**18 - 1)):
        assert parse_place(place_text(place), FIRST) == place
    assert parse_place("-", LAST) == LAST and place_text(LAST) == place_text(FIRST) == "-"
    assert [parse_place(each, FIRST) for each in ("a", "a.", "a.0", ".1", "a.1.2")] == [None] * 5
