"""spark/report/met.py: copies met what the test asked for, and what the network did besides."""

import pytest

from kcast.loadtest.charts.words import percent
from kcast.loadtest.scenario import Scenario
from kcast.spark.analysis import tables_of
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report import answer, what_if
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.met import met
from tests.support.lossy_captures import Network, lossy_capture
from tests.support.report_findings import row
from tests.support.spark_cells import as_cells, sums_of

LOSSY = Network(0.05, 0.03)


def found_on(network: Network, *, subscribers: int, has_taps: bool) -> Findings:
    """What the analysis finds of a test that asks for no loss, on such a network."""
    scenario = Scenario(
        k_prime=2,
        rate=40.0,
        topics_per_subscriber=20,
        subscribers=subscribers,
        backend="processes" if has_taps else "file",
    )
    cells = as_cells([lossy_capture(scenario, network, 3, has_taps=has_taps)])
    return Findings({}, (), tables_of([each.cell for each in cells], sums_of(each.part() for each in cells)))


@pytest.mark.parametrize("has_taps", [True, False])
def test_what_the_network_lost_is_told_and_reckoned_with(has_taps: bool) -> None:
    found = found_on(LOSSY, subscribers=10, has_taps=has_taps)
    known, named = met(found, {0}), NamedCells.of(found)
    assert known is not None and known.down == 0 and known.is_apart
    assert known.loss_in == pytest.approx(LOSSY.loss_in, abs=0.01)
    assert known.loss_out == pytest.approx(LOSSY.loss_out, abs=0.01)
    lost = f"{percent(known.loss_in, 1)} were lost on the way to servers"
    assert (
        answer.in_fact(found, named) == f"In fact, {lost} and {percent(known.loss_out, 1)} on the way back."
    )
    section = what_if.section(found, named)
    assert section is not None and lost in section.says


def test_it_is_not_said_on_which_way_where_that_is_not_known() -> None:
    found = found_on(LOSSY, subscribers=1, has_taps=False)
    known, named = met(found, {0}), NamedCells.of(found)
    assert known is not None and not known.is_apart
    assert known.loss_in == pytest.approx(1 - 0.95 * 0.97, abs=0.02)
    assert known.loss_out == 0
    lost = f"{percent(known.loss_in, 1)} were lost on the way to servers or back"
    assert answer.in_fact(found, named) == f"In fact, {lost}."
    section = what_if.section(found, named)
    assert section is not None and lost in section.says


def test_of_what_the_plan_left_the_network_lost_its_share() -> None:
    paths = {"down": 1000, "loss-in": 900, "network-in": 900, "loss-out": 720, "delivered": 6480}
    unknown = dict.fromkeys(column.name for column in TABLES["losses"])
    losses = [
        {**unknown, "cell": cell, "leg": leg, "share": share, "lines": lines}
        for cell, lines, shares in ((0, 1000, (0.1, 0.0, 0.1)), (1, 3000, (0.02, 0.04, 0.0592)))
        for leg, share in zip(("in", "out", "both"), shares, strict=True)
    ]
    attribution = [
        row("attribution", cell, cause, "", 0, 0.0, number)
        for cell in (0, 1, 2)
        for cause, number in paths.items()
    ]
    found = Findings({}, (), {"attribution": attribution, "losses": losses})
    assert met(found, {2}) == pytest.approx((0.1, 0.1, 0.1, True))
    assert met(found, {0}) == pytest.approx((0.1, 1 - 0.9 * 0.9, 0.1, True))
    assert met(found, {0, 1, 2}) == pytest.approx((0.1, 1 - 0.9 * 0.96, 1 - 0.9 * 0.97, True))
