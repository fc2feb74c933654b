"""The short forms of `python -m tests.endurance`: they run, and what grows is found."""

import pytest

from tests.endurance import real, virtual
from tests.endurance.flat import growth, is_flat


@pytest.mark.rest
def test_hours_go_by_and_are_measured() -> None:
    told: list[str] = []
    samples = virtual.run(0.1, told.append, sample_s=36.0)
    assert len(samples) == len(told) == 10
    assert growth(samples) < 2.0, "a leak would show, though it is not warm yet"


@pytest.mark.parametrize(
    ("samples", "is_right"),
    [
        ([1, 9, 5, 5, 5, 5, 5.2, 5.2], True),
        ([5, 5, 5, 5, 5, 5, 5, 5.3], False),
        ([1, 2, 3, 4, 5, 6, 7, 8], False),
        ([8, 7, 6, 5, 4, 3, 2, 1], True),
    ],
)
def test_flat_is_judged_by_the_last_quarter_and_the_second(samples: list[float], is_right: bool) -> None:
    assert is_flat(samples) is is_right


def test_few_samples_tell_nothing() -> None:
    with pytest.raises(ValueError, match="7 samples: 8 are needed"):
        growth([1.0] * 7)


@pytest.mark.world
@pytest.mark.rest
def test_a_real_server_and_its_users_are_measured() -> None:
    told: list[str] = []
    outcome = real.run(0.1, told.append)
    assert list(outcome.losses()) == []
    assert len(outcome.server_bytes) == len(outcome.users_bytes) == len(told) >= 14
    assert outcome.came > 100


def test_what_grows_and_what_is_lost_is_told() -> None:
    flat, grown = [5e7] * 16, [5e7] * 12 + [6e7] * 4
    assert list(real.Outcome(flat, flat, 100, 100, []).faults()) == []
    faults = list(real.Outcome(flat, grown, 1000, 998, ["Traceback"]).faults())
    assert faults == ["the clients grew by 1.200", "998 of 1000 messages came", "Traceback"]
