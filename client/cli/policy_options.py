"""A policy where no cluster file says it: 5/3/5, or the options --scheme, --k, --publish, --subscribe."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kcast.client.cli.common import several, value_option
from kcast.hashring.policy import Policy

_Command = TypeVar("_Command", bound=Callable[..., Any])


def policy_argument(command: _Command) -> _Command:
    """Adds the argument POLICY, such as 5/3/5, as parameter `policy`; it may be left out."""
    return click.argument("policy", required=False, callback=_read, metavar="[POLICY]")(command)


def _read(ctx: click.Context, param: click.Parameter, text: str | None) -> Policy | None:
    if text is None:
        return None
    numbers = re.fullmatch(r"(\d{1,4})/(\d{1,4})/(\d{1,4})", text)
    if numbers is None:
        raise click.BadParameter(
            f"expected K/PUBLISH/SUBSCRIBE, such as {Policy()}, not {text!r}", ctx, param
        )
    k, publish, subscribe = map(int, numbers.groups())
    try:
        return Policy(k, publish, subscribe)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


_HOSTS = click.IntRange(1, 1000)
policy_options = several(
    click.option(
        "--scheme", type=click.Choice(["S", "R", "CH", "RCH"]), help="A scheme of the note of 2004."
    ),
    value_option("--k", _HOSTS, "Number of a topic's hosts.", unit="K"),
    value_option("--publish", _HOSTS, "Number that each message goes to.", unit="M"),
    value_option("--subscribe", _HOSTS, "Number that a subscriber leases at.", unit="N"),
)
"""Adds the options of a policy, as parameters `scheme`, `k`, `publish` and `subscribe`."""


def policy_of(
    scheme: str | None, hosts: int, k: int | None, publish: int | None, subscribe: int | None
) -> Policy:
    """Returns the policy that the options describe, for `hosts` hosts. Raises click.UsageError."""
    try:
        if scheme == "S":
            return Policy.from_scheme("S", k=k, publish=publish, subscribe=subscribe)
        if scheme == "R":
            return Policy.from_scheme("R", servers=hosts, k=k, publish=publish, subscribe=subscribe)
        if scheme == "CH":
            return Policy.from_scheme("CH", k=k, publish=publish, subscribe=subscribe)
        k = Policy().k if k is None else k
        few = min(k, Policy().publish)
        if publish is None:
            publish = few if subscribe in (None, k) else k
        return Policy(k, publish, k if subscribe is None else subscribe)
    except ValueError as error:
        raise click.UsageError(_as_typed(str(error))) from None


def _as_typed(text: str) -> str:
    """Returns what a policy complains of, with options as they are typed: `--k 3` for `k=3`."""
    text = re.sub(r"\b(k|publish|subscribe)=(\d+)", r"--\1 \2", text)
    return re.sub(r"(takes no|raise|lower|set) (k|publish|subscribe)\b", r"\1 --\2", text)
