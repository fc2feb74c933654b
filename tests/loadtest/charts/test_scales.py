"""loadtest/charts/scales.py: places on axes."""

from itertools import pairwise
from random import Random

import pytest

from kcast.loadtest.charts import words
from kcast.loadtest.charts.scales import (
    Linear,
    Logarithmic,
    Nines,
    decades,
    from_zero,
    percents,
    shares,
    whole_numbers,
)


def test_nines_are_equally_far_apart_and_one_is_beyond_a_gap() -> None:
    scale = shares([0.9, 0.99999, 1.0])
    assert isinstance(scale, Nines)
    steps = [after - before for before, after in pairwise([scale.at(1 - 10.0**-n) for n in range(1, 6)])]
    assert steps == pytest.approx([steps[0]] * 4)
    assert scale.at(1.0) == 1.0
    assert scale.at(1 - 1e-15) == Nines.END, "what is nearer than any value seen is in the gap"


def test_shares_that_are_far_from_one_are_even() -> None:
    assert isinstance(shares([0.3, 0.9]), Linear)
    assert isinstance(shares([0.3, 1.0]), Linear)
    assert isinstance(shares([]), Linear)


def test_shares_reach_as_far_as_trials_can_tell() -> None:
    scale = shares([0.9, 0.999, 1 - 1e-11], trials=1000)
    assert isinstance(scale, Nines)
    assert scale.nearest < 1 - 1e-5


def test_every_scale_keeps_order_and_has_its_values_within() -> None:
    chance = Random(11)
    for _ in range(300):
        values = sorted(1 - 10 ** chance.uniform(-7, 0) for _ in range(chance.randrange(1, 9)))
        others = sorted(10 ** chance.uniform(-3, 5) for _ in range(chance.randrange(1, 9)))
        for scale, own in (
            (shares(values), values),
            (from_zero(others), others),
            (decades(others, str), others),
        ):
            places = [scale.at(value) for value in own]
            assert places == sorted(places), (scale, own)
            assert all(0 <= place <= 1 for place in places)
            assert len(set(places)) == len(set(own)) or isinstance(scale, Nines)
            assert scale.ticks, (scale, own)
            marks = [scale.at(value) for value, _ in scale.ticks]
            assert marks == sorted(marks)
            assert len(marks) <= 20


def test_scales_are_marked_at_round_numbers() -> None:
    assert [label for _, label in from_zero([7.8]).ticks] == ["0", "2", "4", "6", "8"]
    assert [label for _, label in percents().ticks][::5] == ["0 %", "100 %"]
    log = decades([1.4, 220.0], words.number)
    assert isinstance(log, Logarithmic)
    assert [label for _, label in log.ticks] == ["2", "5", "10", "20", "50", "100", "200"]
    assert [label for _, label in whole_numbers([1, 2, 3, 5, 8]).ticks] == ["1", "2", "3", "5", "8"]
    assert [label for _, label in shares([0.86, 0.999]).ticks][-1] == "100 %"
