"""loadtest/charts/words.py: numbers as people read them."""

from collections.abc import Callable
from random import Random

import pytest

from kcast.loadtest.charts import words


@pytest.mark.parametrize(
    ("share", "told"),
    [
        *((0.0, "0 %"), (1.0, "100 %"), (0.5, "50.00 %"), (0.99774, "99.77 %"), (0.8622, "86.22 %")),
        *((0.99993, "99.993 %"), (0.999995, "99.9995 %"), (0.00012, "0.01 %"), (0.00002, "0.002 %")),
        *((1 - 1e-9, "> 99.99999 %"), (1e-9, "< 0.00001 %"), (0.99999999999, "> 99.99999 %")),
        (None, "–"),
    ],
)
def test_percent(share: float | None, told: str) -> None:
    assert words.percent(share).replace("\N{NO-BREAK SPACE}", " ") == told


def test_percent_never_says_all_or_nothing_of_what_is_less_or_more() -> None:
    chance = Random(5)
    for _ in range(2000):
        tiny = 10 ** chance.uniform(-15, -0.31)
        assert words.percent(1 - tiny) != words.percent(1.0), tiny
        assert words.percent(tiny) != words.percent(0.0), tiny


@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        (words.number, 0.0, "0"),
        (words.number, 1234567.0, "1,234,567"),
        (words.number, 2.5, "2.5"),
        (words.number, 0.012345, "0.0123"),
        (words.number, 33333.4, "33,333"),
        (words.number, float("inf"), "∞"),
        (words.number, float("-inf"), "−∞"),
        (words.significant, float("inf"), "∞"),
        (words.milliseconds, float("inf"), "∞ s"),
        (words.milliseconds, 2.19, "2.19 ms"),
        (words.milliseconds, 3.0, "3.00 ms"),
        (words.milliseconds, 131.0, "131 ms"),
        (words.milliseconds, 1200.0, "1.20 s"),
        (words.milliseconds, 0.085, "85.0 µs"),
        (words.milliseconds, 0.0, "0 ms"),
        (words.brief_milliseconds, 10.0, "10 ms"),
        (words.seconds, 0.35, "0.35 s"),
        (words.seconds, 735.0, "12 min 15 s"),
        (words.seconds, 120.0, "2 min"),
        (words.probability, 0.42, "0.42"),
        (words.probability, 1e-9, "< 0.001"),
        (words.probability, 0.9996, "> 0.99"),
        (words.brief_percent, 0.025, "2.5 %"),
        (words.brief_percent, 1 / 3, "33.33 %"),
    ],
)
def test_figures(form: Callable[[float], str], value: float, told: str) -> None:
    assert form(value).replace("\N{NO-BREAK SPACE}", " ") == told


def test_lists_and_spans() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(list("abcdef")) == "a, b, c and 3 more"
    assert words.span([3, 1, 2], str) == "from 1 to 3"
    assert words.span([2, 2], str) == "2"
    assert words.count(1, "cell") == "1\N{NO-BREAK SPACE}cell"
    assert words.count(1200, "cell") == "1,200\N{NO-BREAK SPACE}cells"


def test_times_sizes_and_latencies_are_short() -> None:
    assert [words.duration(value) for value in (0.4, 59, 60, 725.4, 12_000)] == [
        *("0 s", "59 s", "1 min 0 s", "12 min 5 s", "3 h 20 min")
    ]
    assert [words.size(value) for value in (0, 999, 1000, 123_456, 5.44e6, 2e18)] == [
        *("0 B", "999 B", "1.0 kB", "123 kB", "5.4 MB", "2000 PB")
    ]
    assert [words.significant(value) for value in (0.0412, 0.412, 1.236, 12.34, 1240)] == [
        *("0.0412", "0.412", "1.24", "12.3", "1,240")
    ]
