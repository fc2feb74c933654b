"""loadtest/users/options.py: one table for all fields of a scenario, for both parsers."""

import argparse
from dataclasses import fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.loadtest.users.options import OPTIONS, add_arguments, click_options, read_form

# Of locust's own parser, as far as a prefix of one could be taken for one of ours, or ours for it.
LOCUSTS_DESTINATIONS = {
    "host",
    "num_users",
    "spawn_rate",
    "run_time",
    "tags",
    "profile",
    "json",
    "user_classes",
}


def locust_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser


def click_values(*arguments: str, several: tuple[str, ...] = ()) -> dict[str, Any]:
    got: dict[str, Any] = {}

    @click.command()
    @click_options(several)
    def command(**values: Any) -> None:
        got.update(values)

    result = CliRunner().invoke(command, arguments)
    if result.exit_code:
        raise click.UsageError(result.output)
    return {name: value for name, value in got.items() if value is not None}


def test_each_field_of_a_scenario_is_an_option_with_its_default() -> None:
    assert len({option.field for option in OPTIONS}) == len(OPTIONS) == len(fields(Scenario))
    defaults = {field.name: field.default for field in fields(Scenario)}
    assert {option.field: option.default for option in OPTIONS} == defaults
    assert all(type(option.default) is option.type for option in OPTIONS)


def test_flags_are_named_as_in_other_commands_and_differ() -> None:
    flags = {option.field: option.flag for option in OPTIONS}
    assert flags["ttl_s"] == "--ttl"
    assert flags["delay_ms"] == "--delay"
    assert flags["payload_bytes"] == "--payload"
    assert flags["repeat_interval_s"] == "--repeat-interval"
    assert len(set(flags.values())) == len(flags)
    assert not LOCUSTS_DESTINATIONS & flags.keys()


def test_locusts_options_give_a_scenarios_defaults() -> None:
    given = vars(locust_parser().parse_args([]))
    assert given == {option.field: option.default for option in OPTIONS if option.in_locust}
    assert Scenario(**given) == Scenario()


def test_locust_reads_values_with_their_types() -> None:
    given = locust_parser().parse_args(
        ["--rate", "5", "--topics", "7", "--confirm", "--arrivals", "constant", "--loss-in", "0.5"]
    )
    values = given.rate, given.topics, given.confirm, given.arrivals, given.loss_in
    assert values == (5.0, 7, True, "constant", 0.5)
    with pytest.raises(argparse.ArgumentError):
        locust_parser().parse_args(["--arrivals", "sometimes"])


def test_what_locust_or_the_cluster_file_decides_is_no_option_of_locust() -> None:
    there = {option.field for option in OPTIONS if option.in_locust}
    assert not there & {"servers", "backend", "k", "scheme", "publishers", "subscribers", "duration_s", "by"}


def test_locusts_page_has_few_fields_group_by_group() -> None:
    # What locust looks at; argparse's groups know nothing of it.
    shown = [each for each in locust_parser()._actions if getattr(each, "include_in_web_ui", False)]
    assert {action.dest for action in shown} == {option.field for option in OPTIONS if option.on_page}
    assert {"rate", "topics", "outage", "loss_in"} <= {action.dest for action in shown}
    assert len(shown) <= 12
    groups = [(action.help or "").partition(": ")[0] for action in shown]
    assert groups == sorted(groups, reverse=True) and set(groups) == {"load", "faults"}


def test_a_form_sets_the_fields_that_it_has() -> None:
    form = {"rate": "5", "topics": "7", "outages": "exact", "user_count": "3", "servers": "9", "confirm": "x"}
    assert read_form(form) == {"rate": 5.0, "topics": 7, "outages": "exact"}


def test_a_wrong_field_of_a_form_is_told_by_its_option() -> None:
    for form, message in [
        ({"loss_in": "much"}, "--loss-in is 'much': give a number"),
        ({"topics": "1.5"}, "--topics is '1.5': give a whole number"),
        ({"deadline_s": ""}, "--deadline is '': give a number"),
    ]:
        with pytest.raises(ScenarioError) as told:
            read_form(form)
        assert str(told.value) == message


def test_click_leaves_out_what_is_not_given() -> None:
    assert click_values() == {}
    assert click_values("--ttl", "5", "--avoid-dead", "--no-confirm") == {
        "ttl_s": 5,
        "avoid_dead": True,
        "confirm": False,
    }


def test_click_takes_several_values() -> None:
    several = ("k_prime", "scheme", "confirm", "rate")
    given = click_values(
        *("--k-prime", "1, 2,3", "--scheme", "CH,RCH", "--confirm", "true,false", "--rate", "2"),
        several=several,
    )
    assert given == {"k_prime": (1, 2, 3), "scheme": ("CH", "RCH"), "confirm": (True, False), "rate": (2.0,)}


def test_click_says_which_value_is_wrong() -> None:
    for arguments, complaint in [
        (("--k-prime", "1,x"), "'x' is not a valid integer"),
        (("--k-prime", "1,,2"), "'' is not a valid integer"),
        (("--scheme", "CH,X"), "'X' is not one of"),
    ]:
        with pytest.raises(click.UsageError, match=complaint):
            click_values(*arguments, several=("k_prime", "scheme"))
