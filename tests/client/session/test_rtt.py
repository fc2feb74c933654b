"""client/session/requests.py: how long an answer is awaited."""

import pytest

from kcast.client.session.requests import TIMEOUT_S_FIRST, TIMEOUT_S_MAX, TIMEOUT_S_MIN, RoundTripTime


def after(*rtts_s: float) -> float:
    round_trip = RoundTripTime()
    for rtt_s in rtts_s:
        round_trip.observe(rtt_s)
    return round_trip.timeout_s


def test_before_the_first_answer() -> None:
    assert after() == TIMEOUT_S_FIRST


def test_the_first_answer_counts_for_itself_and_half_of_it_for_variation() -> None:
    """RFC 6298 (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR."""
    assert after(0.4) == pytest.approx(0.4 + 4 * 0.2)


def test_later_answers_are_smoothed() -> None:
    """RFC 6298 (2.3), alpha 1/8 and beta 1/4, the variation first."""
    variation = 0.2 + (abs(0.8 - 0.4) - 0.2) / 4
    assert after(0.4, 0.8) == pytest.approx(0.45 + 4 * variation)


def test_bounds() -> None:
    assert after(*[0.001] * 50) == TIMEOUT_S_MIN
    assert after(2.0) == TIMEOUT_S_MAX


def test_a_steady_slow_path_is_awaited_a_little_longer_than_it_takes() -> None:
    assert 1.0 < after(*[1.0] * 60) < 1.01
