"""Shared by the commands of logs, `kcast keep`, `history`, `pub --history` and `sub --since`: how ages and
times are read, and what does not go with entries."""

import re
from math import inf
from time import time
from typing import NamedTuple

import click
from click.core import ParameterSource

from kcast.client.history.cursor import bound_of
from kcast.client.history.ids import clock_of, parse_id

SPARE_S = 600.0

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")


def bytes_of(ctx: click.Context, param: click.Parameter, given: str) -> int:
    """Reads a number of bytes; `64M` is 64 * 1024 * 1024."""
    found = re.fullmatch("([0-9]{1,12})([KMG]?)", given)
    if not found or not int(found[1]):
        raise click.BadParameter(f"{given} is no number of bytes: give one such as 64M.")
    return int(found[1]) << 10 * " KMG".index(found[2] or " ")


class Since(NamedTuple):
    """From when on entries are wanted: as `Log.entries` has it."""

    since: float | str = "all"
    last: int | None = None

    @property
    def age_s(self) -> float:
        """For how long entries are to be kept by who prints them, though that may be slow."""
        ago_s = inf if self.last else time() - clock_of(bound_of(self.since, time())) / 1e6
        return max(0.0, ago_s) + SPARE_S


def age(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    """Reads a time such as `90`, `10m` or `1d`, in seconds."""
    if given is None:
        return None
    found = _AGE.fullmatch(given)
    if not found or not float(found[1]):
        raise click.BadParameter(f"{given} is no time: give one such as 90, 10m, 12h or 1d.")
    return float(found[1]) * _UNITS_S[found[2]]


def since(ctx: click.Context, param: click.Parameter, given: str | None) -> Since | None:
    """Reads from when on entries are wanted: a time ago, an id, `all`, or so many of the last (`-5`)."""
    if given is None:
        return None
    if given == "all" or parse_id(given) is not None:
        return Since(given)
    if re.fullmatch("-[0-9]{1,9}", given):
        return Since(last=int(given[1:]))
    try:
        return Since(age(ctx, param, given) or "all")
    except click.BadParameter:
        text = f"{given} is none of: 10m (s, m, h or d ago), an entry's id, all, -5 (the last five)."
        raise click.BadParameter(text) from None


def counted(entries: int) -> str:
    """Returns `1 entry`, `2 entries`."""
    return "1 entry" if entries == 1 else f"{entries} entries"


def refuse(option: str, *names: str) -> None:
    """Raises click.UsageError where one of these parameters is given beside an option."""
    context = click.get_current_context()
    for each in context.command.params:
        if each.name in names and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{each.opts[-1]} does not go with {option}: leave one of them out")
