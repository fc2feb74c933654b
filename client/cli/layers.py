"""Shared by the commands of layers, such as `kcast request` and `keep`: options, and with what a client is
opened."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import click

from kcast.client.aio import Client, FixedWindow
from kcast.client.cli import protection
from kcast.client.cli.common import (
    fail,
    load_cluster_to_use,
    say,
    several,
    to_watch,
    topic_argument,
    value_option,
)
from kcast.client.cli.presets import fill_in
from kcast.client.cli.telling import Telling, listed_drops
from kcast.client.cli.text import escaped
from kcast.client.events import AllServersLost, LogTrouble
from kcast.client.layers.words import HERE, layer_topic
from kcast.pubsub.wire import TopicError

NOBODY_ANSWERS = "no server answers; 'kcast doctor' finds out why"

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
    credentials: protection.Credentials

    async def until_first(self, command: str, *coroutines: Coroutine[Any, Any, object]) -> None:
        """Waits until one of these has ended, and ends the others. Raises what it has raised.

        Meanwhile it says on standard error what happens to servers, groups and clocks."""
        tasks = [asyncio.create_task(each) for each in (*coroutines, self._tell(command))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in filter(asyncio.Task.done, tasks):
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _tell(self, command: str) -> None:
        telling = Telling(command)
        try:
            async for event in self.client.events():
                text = self.credentials.told(event, self.client.cluster)
                if isinstance(event, AllServersLost):
                    text = f"{NOBODY_ANSWERS}; still trying"
                elif isinstance(event, LogTrouble):
                    text = "the log is well again" if event.text is None else f"{event.text}; still trying"
                    text = f"{escaped(event.topic)}: {text}"
                if text:
                    telling.tell(type(event).__name__, text)
        finally:
            telling.end()

    def report_drops(self, command: str) -> None:
        """Says at the end what was left out: without it nobody knows of a clock that is wrong."""
        if drops := listed_drops(self.client.drops, self.client.kernel_drops):
            say(command, f"dropped: {drops}")


def opened(command: str, topic: str, cluster_name: str | None, proof: dict[str, Any]) -> Opened:
    """Returns the client of a command, to be entered. Raises KcastError, before anything is sent."""
    name = topic_argument(topic)
    try:
        layer_topic(name, HERE)
    except TopicError as error:
        raise TopicError(str(error).replace("senders=", "--from KEY")) from None
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
    return Opened(client, name, keys, credentials)


def require_server(command: str, client: Client) -> None:
    """Ends the program where no server answers."""
    if "alive" not in client.server_states.values():
        fail(command, NOBODY_ANSWERS)
