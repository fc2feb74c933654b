import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcast.hashring.intervals import wilson
from kcast.loadtest.results.compare import compare, difference
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import World, simulate
from tests.support.lossy_captures import Network, lossy_capture


def run(path: Path, seed: int = 1, **fields: Any) -> Summary:
    values: dict[str, Any] = {"name": "a", "duration_s": 4.0, "rate": 100.0, "loss_out": 0.2, "k_prime": 1}
    return summarise(simulate(path, Scenario(**(values | fields)), seed))


def test_the_same_test_twice_does_not_differ_but_by_chance(tmp_path: Path) -> None:
    first, second = run(tmp_path, 1), run(tmp_path, 2)
    found = difference(first, second)
    assert found.share == second.share - first.share
    assert found.low <= 0 <= found.high
    assert not found.is_significant
    assert found.changed == {}
    assert found.latency_ratios["p50_ms"] == pytest.approx(1, rel=0.1)
    assert difference(first, first).share == 0


def test_a_network_that_loses_in_rows_is_no_difference_between_runs_of_one_seed() -> None:
    load: dict[str, Any] = {"servers": 12, "publishers": 4, "subscribers": 10, "rate": 25.0, "k_prime": 1}
    scenario, network = Scenario(**load, duration_s=20.0), Network(0.02, 0.02, in_a_row=20.0, of="client")
    runs = [summarise(lossy_capture(scenario, network, seed)) for seed in range(16)]
    told = [difference(*pair).is_significant for pair in zip(runs[::2], runs[1::2], strict=True)]
    assert sum(told) <= 1  # by the plan alone, as if nothing else varied, it would be most of them
    assert all(one.trials_given_outages <= one.trials for one in runs)


def test_a_difference_is_told_with_what_was_changed(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path, loss_out=0.3)
    found = difference(first, second)
    assert found.is_significant
    # Newcombe's interval is a little wider than each share's own.
    assert found.high < 0
    assert found.high - found.low > second.high - second.low
    assert found.changed == {"loss_out": (0.2, 0.3)}
    assert "! more than chance explains" in compare([first], [second]).text()
    assert "!" not in compare([first], [first]).text()
    back = difference(second, first)
    assert (back.share, back.low, back.high) == pytest.approx((-found.share, -found.high, -found.low))


def test_newcombe_s_interval(tmp_path: Path) -> None:
    # His example: 56 of 70 and 48 of 80 differ by 0.2, with 0.0524 to 0.3339.
    world = World(tmp_path, subscribers=1)
    world.message(0)
    any_one = summarise(world.folder())
    counts = ((48, 80), (56, 70))
    first, second = (
        replace(any_one, share=count / of, low=0.0, high=1.0, trials_given_outages=of) for count, of in counts
    )
    found = difference(first, second)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    # Of another test the whole intervals count.
    low, high = wilson(56, 70)
    other = replace(second, scenario=second.scenario.with_(seed=2), low=low, high=high)
    assert difference(first, other).low == pytest.approx(0.2 - ((0.8 - low) ** 2 + 0.4**2) ** 0.5)


def test_outages_that_both_have_do_not_hide_what_was_changed(tmp_path: Path) -> None:
    first = run(tmp_path, outages="independent", outage=0.2, epoch_s=1.0, scheme="CH", k=2)
    second = replace(first, share=first.share - 0.02)
    assert difference(first, second).is_significant
    elsewhere = replace(second, scenario=second.scenario.with_(seed=2))
    assert not difference(first, elsewhere).is_significant


def test_runs_are_compared_scenario_by_scenario(tmp_path: Path) -> None:
    first = [run(tmp_path, name="a"), run(tmp_path, name="b"), run(tmp_path, name="gone")]
    second = [run(tmp_path, name="new"), run(tmp_path, name="b", k_prime=2), run(tmp_path, name="a")]
    found = compare(first, second)
    assert [each.name for each in found.differences] == ["a", "b"]
    assert (found.only_first, found.only_second) == (["gone"], ["new"])
    text = found.text().splitlines()
    assert text[0].split()[:3] == ["scenario", "first", "second"]
    assert text[1].startswith("a")
    assert "+0.000" in text[1]
    assert "x 1" in text[1]
    assert "!" not in text[1]
    assert "!" in text[2]
    assert text[3:] == [
        "! more than chance explains in 19 of 20 cases",
        "b: not the same test: --k-prime 1 -> 2",
        "only in the first run: gone",
        "only in the second run: new",
    ]
    values = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [each["significant"] for each in values["scenarios"]] == [False, True]
    assert values["only_first"] == ["gone"]


def test_figures_that_are_not_valid_are_said_to_be_so(tmp_path: Path) -> None:
    sound = run(tmp_path)
    folder = simulate(tmp_path, sound.scenario)
    broken = summarise(folder, "partial")
    found = compare([sound], [broken])
    assert not found.differences[0].are_valid
    assert found.differences[0].as_json()["valid"] is False
    assert "NOT VALID: delivery of a in the second run: the capture is partial" in found.text()


def test_runs_without_a_scenario_in_common(tmp_path: Path) -> None:
    found = compare([run(tmp_path)], [run(tmp_path, name="b")])
    assert found.text().startswith("the two runs have no scenario in common\n")
    assert "only in the first run: a" in found.text()


def test_without_deliveries_there_is_no_ratio(tmp_path: Path) -> None:
    found = difference(run(tmp_path), run(tmp_path, loss_out=1.0))
    assert set(found.latency_ratios.values()) == {None}
    assert compare([found.first], [found.second]).text().count(" -") >= 2
