"""Shared by `kcast request`, `reply` and `who`: options, and with what a client is opened."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kcast.client.aio import Client, FixedWindow
from kcast.client.cli import protection
from kcast.client.cli.common import load_cluster_to_use, several, to_watch
from kcast.client.cli.presets import fill_in
from kcast.client.layers.words import HERE, layer_topic

_Command = TypeVar("_Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    _LimitType = click.ParamType[FixedWindow]
else:
    _LimitType = click.ParamType


class Limit(_LimitType):
    """A limit per sender, as `100/1`: so many messages in so many seconds."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FixedWindow:
        """Returns the limit, or ends with a usage error."""
        if isinstance(value, FixedWindow):
            return value
        count, _, seconds = str(value).partition("/")
        try:
            return FixedWindow(int(count), float(seconds))
        except ValueError:
            self.fail(f"{value} is no limit: give COUNT/SECONDS, such as 100/1.", param, ctx)


def proof_options(others: str) -> Callable[[_Command], _Command]:
    """Adds `--sign`, `--seal`, `--key` and `--from`; `others` are those whom the last one is about."""
    return several(
        click.option("--sign", "is_signed", is_flag=True, help="Sign what is said with your key."),
        protection.seal_option("Seal what is said for a group, and take only what is sealed for it."),
        protection.key_option,
        protection.from_option(f"A key, or a file of keys, of {others}; may be given repeatedly."),
    )


class Opened(NamedTuple):
    """How a command opens its client, and whose word counts; None for anybody's."""

    client: Client
    senders: list[str] | None


def opened(command: str, topic: bytes, cluster_name: str | None, proof: dict[str, Any]) -> Opened:
    """Returns the client of a command, to be entered. Raises KcastError, before anything is sent."""
    layer_topic(topic, HERE)
    fill_in(proof, cluster_name)
    is_signed, group_name, key_name = (proof[name] for name in ("is_signed", "group_name", "key_name"))
    protection.require(
        key_name is not None and not is_signed and group_name is None, "--key", "--sign or --seal"
    )
    credentials = protection.Credentials()
    if is_signed or group_name is not None:
        credentials = protection.Credentials.load(command, key_name, group_name)
    keys = protection.keys_of(proof["senders"]) or None
    cluster = load_cluster_to_use(command, cluster_name)
    return Opened(Client(to_watch(cluster), identity=credentials.identity, group=credentials.group), keys)
