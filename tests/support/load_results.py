"""What the results of a load test have to be."""

from typing import Any


def assert_sound(result: dict[str, Any]) -> None:
    """Deliveries are valid, and each miss has a cause."""
    assert result["delivery_verdict"] == {"valid": True, "reasons": []}
    assert result["unexplained"] == 0
    assert sum(result["causes"].values()) == result["pairs"] - result["delivered"]


def assert_as_expected(result: dict[str, Any], slack: float = 2.0) -> None:
    """The share is theory's, given what happened; the 95 % range, widened by `slack`."""
    share, expected = result["share"], result["expected"]
    low, high = result["expected_low"], result["expected_high"]
    assert expected - slack * (expected - low) - 1e-9 <= share, result
    assert share <= expected + slack * (high - expected) + 1e-9, result
