"""spark/over_runs.py and its part of the page: runs of a folder over time, without Spark."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kcast.loadtest.results.verdicts import Verdict
from kcast.loadtest.scenario import Scenario
from kcast.spark import command, over_runs
from kcast.spark.findings.findings import Findings
from kcast.spark.report.page import page
from tests.spark.report.test_page import Tree
from tests.support.stored_runs import result, write_run, write_store

SCENARIO = Scenario(name="5-3-5", outages="independent", outage=0.1)
SHARES = [0.99] * 5 + [0.94] * 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", SCENARIO, SHARES)
    return tmp_path / "store"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command.command, [str(argument) for argument in arguments])


def test_runs_stand_side_by_side_with_what_changed(store: Path, tmp_path: Path) -> None:
    done = call("--runs", store, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["run", "began", "kcast", "5-3-5"]
    assert [line.split()[-1] for line in lines[:9]] == [
        "99.00",
        *["(+0.00)"] * 4,
        *["(-5.00!)"] * 4,
    ]
    assert any(
        line.startswith("CHANGED: 5-3-5 from run 6 on: delivered 99.00 % to 94.00 %") for line in lines
    )
    with (tmp_path / "out" / "tables" / "over_runs.csv").open(newline="") as file:
        assert [float(row["share"]) for row in csv.DictReader(file)] == SHARES
    with (tmp_path / "out" / "tables" / "changes.csv").open(newline="") as file:
        assert [row["place"] for row in csv.DictReader(file)] == ["5"]


def test_the_page_shows_levels_and_the_change(store: Path) -> None:
    source = page(over_runs.findings_of(over_runs.read(store)))
    tree = Tree(source)
    assert tree.wrong == tree.active() == []
    words = tree.text().replace("\N{NO-BREAK SPACE}", " ")
    assert "9 runs over time: 1 change found" in words
    assert "the share delivered went from 99.00 % to 94.00 % at run 6 (2026-11-06)" in words
    assert source.count('class="expected"') >= 4, "two levels in both widths"


def test_a_version_that_delivered_nothing_is_seen_to_be_mended(tmp_path: Path) -> None:
    write_store(tmp_path, SCENARIO, [0.0, 0.99])
    words = Tree(page(over_runs.findings_of(over_runs.read(tmp_path)))).text()
    assert "the share delivered went from 0 % to 99.00 % at run 2" in words.replace("\N{NO-BREAK SPACE}", " ")
    assert "+99 points" in words


def test_a_first_run_that_is_not_valid_is_compared_with_none(tmp_path: Path) -> None:
    for day, (share, faults) in enumerate([(0.5, ("it stood still",)), (0.99, ()), (0.99, ())], 1):
        write_run(tmp_path / "s" / str(day), day, [result(SCENARIO, share, delivery_verdict=Verdict(faults))])
    done = call("--runs", tmp_path / "s", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:4]] == ["VALID", "99.00", "(+0.00)"]


def test_a_store_without_change_says_so(tmp_path: Path) -> None:
    write_store(tmp_path, SCENARIO, [0.99, 0.991, 0.989])
    words = Tree(page(over_runs.findings_of(over_runs.read(tmp_path)))).text()
    assert "No figure changed by more than chance explains." in words
    write_run(tmp_path / "other", 20, [result(SCENARIO.with_(name="x"), 1.0)])
    (tmp_path / "alone").mkdir()
    write_store(tmp_path / "alone", SCENARIO, [0.99])
    alone = Tree(page(over_runs.findings_of(over_runs.read(tmp_path / "alone")))).text()
    assert "no scenario was run twice" in alone


def test_json_has_all_and_the_page_is_made_anew_from_it(store: Path, tmp_path: Path) -> None:
    done = call("--runs", store, "--out", tmp_path / "out", "--json")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["type"] for one in objects] == ["over_runs", "report"]
    assert len(objects[0]["results"]) == len(SHARES)
    found = Findings.from_json((tmp_path / "out" / "report.json").read_bytes())
    assert page(found) == (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("condition", "code", "answer"),
    [
        ("delivered < 98 %", 5, "FULFILLED"),
        ("delivered < 94 %", 0, "NOT CERTAIN"),
        ("delivered < 90 %", 0, "NOT FULFILLED"),
        ("p50 > 1 ms", 5, "FULFILLED"),
        ("copies > 4", 0, "NOT FULFILLED"),
        ("other: copies > 4", 5, "NO SUCH SCENARIO"),
    ],
)
def test_conditions_are_on_the_newest_run(
    store: Path, tmp_path: Path, condition: str, code: int, answer: str
) -> None:
    done = call("--runs", store, "--out", tmp_path / "out", "--fail-if", condition)
    assert done.exit_code == code
    assert f": {answer} in " in done.stdout


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    done = call("--runs", tmp_path / "none", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "no such folder: name one that has runs of kcast load in it" in done.stderr
    assert not (tmp_path / "out").exists()
