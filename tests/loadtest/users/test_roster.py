"""loadtest/users/roster.py: ids and windows, in whatever order users come and go."""

from random import Random
from typing import get_args

import pytest

from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.roster import OPEN, Kind, Roster, UserIds, Window

KINDS: tuple[Kind, ...] = get_args(Kind)
FIXED = Scenario(publishers=2, subscribers=3, mixed=2)
FREE = Scenario(publishers=0, subscribers=0, mixed=0)


def test_a_fixed_tests_numbers_do_not_depend_on_who_comes_first() -> None:
    for seed in range(5):
        kinds: list[Kind] = [kind for kind, count in zip(KINDS, (2, 3, 2), strict=True) for _ in range(count)]
        Random(seed).shuffle(kinds)
        roster = Roster(FIXED)
        claimed = {(kind, roster.claim(kind, "a")) for kind in kinds}
        assert claimed == {
            ("Publisher", UserIds(0, 0, NONE)),
            ("Publisher", UserIds(1, 1, NONE)),
            ("Subscriber", UserIds(2, NONE, 0)),
            ("Subscriber", UserIds(3, NONE, 1)),
            ("Subscriber", UserIds(4, NONE, 2)),
            ("Mixed", UserIds(5, 2, 3)),
            ("Mixed", UserIds(6, 3, 4)),
        }


@pytest.mark.parametrize("scenario", [FIXED, FREE])
@pytest.mark.parametrize("seed", range(5))
def test_no_two_users_share_a_number_and_free_ones_are_reused(scenario: Scenario, seed: int) -> None:
    rng = Random(seed)
    roster = Roster(scenario)
    there: dict[int, tuple[Kind, UserIds]] = {}
    most = 0
    for _ in range(500):
        if there and rng.random() < 0.45:
            gone = rng.choice(list(there))
            roster.leave(gone, 0)
            del there[gone]
        else:
            kind = rng.choice(KINDS)
            ids = roster.claim(kind, "a")
            assert (ids.pub_id == NONE) == (kind == "Subscriber"), f"seed {seed}"
            assert (ids.sub_id == NONE) == (kind == "Publisher")
            assert ids.client_id not in there
            there[ids.client_id] = kind, ids
        most = max(most, len(there))
        for number in (1, 2):
            used = [ids[number] for _, ids in there.values() if ids[number] != NONE]
            assert len(used) == len(set(used)), f"seed {seed}"
        assert max((client_id for client_id in there), default=0) < most + 7
        assert roster.count == len(there)


def test_ready_users_are_those_that_said_so_and_are_still_there() -> None:
    roster = Roster(FREE)
    first, second = roster.claim("Publisher", "a"), roster.claim("Subscriber", "b")
    assert roster.ready(first.client_id) == first
    assert roster.ready(99) is None
    assert roster.ready_count == 1
    assert roster.nodes == {"a", "b"}
    roster.ready(second.client_id)
    roster.leave(first.client_id, 0)
    roster.leave(first.client_id, 0)
    assert (roster.count, roster.ready_count) == (1, 1)


def test_windows_are_changes_when_opened_and_when_closed() -> None:
    roster = Roster(FREE)
    ids = roster.claim("Publisher", "a")
    roster.open_window(ids.pub_id, 100)
    roster.open_window(ids.pub_id, 200)  # it is open already
    assert roster.take_changes() == [Window(0, 100, OPEN)]
    assert roster.take_changes() == []
    roster.leave(ids.client_id, 500)
    assert roster.take_changes() == [Window(0, 100, 500)]
    again = roster.claim("Publisher", "b")
    roster.open_window(again.pub_id, 700)
    assert roster.windows == [Window(0, 100, 500), Window(0, 700, OPEN)]


def test_a_publisher_that_leaves_before_its_window_begins_has_an_empty_one() -> None:
    roster = Roster(FREE)
    ids = roster.claim("Mixed", "a")
    roster.open_window(ids.pub_id, 1000)
    roster.leave(ids.client_id, 500)
    assert roster.windows == [Window(0, 1000, 1000)]


def test_a_subscriber_has_no_window() -> None:
    roster = Roster(FREE)
    roster.open_window(roster.claim("Subscriber", "a").pub_id, 0)
    assert roster.windows == []


def test_in_a_fixed_test_all_publishers_have_one_window() -> None:
    roster = Roster(FIXED)
    claimed = [roster.claim(kind, "a") for kind in KINDS]
    roster.open_all(5000)
    assert roster.windows == [Window(0, 0, 5000), Window(2, 0, 5000)]
    roster.leave(claimed[0].client_id, 9000)  # it had nothing to do since
    roster.close_all(3000)
    assert sorted(roster.windows) == [Window(0, 0, 5000), Window(2, 0, 3000)]


def test_a_node_that_is_lost_takes_its_users_with_it() -> None:
    roster = Roster(FREE)
    for node in ("a", "b", "a"):
        roster.open_window(roster.claim("Publisher", node).pub_id, 0)
    assert roster.remove_node("a", 700) == 2
    assert roster.nodes == {"b"}
    assert sorted(roster.windows) == [Window(0, 0, 700), Window(1, 0, OPEN), Window(2, 0, 700)]
    assert roster.claim("Publisher", "c") == UserIds(0, 0, NONE)
