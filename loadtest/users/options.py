"""The options of a load test, from Scenario's fields: one table for `kcast load` and for locust's parser.

An option's name is its field's without the unit, which is its metavar instead, as in all commands of kcast.
Where locust decides something itself (how many users there are, how long it takes), or the cluster file does
(servers and policy), locust has no such option.
"""

import argparse
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

import click

from kcast.loadtest.scenario import Arrivals, Backend, By, Outages, Scenario

Function = TypeVar("Function", bound=Callable[..., Any])
Group = Literal["test", "servers", "policy", "clients", "load", "faults"]

UNITS = {"_s": "SECONDS", "_ms": "MS", "_bytes": "BYTES"}
SCHEMES = ("S", "R", "CH", "RCH")
SIDES = ("publish", "subscribe")


@dataclass(frozen=True, slots=True)
class Option:
    """An option: the field that it sets, and how a command line shows it. A `bool` one is a flag."""

    field: str
    type: type[int] | type[float] | type[str] | type[bool]
    default: int | float | str | bool
    group: Group
    help: str
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    in_locust: bool = True

    @property
    def flag(self) -> str:
        """Its name on a command line, as in `--repeat-interval`."""
        unit = next((unit for unit in UNITS if self.field.endswith(unit)), "")
        return "--" + self.field.removesuffix(unit).replace("_", "-")


class Several(click.types.StringParamType):
    """Values with commas between them, for an option of a grid; becomes a tuple."""

    def __init__(self, option: Option) -> None:
        self._one = _click_type(option)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Each of the values as the option has it."""
        texts = value.split(",") if isinstance(value, str) else value
        return tuple(self._one.convert(text.strip(), param, ctx) for text in texts)


def _option(
    field: str,
    group: Group,
    help: str,  # noqa: A002 - its name in both parsers
    *,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
    in_locust: bool = True,
) -> Option:
    default = _DEFAULTS[field]
    if not choices and metavar is None and not isinstance(default, bool):
        unit = next((unit for unit in UNITS if field.endswith(unit)), "")
        metavar = UNITS.get(unit) or {int: "N", float: "X", str: "TEXT"}[type(default)]
    return Option(field, type(default), default, group, help, choices, metavar, in_locust)


_DEFAULTS = {each.name: each.default for each in fields(Scenario) if each.default is not MISSING}

OPTIONS: tuple[Option, ...] = (
    _option("name", "test", "What the capture calls this scenario."),
    _option("seed", "test", "Decides all that is left to chance: schedules, topics, outages, losses."),
    _option(
        *("backend", "servers", "How servers run: processes, many in one process (lab), or containers."),
        choices=tuple(name for name in get_args(Backend) if name != "file"),
        in_locust=False,
    ),
    _option("servers", "servers", "How many servers.", in_locust=False),
    _option("ttl_s", "servers", "The servers' ttl, how long a lease lives unless renewed."),
    _option("scheme", "policy", "Who uses how many servers of a topic.", choices=SCHEMES, in_locust=False),
    _option("k", "policy", "K: servers of a topic, for CH and RCH.", in_locust=False),
    _option("k_prime", "policy", "K': how many of them one side uses, for RCH.", in_locust=False),
    _option("side", "policy", "Which side that is.", choices=SIDES, in_locust=False),
    _option("renewals", "clients", "M: renewals of a lease in one ttl."),
    _option("repeat", "clients", "How often each message is sent in all."),
    _option("repeat_interval_s", "clients", "Between a message's repeats."),
    _option("confirm", "clients", "Ask each server for a receipt."),
    _option("avoid_dead", "clients", "Prefer servers that are believed alive; theory knows nothing of that."),
    _option("publishers", "load", "Users that publish.", in_locust=False),
    _option("subscribers", "load", "Users that subscribe.", in_locust=False),
    _option("mixed", "load", "Users that do both, on one socket.", in_locust=False),
    _option("topics", "load", "Topics in all."),
    _option("topics_per_subscriber", "load", "Topics that each subscriber draws of them."),
    _option("rate", "load", "Messages a second of each publisher."),
    _option("arrivals", "load", "Gaps between a publisher's messages.", choices=get_args(Arrivals)),
    _option("payload_bytes", "load", "Size of a message's payload."),
    _option("duration_s", "load", "How long messages are published.", in_locust=False),
    _option("deadline_s", "load", "A delivery later than this is a miss."),
    _option("outages", "faults", "How outages are drawn.", choices=get_args(Outages)),
    _option("outage", "faults", "Share of servers, or zones, down at a time, from 0 to 1."),
    _option("down", "faults", "Servers down at a time, for exact."),
    _option("zones", "faults", "Zones that fail as a whole, for zones."),
    _option("epoch_s", "faults", "How long an outage lasts until all are drawn anew."),
    _option("by", "faults", "What an outage is, in fact.", choices=get_args(By), in_locust=False),
    _option("known", "faults", "Share of the servers that each client knows, above 0 up to 1."),
    _option("loss_in", "faults", "Share of datagrams lost from clients to servers, from 0 to 1."),
    _option("loss_out", "faults", "Share of datagrams lost from servers to clients, from 0 to 1."),
    _option("duplicate", "faults", "Share of datagrams doubled, on each leg, from 0 to 1."),
    _option("reorder", "faults", "Share of datagrams overtaken by others, on each leg, from 0 to 1."),
    _option("delay_ms", "faults", "Added to each leg."),
    _option("jitter_ms", "faults", "Up to so much more, differing from datagram to datagram."),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds locust's share of the options; each one's destination is its field. They show in the web UI."""
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
            given["help"] += f" Default {option.default}."
        action = group.add_argument(option.flag, **given)
        # What locust's own `add_argument` does, which groups lack.
        for name in ("include_in_web_ui", "is_secret", "is_required", "is_multiple"):
            setattr(action, name, name == "include_in_web_ui")


def click_options(several: Collection[str] = ()) -> Callable[[Function], Function]:
    """A decorator that gives a click command all options, under their fields' names.

    One that is not given is None, so that what a preset says can stand. Those of `several` take values with
    commas between them, and are tuples.
    """

    def decorate(function: Function) -> Function:
        for option in reversed(OPTIONS):
            function = _click_option(option, option.field in several)(function)
        return function

    return decorate


def _click_option(option: Option, is_several: bool) -> Callable[[Function], Function]:
    if option.type is bool and not is_several:
        flags = f"{option.flag}/--no-{option.flag[2:]}"
        return click.option(flags, option.field, default=None, help=option.help)
    metavar = "|".join(option.choices) if option.choices else option.metavar or "true|false"
    default = str(option.default).lower() if option.type is bool else option.default
    # Who gives no name gets one that tells of the policy, and of what else differs.
    told = "By default it tells the policy." if option.field == "name" else f"Default {default}."
    return click.option(
        *(option.flag, option.field),
        type=Several(option) if is_several else _click_type(option),
        metavar=f"{metavar}[,...]" if is_several else metavar,
        default=None,
        help=f"{option.help} {told}",
    )


def _click_type(option: Option) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    return {int: click.INT, float: click.FLOAT, str: click.STRING, bool: click.BOOL}[option.type]
