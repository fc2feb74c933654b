"""loadtest/bench/command.py: the plan and the servers that options stand for."""

from typing import Any

import click
import pytest

from kcast.hashring.policy import Policy
from kcast.loadtest.bench.command import own_servers, plan_of, refuse_own_servers
from kcast.pubsub.wire import TopicError

PUB = {"topic": "t", "size_bytes": 100, "count": None, "duration_s": None, "topics": 1, "publishers": 1}
NO_POLICY = {"scheme": None, "k": None, "publish": None, "subscribe": None}


def test_every_benchmark_ends() -> None:
    for given, ends in (
        ({"rate": 0.0}, (20_000, 30.0, None)),
        ({"rate": 0.0, "count": 7}, (7, None, None)),
        ({"rate": 0.0, "duration_s": 2.0}, (None, 2.0, None)),
        ({"rate": 0.0, "count": 7, "duration_s": 2.0}, (7, 2.0, None)),
        ({"rate": 100.0}, (None, 5.0, 100.0)),
        ({"rate": 100.0, "count": 7}, (7, None, 100.0)),
        ({"rate": 100.0, "duration_s": 2.0}, (None, 2.0, 100.0)),
    ):
        plan = plan_of("pub", {**PUB, **given})
        assert (plan.count, plan.duration_s, plan.rate) == ends


def test_options_of_a_plan_are_taken_and_others_left() -> None:
    options: dict[str, Any] = {"count": 5, "duration_s": None, "topics": 2, "subscribers": 3, "servers": 1}
    plan = plan_of("sub", options)
    assert (plan.count, plan.topics, plan.subscribers) == (5, 2, 3)
    assert options == {"servers": 1}


def test_what_makes_no_plan_is_wrong_usage_and_what_is_no_topic_is_not() -> None:
    with pytest.raises(click.UsageError, match="--count 1 is less than --publishers 2"):
        plan_of("pub", {**PUB, "rate": 0.0, "count": 1, "publishers": 2})
    with pytest.raises(TopicError):
        plan_of("pub", {**PUB, "rate": 0.0, "topic": ""})


def test_there_are_enough_servers_for_the_policy() -> None:
    for given, servers, policy in (
        ({}, 5, Policy(5, 3, 5)),
        ({"servers": 12}, 12, Policy(5, 3, 5)),
        ({"servers": 3}, 3, Policy(3, 2, 3)),
        ({"servers": 1}, 1, Policy(1, 1, 1)),
        ({"k": 1}, 1, Policy(1, 1, 1)),
        ({"k": 2, "servers": 4}, 4, Policy(2, 2, 2)),
        ({"k": 7, "publish": 2}, 7, Policy(7, 2, 7)),
        ({"scheme": "S"}, 1, Policy(1, 1, 1, "modulo")),
        ({"scheme": "S", "servers": 3}, 3, Policy(1, 1, 1, "modulo")),
        ({"scheme": "R", "servers": 4}, 4, Policy.from_scheme("R", servers=4)),
    ):
        options: dict[str, Any] = {"servers": None, **NO_POLICY, **given}
        assert own_servers(options) == (servers, policy), given
        assert options == {}


def test_too_few_servers_for_the_policy_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match=r"policy 3/3/3 needs 3 servers: raise --servers 2, or lower"):
        own_servers({"servers": 2, **NO_POLICY, "k": 3})


def test_a_cluster_has_its_own_servers_and_policy() -> None:
    refuse_own_servers({"servers": None, **NO_POLICY})
    for name in ("servers", *NO_POLICY):
        with pytest.raises(click.UsageError, match=f"--{name}"):
            refuse_own_servers({"servers": None, **NO_POLICY, name: 1})
