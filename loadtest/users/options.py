"""The options of a load test: one table, from Scenario's fields, for `kcast load` and for locust's parser.

An option has the name of its field, without the unit; the unit is its metavar, as in all commands of kcast.
Locust has no option for what it decides itself (number of users, duration), or what the cluster file says
(servers, policy).
"""

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

import click

from kcast.loadtest.scenario import (
    UNITS,
    Arrivals,
    Backend,
    By,
    Outages,
    Scenario,
    ScenarioError,
    option_name,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Group = Literal["test", "servers", "policy", "clients", "load", "faults"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "backend": tuple(name for name in get_args(Backend) if name != "file"),
    "scheme": ("S", "R", "CH", "RCH"),
    "side": ("publish", "subscribe"),
    "arrivals": get_args(Arrivals),
    "outages": get_args(Outages),
    "by": get_args(By),
}
_NOT_IN_LOCUST = {
    *("backend", "servers", "scheme", "k", "k_prime", "side"),
    *("publishers", "subscribers", "mixed", "duration_s", "by", "spam", "offline"),
}
_ON_LOCUSTS_PAGE = {
    *("topics", "topics_per_subscriber", "rate", "payload_bytes", "deadline_s"),
    *("outages", "outage", "loss_in", "loss_out", "delay_ms"),
}
"""What one changes from test to test. All others are options of locust's command line."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: the field that it sets, and how a command line shows it. A `bool` option is a flag."""

    field: str
    type: type[int] | type[float] | type[str] | type[bool]
    default: int | float | str | bool
    group: Group
    help: str
    choices: tuple[str, ...]
    metavar: str | None
    in_locust: bool
    on_page: bool

    @property
    def flag(self) -> str:
        """The option on a command line, such as `--repeat-interval`."""
        return option_name(self.field)

    @property
    def default_text(self) -> str:
        """The default as help texts show it."""
        text = f"{self.default:g}" if self.type in (int, float) else str(self.default)
        return text.lower() if self.type is bool else text


class Several(click.types.StringParamType):
    """A parameter type: values with commas between them, as a tuple."""

    def __init__(self, option: Option) -> None:
        self._one = _click_type(option)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts each value as the option does."""
        texts = value.split(",") if isinstance(value, str) else value
        return tuple(self._one.convert(text.strip(), param, ctx) for text in texts)


def _option(field: str, group: Group, help: str) -> Option:  # noqa: A002 - the name in both parsers
    default, choices, metavar = _DEFAULTS[field], _CHOICES.get(field, ()), None
    if not choices and not isinstance(default, bool):
        unit = next((unit for unit in UNITS if field.endswith(unit)), "")
        metavar = UNITS.get(unit) or {int: "N", float: "X", str: "TEXT"}[type(default)]
    return Option(
        *(field, type(default), default, group, help, choices, metavar),
        in_locust=field not in _NOT_IN_LOCUST,
        on_page=field in _ON_LOCUSTS_PAGE,
    )


_DEFAULTS = {each.name: each.default for each in fields(Scenario) if each.default is not MISSING}

OPTIONS: tuple[Option, ...] = (
    _option("name", "test", "Name of the scenario in the capture."),
    _option("seed", "test", "Seed of all that is random: schedules, topics, outages, losses."),
    _option("backend", "servers", "Servers run in processes, all in one process (lab), or in containers."),
    _option("servers", "servers", "Number of servers."),
    _option("ttl_s", "servers", "The servers' ttl: how long a lease lasts unless it is renewed."),
    _option(
        "scheme", "policy", "Both sides use K servers (CH), one K' (RCH); S: one server, R: random ones."
    ),
    _option("k", "policy", "K: number of servers of a topic."),
    _option("k_prime", "policy", "K': how many of them one side uses; the other uses all K."),
    _option("side", "policy", "The side that uses K': 5/3/5 is K = 5, K' = 3 and publish."),
    _option("renewals", "clients", "M: how often a lease is renewed in one ttl."),
    _option("repeat", "clients", "How many times each message is sent."),
    _option("repeat_interval_s", "clients", "Time between two sends of a message."),
    _option("confirm", "clients", "Ask servers for receipts."),
    _option("avoid_dead", "clients", "Publish to servers that seem alive; theory does not cover this."),
    _option("publishers", "load", "Users that publish."),
    _option("subscribers", "load", "Users that subscribe."),
    _option("mixed", "load", "Users that do both, on one socket."),
    _option("topics", "load", "Number of topics."),
    _option("topics_per_subscriber", "load", "Number of topics that each subscriber draws."),
    _option("rate", "load", "Messages per second of each publisher."),
    _option("arrivals", "load", "How a publisher's messages are spaced: at random (poisson) or evenly."),
    _option("burst", "load", "How many messages a publisher publishes at once, on one topic."),
    _option("spam", "load", "Messages per second of a spammer; subscribers then limit what one sends."),
    _option("payload_bytes", "load", "Size of a message's payload."),
    _option("duration_s", "load", "How long messages are published."),
    _option("deadline_s", "load", "A message not delivered within this time is missed."),
    _option("outages", "faults", "How the servers that are down are drawn."),
    _option("outage", "faults", "Share of servers (or zones) that are down at any time, from 0 to 1."),
    _option("down", "faults", "Number of servers that are down at any time; --outages exact."),
    _option("zones", "faults", "Number of zones, each of which fails as a whole; --outages zones."),
    _option(
        "stratified", "faults", "As many outages in all as planned: only which servers, and when, is random."
    ),
    _option("epoch_s", "faults", "Time after which the servers that are down are drawn again."),
    _option("by", "faults", "What an outage is: cut off from all clients, mute, killed, or halted."),
    _option("known", "faults", "Share of the servers that each client knows, above 0, up to 1."),
    _option("offline", "faults", "Share of subscribers away for a quarter of the load; all hold logs then."),
    _option("loss_in", "faults", "Share of datagrams lost from clients to servers, from 0 to 1."),
    _option("loss_out", "faults", "Share of datagrams lost from servers to clients, from 0 to 1."),
    _option("duplicate", "faults", "Share of datagrams sent twice, on each leg, from 0 to 1."),
    _option("reorder", "faults", "Share of datagrams that others overtake, on each leg, from 0 to 1."),
    _option("delay_ms", "faults", "Delay added to each leg."),
    _option("jitter_ms", "faults", "Random further delay of each datagram, up to this."),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that locust has, stored under their fields' names.

    Some are on the page of its web UI, too. That has no groups: so a group's fields stand together there, and
    each begins with its name.
    """
    made: dict[str, Any] = {}
    for option in OPTIONS:
        if not option.in_locust:
            continue
        group = made.get(option.group)
        if group is None:
            group = made[option.group] = parser.add_argument_group(f"kcast: {option.group}")
        given: dict[str, Any] = {"dest": option.field, "default": option.default, "help": option.help}
        if option.type is bool:
            given["action"] = "store_true"
        else:
            given |= {"type": option.type, "metavar": option.metavar}
            if option.choices:
                given |= {"choices": option.choices, "metavar": "{" + ",".join(option.choices) + "}"}
            given["help"] += f" Default {option.default_text}."
        if option.on_page:
            given["help"] = f"{option.group}: {given['help']}"
        action = group.add_argument(option.flag, **given)
        # Locust's own `add_argument` sets these; that of an argument group does not.
        for name in ("include_in_web_ui", "is_secret", "is_required", "is_multiple"):
            setattr(action, name, name == "include_in_web_ui" and option.on_page)


def read_form(form: Mapping[str, str]) -> dict[str, int | float | str]:
    """Returns the fields of a scenario that a form of the web UI sets. Raises ScenarioError."""
    given: dict[str, int | float | str] = {}
    for option in OPTIONS:
        text = form.get(option.field)
        if not option.in_locust or option.type is bool or text is None:
            continue
        try:
            given[option.field] = option.type(text)
        except ValueError:
            what = "a whole number" if option.type is int else "a number"
            raise ScenarioError(f"{option.flag} is {text!r}: give {what}") from None
    return given


def click_options(several: Collection[str] = ()) -> Callable[[Function], Function]:
    """Returns a decorator that adds all options to a click command, under their fields' names.

    An option that is not given is None, so that a preset can set it. Those in `several` take values with
    commas between them, and are tuples. Scenarios of `kcast load` have names by what is in them.
    """

    def decorate(function: Function) -> Function:
        for option in reversed([each for each in OPTIONS if each.field != "name"]):
            function = _click_option(option, option.field in several)(function)
        return function

    return decorate


def _click_option(option: Option, is_several: bool) -> Callable[[Function], Function]:
    if option.type is bool and not is_several:
        flags = f"{option.flag}/--no-{option.flag[2:]}"
        return click.option(flags, option.field, default=None, help=option.help)
    metavar = "|".join(option.choices) if option.choices else option.metavar or "true|false"
    return click.option(
        *(option.flag, option.field),
        type=Several(option) if is_several else _click_type(option),
        metavar=f"{metavar}[,...]" if is_several else metavar,
        default=None,
        help=f"{option.help} Default {option.default_text}.",
    )


def _click_type(option: Option) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    return {int: click.INT, float: click.FLOAT, str: click.STRING, bool: click.BOOL}[option.type]
