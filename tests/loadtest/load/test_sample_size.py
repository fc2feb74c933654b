"""loadtest/load/sample_size.py and wanted_width.py: how long a test must be, and runs until it is enough."""

import io
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcast.hashring.intervals import wilson
from kcast.hashring.policy import Policy
from kcast.loadtest.capture.folder import ScenarioFolder, create_run, open_run
from kcast.loadtest.load import run, sample_size
from kcast.loadtest.load.sample_size import Load, detection, duration_for_width, load_of, planned
from kcast.loadtest.load.view import Watcher
from kcast.loadtest.load.wanted_width import WantedWidth
from kcast.loadtest.results.summary import Summary
from kcast.loadtest.scenario import Scenario
from tests.support.stored_runs import result

DEFAULT = Load(20, 10, 10)
NETWORK: dict[str, Any] = {"servers": 12, "outages": "independent", "outage": 0.1, "loss_in": 0.02}
SCENARIO = Scenario(name="5-3-5", loss_out=0.02, **NETWORK)


# Theory.


def test_the_load_of_an_epoch_is_that_of_the_scenario() -> None:
    # 4 publishers of 25 messages/s for 2 s on 20 topics, of which each of 20 subscribers has 10.
    assert load_of(SCENARIO) == DEFAULT
    assert DEFAULT.pairs == 2000


def test_the_effective_size_is_between_one_and_all_pairs() -> None:
    found = planned(SCENARIO, DEFAULT)
    assert found is not None
    assert found.share == pytest.approx(0.9975, abs=1e-4)
    assert 1 < found.trials < found.trials_given_outages < DEFAULT.pairs


def test_the_sample_size_of_two_proportions_has_the_power_that_it_is_for() -> None:
    first, second = 0.95, 0.93
    size = round(sample_size.trials_for_difference(first, second))
    random = np.random.default_rng(1)
    shares = [random.binomial(size, share, 20_000) / size for share in (first, second)]
    mean = (shares[0] + shares[1]) / 2
    is_seen = np.abs(shares[0] - shares[1]) > 1.96 * np.sqrt(2 * mean * (1 - mean) / size)
    assert is_seen.mean() == pytest.approx(sample_size.POWER, abs=0.015)
    assert sample_size.trials_for_difference(0.9, 0.9) == inf


def test_runs_of_one_seed_need_fewer_epochs() -> None:
    found = detection(Policy(5, 3, 5), 0.001, DEFAULT, epoch_s=2.0, loss_out=0.02, **NETWORK)
    assert found is not None
    assert found.epochs > 4 * found.epochs_same_seed > 4
    told = found.as_json()
    assert told["duration_s"] == found.epochs * 2.0 and told["pairs"] == found.epochs * 2000
    coarse = detection(Policy(5, 3, 5), 0.01, DEFAULT, epoch_s=2.0, loss_out=0.02, **NETWORK)
    assert coarse is not None and coarse.epochs < found.epochs / 20


def test_where_there_is_no_exact_theory_nothing_is_told() -> None:
    for policy, settings in [
        (Policy(5, 3, 5), {"servers": 12}),  # nothing is lost
        (Policy(5, 4, 4), NETWORK),  # both sides draw
        (Policy(5, 3, 5), {**NETWORK, "repeat": 2}),
        (Policy(5, 3, 5), {**NETWORK, "ttl_s": 2}),  # leases end in outages
    ]:
        assert detection(policy, 0.001, DEFAULT, epoch_s=2.0, **settings) is None


def test_every_scheme_has_its_scenario() -> None:
    for policy in [Policy(5, 3, 5), Policy(5, 5, 2), Policy(3, 3, 3), Policy(1, 1, 1, placement="modulo")]:
        assert detection(policy, 0.01, DEFAULT, epoch_s=2.0, **NETWORK) is not None


def test_the_planned_length_is_the_least_that_is_enough() -> None:
    for width in [0.05, 0.01, 0.002]:
        duration_s = duration_for_width(SCENARIO, width)
        found = planned(SCENARIO, DEFAULT)
        assert duration_s is not None and found is not None
        epochs = duration_s / SCENARIO.epoch_s
        assert epochs == int(epochs)
        for count, is_enough in ((epochs, True), (epochs - 1, False)):
            low, high = wilson(found.share * found.trials * count, found.trials * count)
            assert (high - low <= width) is is_enough or count == 0


# Runs.

WANTED = WantedWidth(0.02, 300.0)


def test_the_first_try_is_as_long_as_the_plan_says() -> None:
    planned_s = duration_for_width(SCENARIO, 0.02)
    assert WANTED.first_try(SCENARIO).duration_s == planned_s
    assert WantedWidth(0.0001, 300.0).first_try(SCENARIO).duration_s == 300.0
    rough = SCENARIO.with_(by="kill")
    assert WANTED.first_try(rough) == rough, "there is no plan to go by"


def at(duration_s: float, low: float, high: float, share: float = 0.98) -> Summary:
    return result(SCENARIO.with_(duration_s=duration_s), share, low=low, high=high)


def test_the_next_try_is_longer_as_the_width_asks() -> None:
    assert WANTED.next_try(at(20, 0.97, 0.99)) is None, "narrow enough"
    longer = WANTED.next_try(at(20, 0.95, 0.99))
    assert longer is not None and longer.duration_s == pytest.approx(20 * 4 * 1.15, abs=2)
    whole = WANTED.next_try(at(20, 0.96, 1.0, share=1.0))
    assert whole is not None and whole.duration_s == pytest.approx(20 * 2 * 1.15, abs=2)
    bounded = WANTED.next_try(at(200, 0.9, 0.99))
    assert bounded is not None and bounded.duration_s == 300
    assert WANTED.next_try(at(300, 0.9, 0.99)) is None, "no longer than that"
    assert WANTED.next_try(result(SCENARIO, 0.0, pairs=0, low=0.0, high=1.0)) is None


def test_what_was_not_reached_is_told_with_what_to_do() -> None:
    assert WANTED.shortfall(at(20, 0.97, 0.99)) == ""
    told = WANTED.shortfall(at(300, 0.9, 0.99))
    assert told.startswith(
        "5-3-5: the interval is 9 points wide, more than 2, after 5 min 0 s: give a greater"
    )


def test_a_scenario_is_run_again_until_its_interval_is_narrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[float] = []

    def run_one(folder: ScenarioFolder, *_: object) -> Summary:
        scenario = folder.scenario
        lengths.append(scenario.duration_s)
        half = 0.08 / scenario.duration_s**0.5
        summary = result(scenario, 0.9, low=0.9 - half, high=0.9 + half)
        folder.finish("complete", results=summary.as_json())
        return summary

    monkeypatch.setattr(run, "run_one", run_one)
    scenarios = [SCENARIO.with_(duration_s=10.0), SCENARIO.with_(name="other", duration_s=100.0)]
    folder = create_run(tmp_path / "run", scenarios, seed=1)
    watcher, results = Watcher(said := io.StringIO()), dict[str, Summary]()
    run.run_all(folder, scenarios, run.RunSettings(), watcher, results, WANTED)
    assert lengths[0] == 10 and lengths[1] > 70 and lengths[2:] == [100]
    assert said.getvalue().count("once more, for") == 1
    again = open_run(tmp_path / "run")
    assert [each.scenario.duration_s for each in again.scenarios] == lengths[1:]
    assert [each.status for each in again.scenarios] == ["complete"] * 2
    assert [path.name for path in tmp_path.glob("run/run=*/.partial*")] == [".partial-scenario=5-3-5-1"]
