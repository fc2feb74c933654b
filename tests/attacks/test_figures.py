"""tests/attacks/figures.py, and what tests/attacks/honest.py makes of times."""

from math import inf

import pytest

from tests.attacks.figures import Figure, amount, at_least, at_most, median, percent, told
from tests.attacks.honest import Honest


@pytest.mark.parametrize(
    ("figure", "is_met"),
    [
        (at_least("delivered", 99.0, 99, "%"), True),
        (at_least("delivered", 98.999, 99, "%"), False),
        (at_most("p50", 20.0, 20, "ms"), True),
        (at_most("p50", 20.001, 20, "ms"), False),
        (at_most("p50", inf, 20, "ms"), False),
        (told("flood", inf), True),
    ],
)
def test_a_figure_is_on_one_side_of_its_bar(figure: Figure, is_met: bool) -> None:
    assert figure.is_met is is_met
    assert ("MISSED" in str(figure)) is not is_met


def test_a_figure_says_its_bar() -> None:
    assert str(at_least("living", 51.8, 99.9, "%")) == "living: 51.80 % (at least 99.90 %: MISSED)"
    assert str(at_most("lost", 0, 0)) == "lost: 0 (at most 0: met)"
    assert str(told("sent", 912, "B")) == "sent: 912 B"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (99.95, "99.95 %"),
        (0.000132, "0.000132 %"),
        (928_020.0, "928,020 %"),
        (1234.5, "1,234 %"),
        (inf, "inf %"),
    ],
)
def test_numbers_are_as_people_read_them(value: float, text: str) -> None:
    assert amount(value, "%") == text


def test_nothing_of_nothing_is_no_success() -> None:
    assert percent(1, 2) == 50
    assert percent(0, 0) == 0
    assert median([]) == inf
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2


def test_honest_traffic_counts_what_was_sent_in_a_time() -> None:
    honest = Honest([1.0, 2.0, 3.0, 4.0], [1.5, 2.001, None, 4.002], 1)
    within = honest.within(2.0, 4.0)
    assert within.sent == [2.0, 3.0]
    assert within.delivered_percent == 50
    assert within.leases_lost == 1
    assert within.p50_ms == pytest.approx(1)
    assert honest.within(5, 6).delivered_percent == 0
    assert honest.within(5, 6).p50_ms == inf


def test_what_never_came_is_the_latest() -> None:
    assert Honest([1.0, 2.0, 3.0], [None, 2.5, None], 0).p50_ms == inf
