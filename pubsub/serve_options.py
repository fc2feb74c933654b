"""Options of `kcast serve`: their headings in the help, and how their values are read."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, TypeVar

import click

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.head_file import HeadFileError, read_head
from kcast.pubsub.limits import HEAD_CHARS_MAX

LOOPBACK = "127.0.0.1"
UPLINK_BITS_PER_S_MIN = 100_000
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_DECIMAL_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}

_Function = TypeVar("_Function", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option that the help lists under a heading."""

    def __init__(self, *names: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.heading = heading


class GroupedCommand(click.Command):
    """A command whose help lists options under headings, in the order in which the headings first appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = parameter.heading if isinstance(parameter, GroupedOption) else "Other options"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def option(heading: str, *names: str, **attributes: Any) -> Callable[[_Function], _Function]:
    """Declares an option under a heading; the help shows its default."""
    if attributes.get("default") is not None:
        attributes.setdefault("show_default", True)
    return click.option(*names, cls=GroupedOption, heading=heading, **attributes)


def number(heading: str, name: str, least: int, default: int, text: str) -> Callable[[_Function], _Function]:
    """Declares an option whose value is a number, `least` or more."""
    return option(heading, name, type=click.IntRange(min=least), default=default, metavar="N", help=text)


def byte_count(least: int, most: int) -> Callable[[click.Context, click.Parameter, str], int]:
    """Returns a parser for a number of bytes; `4M` is 4 * 1024 * 1024."""

    def convert(ctx: click.Context, param: click.Parameter, value: str) -> int:
        digits, factor = value, 1
        if value[-1:].upper() in UNITS:
            digits, factor = value[:-1], UNITS[value[-1].upper()]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
            raise click.BadParameter(f"{value!r} is not a number of bytes; give one such as 4194304 or 4M")
        if not least <= int(digits) * factor <= most:
            raise click.BadParameter(f"{value} is not between {least} and {most} bytes")
        return int(digits) * factor

    return convert


def bits_per_s(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parses a rate in bits per second; `100M` is 100 million, as networks count."""
    digits, factor = value, 1
    if value[-1:].upper() in _DECIMAL_UNITS:
        digits, factor = value[:-1], _DECIMAL_UNITS[value[-1].upper()]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise click.BadParameter(f"{value!r} is not a rate; give bits per second, such as 100M or 1G")
    rate = int(digits) * factor
    if rate and not UPLINK_BITS_PER_S_MIN <= rate <= 2**50:
        raise click.BadParameter(
            f"{value} is not a rate that a server can use; give {UPLINK_BITS_PER_S_MIN} or more"
        )
    return rate


def host_port(ctx: click.Context, param: click.Parameter, value: str | None) -> Address | None:
    """Parses `[HOST:]PORT`; without a host it is on loopback."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    expected = "give PORT, IP:PORT or [IPv6]:PORT"
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise click.BadParameter(f"{value!r} has no port from 0 to 65535; {expected}")
    if not host:
        return LOOPBACK, int(port)
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        raise click.BadParameter(f"{host!r} is not an IP address; {expected}") from None
    if is_bracketed != (ip.version == 6):
        raise click.BadParameter(f"{value!r} is not an address; {expected}")
    return str(ip), int(port)


def head(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, str | None]:
    """Returns the head, and the file that it comes from with `@FILE`."""
    if value[:1] == "@":
        try:
            return read_head(value[1:]), value[1:]
        except HeadFileError as error:
            raise click.BadParameter(str(error)) from None
    if not wire.is_head(value):
        raise click.BadParameter(f"give at most {HEAD_CHARS_MAX} printable ASCII characters without spaces")
    return value, None
