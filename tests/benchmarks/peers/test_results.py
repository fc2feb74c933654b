"""What is kept of a run, the bars it is held to, and the tables, plots and page that are made of it."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks.peers.bars import BARS, Bar, Judged, judge
from tests.benchmarks.peers.client_rows import LOADS as CLIENT_LOADS
from tests.benchmarks.peers.client_rows import ClientRow
from tests.benchmarks.peers.kinds import BEFORE, BETTER_OF, NATIVE, PYTHON, kcast, kcasts
from tests.benchmarks.peers.page import filled, markdown
from tests.benchmarks.peers.plots import GROWTHS, MAIN, plots
from tests.benchmarks.peers.results import RowResult, Run, Subject, middle
from tests.benchmarks.peers.rows import SHORT, rows
from tests.benchmarks.peers.server_rows import ServerRow
from tests.benchmarks.peers.tables import aligned, bar_words, columns_of, row_cells, terminal
from tests.support.checkout import ROOT
from tests.support.trees import HERE

PAGE = ROOT / "docs/performance.md"


def figures(server_us: float | None, **more: float) -> dict[str, Any]:
    return {"server_us": server_us, "copies_per_s": 1e6, "p50_us": 300, "p99_us": 900, "share": 1.0, **more}


def handmade() -> Run:
    """A run of three rounds of a row and of a client's; redis-server was not installed."""
    servers = RowResult("1000 topics", list(BETTER_OF), "abc1234", 1_500_000.0)
    servers.subjects = {
        PYTHON: Subject({"1": [figures(1.0), figures(2.2), figures(None)]}, 4e5),
        "nats-server": Subject({"1": [figures(2.0), figures(2.0), figures(4.0)]}, 1.5e6, ["started again"]),
        "redis-server": Subject({"1": [figures(4.0), figures(1.0), figures(3.0)]}, 3e5),
    }
    servers.skipped = {"mosquitto": "it is not installed"}
    clients = RowResult("One client", ["nats-py"])
    clients.subjects = {
        f"{PYTHON}, no confirm": Subject({"saturated": [{"messages_per_s": 60_000, "client_us": 16.0}]}),
        "nats-py": Subject({"saturated": [{"messages_per_s": 40_000, "client_us": 25.0}]}),
    }
    return Run(
        {"processor": "one"},
        "python -m tests.benchmarks.peers",
        {"rounds": 3},
        {"nats-server": "2.9.10", "forwarder": ""},
        {"redis|server": "redis-server is not installed"},
        {"fan-out-1": servers, "client-k1": clients},
    )


def test_a_run_is_the_same_after_json() -> None:
    run = handmade()
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_numbers_are_kept_to_five_digits() -> None:
    run = handmade()
    run.rows["fan-out-1"].unit_per_s = 1_234_567.0
    assert run.to_json()["rows"]["fan-out-1"]["unit_per_s"] == 1_234_600.0


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="measure again"):
        Run.from_json({**handmade().to_json(), "format": 0})


def test_a_ratio_is_made_with_the_better_peer_of_its_round() -> None:
    row = handmade().rows["fan-out-1"]
    # The third round has no figure of kcast.
    assert row.ratios("1", "server_us", PYTHON, BETTER_OF) == [0.5, 2.2]
    assert row.ratios("1", "server_us", "nats-server", BETTER_OF) == [1.0, 2.0, 4.0 / 3.0]
    assert row.ratios("1", "server_us", NATIVE, BETTER_OF) == []
    assert row.ratios("3", "server_us", PYTHON, BETTER_OF) == []


def test_the_better_of_two_rates_is_the_higher() -> None:
    row = handmade().rows["client-k1"]
    row.subjects["other"] = Subject({"saturated": [{"messages_per_s": 80_000}]})
    assert row.ratios("saturated", "messages_per_s", "nats-py", ["nats-py", "other"]) == [0.5]


def test_medians_leave_out_what_could_not_be_told() -> None:
    assert handmade().rows["fan-out-1"].subjects[PYTHON].median("1", "server_us") == 1.6
    assert middle([None, None]) is None
    assert Subject().median("1", "server_us") is None


# Bars.


def judged(limit: float, ratios: list[float], *, is_least: bool = False) -> Judged:
    return Judged(Bar("fan-out-1", "1", "server_us", PYTHON, BETTER_OF, limit, is_least), ratios)


def test_a_bar_is_met_or_missed_by_the_median() -> None:
    assert judged(0.5, [0.1, 0.5, 9.0]).is_met
    assert judged(0.5, [0.1, 0.51, 9.0]).is_met is False
    assert judged(2.0, [1.0, 2.0, 9.0], is_least=True).is_met
    assert judged(2.0, [1.0, 1.9, 9.0], is_least=True).is_met is False
    assert judged(2.0, []).is_met is None


def test_a_bar_is_told_with_whether_it_is_met() -> None:
    beside = "CPU per copy: {} of the better of nats-server and redis-server"
    start = f"{PYTHON} at load 1, {beside}"
    assert bar_words(judged(0.85, [1.2])) == f"{start.format('1.20')} (at most 0.85: MISSED)"
    assert bar_words(judged(0.85, [0.8])) == f"{start.format('0.80')} (at most 0.85: met)"
    assert bar_words(judged(0.85, [])) == f"{start.format('–')} (at most 0.85: not measured)"


def test_all_bars_are_of_rows_loads_and_figures_that_there_are() -> None:
    every = {row.name: row for row in rows(kcasts(HERE), HERE, [kcast(HERE, f"kcast {BEFORE}")])}
    for bar in BARS:
        row = every[bar.row]
        if isinstance(row, ServerRow):
            assert bar.load in row.loads
            names = {kind.name for kind in row.kinds()} | {NATIVE}
            assert bar.subject in names
            assert set(bar.others) <= names
        else:
            assert isinstance(row, ClientRow)
            assert bar.load in CLIENT_LOADS


def test_the_issues_bars_are_all_there() -> None:
    limits = {(bar.row, bar.load, bar.figure, bar.subject): bar.limit for bar in BARS}
    assert len(limits) == len(BARS) == 34
    assert limits["1-to-100", "1", "server_us", PYTHON] == 0.12
    assert limits["fan-out-1", "3", "copies_per_s", NATIVE] == 2.0
    assert limits["client-k5", "saturated", "messages_per_s", f"{NATIVE}, batches"] == 3.0


def test_only_bars_of_a_rows_own_are_judged() -> None:
    found = judge(handmade(), "fan-out-1")
    assert {each.bar.row for each in found} == {"fan-out-1"}
    assert [each.ratio for each in found if each.bar.subject == PYTHON and each.bar.load == "1"] == [1.35]
    assert judge(handmade(), "1-to-1") == []


# Tables.


def test_a_table_has_the_columns_for_which_there_are_figures() -> None:
    run = handmade()
    assert [column.head for column in columns_of(run.rows["client-k1"])] == ["messages/s", "us/message"]
    head, first, *_ = row_cells(run.rows["fan-out-1"])
    assert head[:5] == ["load", "of", "us/copy", "ratio", "from, to"]
    assert first[:5] == ["1", PYTHON, "1.600", "1.35", "0.50, 2.20"]


def test_columns_are_aligned() -> None:
    assert aligned([["load", "of", "x"], ["1", "longer", "1.25"]]) == "load  of         x\n   1  longer  1.25"


def test_the_terminal_has_all_of_a_row() -> None:
    words = terminal(handmade(), "fan-out-1")
    assert "\nload 1 is 1,500,000 copies/s\n" in words
    assert "\nnats-server: started again\n" in words
    assert "\nmosquitto is skipped: it is not installed\n" in words
    assert "\nkcast (Python) sustains 400,000 copies/s\n" in words
    assert "(at most 0.85: MISSED)" in words


def test_a_row_without_figures_says_why() -> None:
    run = handmade()
    run.rows["fan-out-1"] = RowResult("1000 topics", [], skipped={"nats-server": "no memory"})
    assert "nats-server is skipped: no memory" in terminal(run, "fan-out-1")


# The page.


def test_blocks_of_a_page_are_filled_and_all_else_stays() -> None:
    page = "# Head\n<!-- measured: fan-out-1 -->\nold\n<!-- measured until here -->\nwords\n"
    found = filled(page, handmade())
    assert found.startswith("# Head\n<!-- measured: fan-out-1 -->\n")
    assert found.endswith("\n<!-- measured until here -->\nwords\n")
    assert "old" not in found
    assert "mosquitto is skipped: it is not installed." in found
    assert "| 1 | kcast (Python) | 1.600 | 1.35 | 0.50, 2.20 |" in found
    assert filled(found, handmade()) == found


def test_all_parts_of_a_page_can_be_filled() -> None:
    page = "".join(
        f"<!-- measured: {name} -->\n<!-- measured until here -->\n" for name in ("about", "bars", "highest")
    )
    found = filled(page, handmade())
    assert "| nats-server | 2.9.10 |" in found
    assert "forwarder" not in found.partition("bars")[0]  # it has no version
    assert "redis-server is not installed" in found
    assert "| fan-out-1 | 400,000 | 1,500,000 | 300,000 |" in found
    assert "| at most 0.85 | 1.35 | MISSED |" in found


def test_a_row_that_was_not_measured_cannot_be_filled_in() -> None:
    with pytest.raises(ValueError, match="has a row 1-to-1, which was not measured"):
        filled("<!-- measured: 1-to-1 -->\n<!-- measured until here -->\n", handmade())


def test_bars_in_cells_do_not_break_tables() -> None:
    assert markdown([["a|b"], ["c"]]) == ["| a\\|b |", "|---|", "| c |"]


def test_plots_are_drawn_of_what_there_is() -> None:
    found = dict(plots(handmade()))
    assert set(found) == {"cost"}
    words = "".join(ElementTree.fromstring(found["cost"]).itertext())
    assert "nats-server" in words
    assert "fan-out 1" in words
    assert "mosquitto" not in words


def test_plots_name_rows_that_there_are() -> None:
    names = {row.name for row in rows(kcasts(HERE), HERE, [])}
    drawn = {name for growth in GROWTHS for name in growth.rows.values()}
    assert {*MAIN, *drawn, *SHORT} <= names


def test_names_of_rows_are_their_own() -> None:
    every = rows(kcasts(HERE), HERE, [])
    assert len({row.name for row in every}) == len(every)


def test_the_page_is_what_was_measured() -> None:
    run = Run.from_json(json.loads(PAGE.with_suffix(".json").read_text()))
    assert filled(PAGE.read_text(), run) == PAGE.read_text()
    drawn = {f"performance-{name}.svg": drawing for name, drawing in plots(run)}
    assert {path.name: path.read_text() for path in PAGE.parent.glob("performance-*.svg")} == drawn
    assert all(f"({name})" in PAGE.read_text() for name in drawn)


def test_the_page_has_each_row() -> None:
    page = PAGE.read_text()
    every = [row.name for row in rows(kcasts(HERE), HERE, [])]
    assert [name for name in every if f"<!-- measured: {name} -->" not in page] == []
    assert [name for name in every if f"`{name}`" not in page] == []
