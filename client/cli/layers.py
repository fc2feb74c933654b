"""Shared by `kcast request`, `reply` and `who`: options, and with what a client is opened."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from kcast.client.aio import Client, FixedWindow
from kcast.client.cli import protection
from kcast.client.cli.common import fail, load_cluster_to_use, several, to_watch, topic_argument, value_option
from kcast.client.cli.presets import fill_in
from kcast.client.layers.words import HERE, layer_topic

_Command = TypeVar("_Command", bound=Callable[..., Any])


def limit_option(text: str) -> Callable[[_Command], _Command]:
    """Adds the option `--limit`, a limit per sender, such as `100/1`: so many messages in so many seconds."""
    return value_option("--limit", str, text, unit="COUNT/SECONDS", callback=_limit)


def _limit(ctx: click.Context, param: click.Parameter, given: str | None) -> FixedWindow | None:
    if given is None:
        return None
    count, _, seconds = given.partition("/")
    try:
        return FixedWindow(int(count), float(seconds))
    except ValueError:
        raise click.BadParameter(f"{given} is no limit: give COUNT/SECONDS, such as 100/1.") from None


def proof_options(others: str) -> Callable[[_Command], _Command]:
    """Adds `--sign`, `--seal`, `--key` and `--from`; `others` are those whom the last one is about."""
    return several(
        click.option("--sign", "is_signed", is_flag=True, help="Sign what is said with your key."),
        protection.seal_option("Seal what is said for a group, and take only what is sealed for it."),
        protection.key_option,
        protection.from_option(f"A key, or a file of keys, of {others}; may be given repeatedly."),
    )


class Opened(NamedTuple):
    """How a command opens its client, on which topic, and whose word counts; None for anybody's."""

    client: Client
    topic: bytes
    senders: list[str] | None


def opened(command: str, topic: str, cluster_name: str | None, proof: dict[str, Any]) -> Opened:
    """Returns the client of a command, to be entered. Raises KcastError, before anything is sent."""
    name = topic_argument(topic)
    layer_topic(name, HERE)
    fill_in(proof, cluster_name)
    is_signed, group_name, key_name = (proof[name] for name in ("is_signed", "group_name", "key_name"))
    is_proven = is_signed or group_name is not None
    protection.require(key_name is not None and not is_proven, "--key", "--sign or --seal")
    credentials = protection.Credentials()
    if is_proven:
        credentials = protection.Credentials.load(command, key_name, group_name)
    keys = protection.keys_of(proof["senders"]) or None
    cluster = load_cluster_to_use(command, cluster_name)
    client = Client(to_watch(cluster), identity=credentials.identity, group=credentials.group)
    return Opened(client, name, keys)


def require_server(command: str, client: Client) -> None:
    """Ends the program where no server answers."""
    if "alive" not in client.server_states.values():
        fail(command, "no server answers; 'kcast doctor' finds out why")
