"""loadtest/scenario.py: what makes no load test is refused with what to change."""

import json
from typing import Any

import pytest

from kcast.hashring.policy import Policy
from kcast.loadtest.scenario import (
    PAYLOAD_BYTES_MAX,
    TOPICS_MAX,
    Scenario,
    ScenarioError,
    message_id,
    payload,
    topic_name,
)
from kcast.pubsub import wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX


def test_policy() -> None:
    cases: list[Any] = [
        ({}, Policy(5, 3, 5)),
        ({"k": 8, "k_prime": 2}, Policy(8, 2, 8)),
        ({"k": 8, "k_prime": 2, "side": "subscribe"}, Policy(8, 8, 2)),
        ({"scheme": "CH", "k": 4}, Policy(4, 4, 4)),
        ({"scheme": "S"}, Policy(1, 1, 1, "modulo")),
        ({"scheme": "R", "servers": 9}, Policy(9, 9, 9, "all")),
    ]
    for fields, policy in cases:
        assert Scenario(**fields).policy == policy


def test_json_gives_it_back() -> None:
    scenario = Scenario(name="x", seed=7, k=8, k_prime=2, outages="zones", outage=0.25, loss_in=0.02)
    assert Scenario.from_json(json.loads(json.dumps(scenario.as_json()))) == scenario


@pytest.mark.parametrize(
    ("scheme", "unused"), [("S", ["k", "k_prime"]), ("R", ["k", "k_prime"]), ("CH", ["k_prime"]), ("RCH", [])]
)
@pytest.mark.parametrize("number", [0, -1])
def test_a_capture_may_have_any_number_that_its_scheme_does_not_use(
    scheme: Any, unused: list[str], number: int
) -> None:
    """kcast 0.1.0 took them; a new scenario must have none."""
    scenario = Scenario(scheme=scheme, servers=9, outage=0.1)
    for name in ("k", "k_prime"):
        values = {**scenario.as_json(), name: number}
        with pytest.raises(ScenarioError, match=rf"--{name.replace('_', '-')} is {number}: give 1 or more"):
            Scenario.from_json(values)
        if name in unused:
            assert Scenario.from_capture(values) == scenario
        else:
            with pytest.raises(ScenarioError, match="give 1 or more"):
                Scenario.from_capture(values)
    assert Scenario.from_capture(scenario.with_(k=8, k_prime=2).as_json()) == scenario.with_(k=8, k_prime=2)


def test_what_is_no_scenario() -> None:
    cases: list[Any] = [
        ({"colour": 1}, "a scenario has no colour: it was written by another version of kcast"),
        ({"\x7f": 1}, "a scenario has no '.x7f': it was written by another version of kcast"),
        ({"servers": "many"}, "not a scenario: its servers is 'many'"),
        ({"servers": True}, "not a scenario: its servers is True"),
        ({"ttl_s": 2.5}, "not a scenario: its ttl_s is 2.5"),
        ({"name": None}, "not a scenario: its name is None"),
        ({"name": "\ud800"}, r"--name is '\\ud800': give Unicode characters"),
    ]
    for values, complaint in cases:
        with pytest.raises(ScenarioError, match=complaint):
            Scenario.from_json(values)


def test_the_largest_message_of_the_last_topic_can_always_be_vouched_for() -> None:
    body = payload(message_id(9, 1), PAYLOAD_BYTES_MAX)
    assert (body[-16:], len(body)) == (b"0000000900000001", PAYLOAD_BYTES_MAX)
    envelope = b"%@" + b"p" * 43 + b".18446744073709551615 "
    line = wire.publish_line(topic_name(TOPICS_MAX - 1), envelope + body)
    assert len(line) + len("%!   \n") + 22 + 32 + 22 <= DATAGRAM_BYTES_MAX


def test_what_makes_no_load_test_is_refused() -> None:
    cases: list[Any] = [
        ({"loss_in": 1.5}, "--loss-in is 1.5: give a share from 0 to 1"),
        ({"known": 0}, "--known is 0: give a share above 0, up to 1"),
        ({"servers": 0}, "--servers is 0: give 1 or more"),
        ({"publishers": -1}, "--publishers is -1: give 0 or more"),
        ({"duration_s": float("nan")}, "--duration is nan: give a number above 0"),
        ({"spam": float("inf")}, "--spam is inf: give 0 or more, below 1000000"),
        ({"delay_ms": 20_000}, "--delay is 20000: give 0 to 10000 milliseconds"),
        ({"outages": "often"}, "use one of none, independent, exact, zones, rolling"),
        ({"topics": 5, "topics_per_subscriber": 6}, "--topics-per-subscriber is 6: give 1 to 5, the number"),
        ({"payload_bytes": 15}, f"--payload is 15: give 16 to {PAYLOAD_BYTES_MAX}"),
        ({"outages": "exact", "down": 12}, "--down is 12: leave one of the 12 servers running"),
        ({"backend": "file", "outages": "exact", "by": "kill"}, "not started here can only be isolated"),
        ({"k": 2, "k_prime": 3}, "--k-prime is 3: give 2 or less, since --k is 2"),
        ({"ttl_s": 0}, "--ttl is 0: give 1 to 9999999 seconds"),
        ({"ttl_s": 10_000_000}, "--ttl is 10000000: give 1"),
        ({"topics": 0}, "--topics is 0: give 1 or more"),
        ({"topics": TOPICS_MAX + 1}, "--topics is 1000001: give 1,000,000 at most"),
        ({"duration_s": 2e6}, "--duration is 2000000: give a number above 0, below 1000000"),
        ({"delay_ms": 900.0, "jitter_ms": 100.0}, "--deadline is 2: delays and repeats alone take up to 2 s"),
        ({"repeat": 3, "repeat_interval_s": 1.5}, "delays and repeats alone take up to 3 s: give a longer"),
    ]
    for fields, message in cases:
        with pytest.raises(ScenarioError, match=message):
            Scenario(**fields)


def test_what_comes_within_the_deadline_by_plan_is_a_load_test() -> None:
    slow = Scenario(delay_ms=400.0, jitter_ms=100.0, repeat=3, repeat_interval_s=0.4)
    assert Scenario.from_json(slow.as_json()) == slow
    assert len(topic_name(TOPICS_MAX - 1)) == len(topic_name(0))
