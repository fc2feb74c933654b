"""Draws and placement beside what chance gives: sound ones agree, and each way of not drawing is seen."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import draws
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED
from tests.support.handmade_pairs import cell_of
from tests.support.simulated_runs import Run, simulate_whole_run
from tests.support.simulated_sums import draws_of_run

PLAN: dict[str, Any] = {
    **{"servers": 20, "topics": 20, "topics_per_subscriber": 10, "subscribers": 12, "publishers": 4},
    **{"rate": 20.0, "duration_s": 8.0, "k": 8, "k_prime": 3},
}


def found(scenario: Scenario, run: Run) -> dict[str, dict[str, Any]]:
    table = draws.tables([cell_of(scenario)], {"draws": draws_of_run(0, scenario, run)})
    Findings({}, tables=table)
    return {row["what"]: row for row in table["draws"]}


def test_sound_draws_agree_and_the_scores_are_normal() -> None:
    scores: dict[str, list[float]] = {}
    for side in ("publish", "subscribe"):
        for seed in range(60):
            scenario = Scenario(**PLAN, side=side)
            for what, row in found(scenario, simulate_whole_run(scenario, seed)).items():
                if row["z"] is not None:
                    scores.setdefault(what, []).append(row["z"])
    assert set(scores) == {"placement", "topic", "publisher", "next", "subscriber"}
    for what, values in scores.items():
        assert np.mean(values) == pytest.approx(0, abs=0.35), what
        assert np.std(values) == pytest.approx(1, abs=0.3), what
        assert sum(abs(value) > 2.576 for value in values) <= 0.03 * len(values) + 2, what


def test_publishers_who_always_take_the_first_three_of_eight_do_not_agree() -> None:
    scenario = Scenario(**PLAN)
    rows = found(scenario, simulate_whole_run(scenario, 1, first_only=True))
    for what in ("topic", "publisher", "next"):
        assert rows[what]["verdict"] == DISAGREES
        assert rows[what]["common"] == 3  # of 9/8 by chance
    assert rows["placement"]["verdict"] in (AGREES, NOT_REFUTED)
    assert rows["subscriber"]["verdict"] == NO_THEORY  # they use all


def test_who_keeps_a_draw_or_takes_turns_is_told_by_the_next_message() -> None:
    scenario = Scenario(**PLAN)
    run = simulate_whole_run(scenario, 1)
    groups = run.publishers * scenario.topics + run.topics
    kept, turns = run.sent.copy(), np.zeros_like(run.sent)
    for group in np.unique(groups):
        own = np.flatnonzero(groups == group)
        own = own[np.argsort(run.times_s[own], kind="stable")]
        kept[own] = run.sent[own[0]]
        for number, message in enumerate(own):
            turns[message, [(3 * number + at) % 8 for at in range(3)]] = True
    rows = found(scenario, run._replace(sent=kept))
    assert rows["publisher"]["verdict"] == rows["next"]["verdict"] == DISAGREES
    rows = found(scenario, run._replace(sent=turns))
    assert rows["next"]["verdict"] == DISAGREES
    assert rows["next"]["common"] < 9 / 8


def test_topics_that_prefer_some_servers_are_told() -> None:
    scenario = Scenario(**PLAN)
    run = simulate_whole_run(scenario, 1)
    skewed = run._replace(places=np.tile(np.arange(8), (20, 1)))
    assert found(scenario, skewed)["placement"]["verdict"] == DISAGREES


def test_the_law_is_that_of_all_ways_to_draw() -> None:
    sets = [set(chosen) for chosen in combinations(range(4), 2)]
    totals = [
        sum(len(one & other) for one in three for other in three if one is not other)
        for three in ([first, set(second), set(third)] for first in sets for second in sets for third in sets)
    ]
    law = draws.overlap_law(2, 4, pairs=6, triples=6, ordered=True)
    assert law.mean == pytest.approx(np.mean(totals))
    assert law.variance == pytest.approx(np.var(totals))
    assert law.third == pytest.approx(((np.array(totals) - np.mean(totals)) ** 3).mean())
    apart = [len(one & other) for one in sets for other in sets]
    law = draws.overlap_law(2, 4, pairs=1, triples=0, ordered=False)
    assert law.mean == pytest.approx(np.mean(apart))
    assert law.variance == pytest.approx(np.var(apart))


def test_what_is_not_drawn_from_the_same_servers_has_no_theory() -> None:
    without: tuple[dict[str, Any], ...] = (
        {"known": 0.5},
        {"avoid_dead": True, "outages": "independent", "outage": 0.1},
        {"scheme": "CH", "k_prime": 8},
        {"repeat": 3},  # all of the eight
    )
    for fields in without:
        scenario = Scenario(**(PLAN | fields))
        row = {"cell": 0, "what": "topic", "size": draws.size_of(scenario, "topic"), "draws": 40}
        row |= {"squares": 900, "cubes": 30_000, "common": 3000, "others": 0}
        (found_row,) = draws.tables([cell_of(scenario)], {"draws": [row]})["draws"]
        assert (found_row["z"], found_row["verdict"]) == (None, NO_THEORY), fields


def test_without_the_sums_there_is_no_table_and_few_draws_tell_nothing() -> None:
    assert draws.tables([cell_of(Scenario(**PLAN))], {}) == {}
    row = {"cell": 0, "what": "topic", "size": 3, "draws": 4, "squares": 8, "cubes": 16}
    (few,) = draws.tables([cell_of(Scenario(**PLAN))], {"draws": [row | {"common": 17, "others": 1}]})[
        "draws"
    ]
    assert (few["common"], few["verdict"], few["others"]) == (5 / 4, NOT_REFUTED, 1)
