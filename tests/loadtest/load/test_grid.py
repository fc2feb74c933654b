"""loadtest/load/grid.py: presets, combinations, names."""

import re
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.load import grid
from kcast.loadtest.load.estimate import estimate, total
from kcast.loadtest.scenario import Scenario, ScenarioError, select


def names(*parts: grid.Values, **given: tuple[object, ...]) -> list[str]:
    return [scenario.name for scenario in grid.expand(parts or ({},), given).scenarios]


def only(**given: object) -> Scenario:
    (scenario,) = grid.expand(({},), {name: (value,) for name, value in given.items()}).scenarios
    return scenario


def test_without_options_the_defaults_are_run() -> None:
    assert only().with_(name="load") == Scenario()
    assert names() == ["5-3-5"]


def test_a_preset_is_a_grid_with_names_that_can_be_folders() -> None:
    for name in grid.PRESETS:
        made = grid.expand(grid.preset(name).parts, {})
        assert made.impossible == ()
        found = [scenario.name for scenario in made.scenarios]
        assert found and len(set(found)) == len(found)
        for each in found:
            assert re.fullmatch(r"[a-z0-9][A-Za-z0-9._-]*", each) and Path(each).name == each


def test_the_grid_has_the_cells_that_it_was_made_for() -> None:
    scenarios = grid.expand(grid.preset("grid").parts, {}).scenarios
    assert [str(s.policy) for s in scenarios] == [
        *(f"8/{k_prime}/8" for k_prime in (1, 2, 3, 5)),
        *(f"{k}/{k}/{k}" for k in (1, 2, 3, 5, 8)),
    ]
    for s in scenarios:
        assert (s.servers, s.outages, s.outage, s.loss_in, s.loss_out) == (
            100,
            "independent",
            0.1,
            0.02,
            0.02,
        )
        audience = s.subscribing_users * s.topics_per_subscriber / s.topics
        assert s.publishing_users * s.rate * s.duration_s * audience >= 205_000


def test_ramble_has_a_short_form_of_two_minutes_and_a_long_one_by_its_options() -> None:
    preset = grid.preset("ramble").parts
    short = grid.expand(preset, {}).scenarios
    assert total(map(estimate, short)).time_s < 120
    assert {(s.servers, s.policy.k, s.subscribers, s.by) for s in short} == {
        (16, 16, 96, "mute"),
        (16, 16, 24, "mute"),
    }
    for each in short:  # enough that some are published, with any seed
        assert each.publishing_users * each.rate * each.duration_s / each.burst >= 10
    wanted: grid.Values = {
        **{"k_prime": (2, 4, 8), "down": (0, 4, 8), "burst": (2, 4, 8, 16)},
        **{"delay_ms": (0.0, 10.0, 20.0, 100.0, 2000.0), "spam": (0.0,), "rate": (6.0,), "publishers": (1,)},
        **{"offline": (0.0,), "subscribers": (96,), "duration_s": (30.0,), "deadline_s": (6.0,)},
    }
    made = grid.expand(preset, wanted)
    assert len(made.scenarios) == 3 * 3 * 4 * 5 and made.impossible == ()


def test_an_unknown_preset_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"no preset is named 'girds': use one of network, .*grid"):
        grid.preset("girds")


def test_what_is_given_replaces_what_the_preset_says() -> None:
    parts = grid.preset("grid").parts
    scenarios = grid.expand(parts, {"duration_s": (5.0,), "k_prime": (1, 2), "servers": (20,)}).scenarios
    assert [s.name for s in scenarios[:2]] == ["8-1-8", "8-2-8"]
    assert len(scenarios) == 2 + 5
    assert {(s.duration_s, s.servers, s.outage) for s in scenarios} == {(5.0, 20, 0.1)}


def test_outages_that_are_given_are_not_hidden_by_those_of_the_preset() -> None:
    cases: list[Any] = [
        ("k-prime", {"down": (2,)}, ("exact", 2, 0.0)),
        ("kills", {"outage": (0.2,)}, ("independent", 0, 0.2)),
        ("rolling", {"down": (2,)}, ("exact", 2, 0.0)),
        ("kills", {"down": (2,)}, ("exact", 2, 0.0)),
        ("zones", {"outage": (0.2,)}, ("zones", 0, 0.2)),
        ("kills", {"outages": ("rolling",)}, ("rolling", 3, 0.0)),
    ]
    for name, given, outages in cases:
        for scenario in grid.expand(grid.preset(name).parts, given).scenarios:
            assert (scenario.outages, scenario.down, scenario.outage) == outages


def test_a_fault_that_would_not_happen_is_refused() -> None:
    cases: list[Any] = [
        (
            {"outage": 0.1, "down": 3},
            "--down needs --outages exact, and it is independent: leave one of them out",
        ),
        (
            {"outage": 0.1, "outages": "exact"},
            "--outage needs --outages independent or zones, and it is exact",
        ),
        ({"outages": "independent"}, "--outages alone does nothing: give --outage"),
        ({"outages": "exact"}, "--outages alone does nothing: give --outage"),
        ({"by": "kill"}, "--by says how servers fail, and none does"),
    ]
    for given, message in cases:
        with pytest.raises(ScenarioError, match=message):
            only(**given)


def test_users_of_both_kinds_are_needed() -> None:
    for kind in ["publishers", "subscribers"]:
        with pytest.raises(ScenarioError, match=f"--{kind} and --mixed are 0"):
            only(**{kind: 0})
        assert only(**{kind: 0, "mixed": 2}).mixed == 2


def test_a_grid_may_have_cells_without_faults() -> None:
    assert names(by=("kill",), outage=(0.0, 0.1)) == ["5-3-5_outage-0", "5-3-5_outage-0.1"]
    assert names(by=("isolation",), down=(0,), outages=("none",)) == ["5-3-5"]


def test_every_combination_is_a_scenario_named_by_what_differs() -> None:
    assert names(k=(4,), k_prime=(1, 2), outage=(0.0, 0.1), servers=(12,)) == [
        *("4-1-4_outage-0", "4-1-4_outage-0.1"),
        *("4-2-4_outage-0", "4-2-4_outage-0.1"),
    ]
    assert names(outages=("independent", "zones"), outage=(0.1, 0.2)) == [
        *("5-3-5_outages-independent_outage-0.1", "5-3-5_outages-independent_outage-0.2"),
        *("5-3-5_outages-zones_outage-0.1", "5-3-5_outages-zones_outage-0.2"),
    ]


def test_a_loss_is_of_both_legs_and_one_of_them_can_be_told_apart() -> None:
    assert [(s.loss_in, s.loss_out) for s in grid.expand(({},), {"loss": (0.0, 0.02)}).scenarios] == [
        (0.0, 0.0),
        (0.02, 0.02),
    ]
    assert names(loss=(0.0, 0.02)) == ["5-3-5_loss-0", "5-3-5_loss-0.02"]
    assert names(loss=(0.0, 0.02), loss_out=(0.0,)) == ["5-3-5_loss-in-0", "5-3-5_loss-in-0.02"]


def test_a_share_that_is_down_needs_no_word_on_how() -> None:
    cases: list[Any] = [
        ({}, "none"),
        ({"outage": 0.0}, "none"),
        ({"outage": 0.1}, "independent"),
        ({"outage": 0.1, "outages": "zones"}, "zones"),
        ({"down": 2}, "exact"),
        ({"outages": "rolling"}, "rolling"),
    ]
    for given, kind in cases:
        assert only(**given).outages == kind


def test_what_follows_from_few_topics_and_a_small_k() -> None:
    assert only(topics=4).topics_per_subscriber == 4
    assert str(only(k=2).policy) == "2/2/2"
    with pytest.raises(ScenarioError, match="--topics-per-subscriber is 7: give 1 to 4"):
        only(topics=4, topics_per_subscriber=7)


def test_combinations_that_are_the_same_policy_are_one_scenario() -> None:
    assert names(scheme=("RCH", "CH"), k=(3,), k_prime=(1, 3), side=("publish", "subscribe")) == [
        *("3-1-3", "3-3-1", "3-3-3")
    ]
    assert names(scheme=("S", "R"), k=(3, 5), servers=(9,)) == ["s", "r-9-9-9"]


def test_what_cannot_be_is_left_out_and_told_unless_that_is_all() -> None:
    made = grid.expand(({},), {"k": (2, 4), "k_prime": (1, 3), "loss": (0.0, 0.1)})
    assert [s.name for s in made.scenarios if s.loss_in == 0] == [
        *("2-1-2_loss-0", "4-1-4_loss-0", "4-3-4_loss-0")
    ]
    assert made.impossible == ("--k-prime is 3: give 2 or less, since --k is 2",)
    with pytest.raises(ScenarioError, match="--k-prime is 3"):
        grid.expand(({},), {"k": (2,), "k_prime": (3,)})


def test_a_grid_is_not_larger_than_anyone_could_mean() -> None:
    seeds = tuple(range(grid.SCENARIOS_MAX + 1))
    with pytest.raises(ScenarioError, match="these are 1,001 scenarios: give fewer values, for 1,000"):
        grid.expand(({},), {"seed": seeds})
    with pytest.raises(ScenarioError, match="these are 1,002 scenarios"):
        grid.expand(({}, {"k": (2,)}), {"seed": seeds[:501]})


def test_scenarios_are_selected_by_name_or_pattern() -> None:
    scenarios = grid.expand(grid.preset("grid").parts, {}).scenarios
    assert select(scenarios, ()) == scenarios
    odd = scenarios[0].with_(name="[ch] 100% {*?}")
    assert select((odd, *scenarios), (odd.name,)) == (odd,)
    assert [s.name for s in select(scenarios, ("8-8-8", "8-[12]-*"))] == [*("8-1-8", "8-2-8", "8-8-8")]
    with pytest.raises(ScenarioError, match=r"no scenario is named '4-4-4': there are 8-1-8, .*, 8-8-8$"):
        select(scenarios, ("8-8-8", "4-4-4"))


def test_a_name_that_is_too_long_for_a_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    some: dict[str, tuple[object, ...]] = {
        **{"topics_per_subscriber": (5, 10), "repeat_interval_s": (0.123456, 0.2)},
        **{"payload_bytes": (100, 200), "loss_in": (0.0123456, 0.0), "renewals": (2.0, 3.0)},
        "deadline_s": (2.0, 3.123456),
    }
    assert max(map(len, names(**some))) < grid.NAME_CHARS_MAX
    some |= {"delay_ms": (0.123456, 0.2), "duplicate": (0.123456, 0.2), "reorder": (0.123456, 0.2)}
    monkeypatch.setattr(grid, "NAME_CHARS_MAX", 150)
    with pytest.raises(ScenarioError, match="too long: give several values to fewer options"):
        names(**some)
