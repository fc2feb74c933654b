"""loadtest/charts/text_chart.py: bars and marks with characters."""

import pytest

from kcast.loadtest.charts.curves import MeasuredPoint, Series
from kcast.loadtest.charts.text_chart import text_chart

NAMED = [
    ("all up", Series(0, [MeasuredPoint(k, 1.0) for k in (1, 2, 3)])),
    (
        "140 of 200 down",
        Series(
            2,
            [
                MeasuredPoint(1, 0.66, None, None, 0.67, 0.62, 0.72),
                MeasuredPoint(2, 0.91, None, None, 0.9, 0.87, 0.93),
                MeasuredPoint(3, 0.98, None, None, 0.98, 0.97, 0.99),
            ],
        ),
    ),
    ("recovered", Series(1, [MeasuredPoint(k, 1.0) for k in (1, 2, 3)])),
]


def lines(*, ascii_only: bool = True) -> list[str]:
    return text_chart(NAMED, "K'", "  theory", ascii_only=ascii_only).rstrip("\n").split("\n")


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_chart_fits_a_terminal(ascii_only: bool) -> None:
    drawn = lines(ascii_only=ascii_only)
    assert max(map(len, drawn)) <= 80
    assert len(drawn) == 1 + 3 * 4
    assert "".join(drawn).isascii() == ascii_only


def test_bars_are_as_long_as_their_share() -> None:
    bars = [row.count("#") for row in lines() if "#" in row]
    assert bars == [48, 32, 48, 48, 44, 48, 48, 47, 48]
    assert [row.count("█") for row in lines(ascii_only=False) if " down" in row] == [31, 43, 47]


def test_theory_is_a_mark_in_its_range() -> None:
    marked = [row for row in lines() if "theory" in row]
    assert [row.split("theory")[1].split()[0] for row in marked] == ["[--|-]", "[-|]", "[|"]
    offset = lines()[1].index("#")
    assert [row.index("[") - offset for row in marked] == [29, 41, 46]


def test_only_all_is_shown_as_all() -> None:
    chart = text_chart([("x", Series(0, [MeasuredPoint(1, 1.0), MeasuredPoint(2, 0.999999)]))], "K", "theory")
    assert [row.split()[-2] for row in chart.splitlines()[1:]] == ["100", "99.9999"]
