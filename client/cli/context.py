"""`kcast context`: names for clusters, kept in the user's configuration."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kcast.client.cli.commands import Commands
from kcast.client.cli.common import complete_contexts, errors_as_lines, say
from kcast.client.cli.text import escaped, table, tell, to_json
from kcast.client.clusters import contexts
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.client.clusters.contexts import ContextError
from kcast.client.sealed import key_names
from kcast.client.source import CLUSTER_VARIABLE, of_context

_name = click.argument("name", shell_complete=complete_contexts)
_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each, one a line.")


@click.group("context", cls=Commands)
def command() -> None:
    """Give clusters names: `--cluster NAME` then stands for the cluster file.

    The names are contexts. One of them can be in use: commands and programs that name no cluster take that.
    What --cluster or a program says goes before the variable KCAST_CLUSTER, and the variable before the
    context in use. What contains '/' or '.', or exists, is always a file.

    Contexts are kept in the folder kcast of $XDG_CONFIG_HOME, by default ~/.config.

    \b
    Example:
      kcast context add lab lab.txt --use
      kcast sub weather/oslo
    """


@command.command("add")
@_name
@click.argument("file", type=click.Path())
@click.option("--use", "is_used", is_flag=True, help="Put it into use.")
@click.option(
    "--seal", metavar="NAME|FILE", help="The group for which 'pub' seals, and of which 'sub' reads."
)
@click.option("--sign", is_flag=True, help="Let 'pub' sign.")
@click.option("--key", metavar="NAME|FILE", help="Your key.")
@click.option("--from", "senders", metavar="KEY|FILE", multiple=True, help="Whose messages 'sub' takes.")
def add(name: str, file: str, is_used: bool, senders: tuple[str, ...], sign: bool, **given: Any) -> None:
    """Call the cluster of FILE by NAME.

    FILE is read at once, to see whether it is a cluster file, and again whenever the context is asked for. If
    there is a context of this name already, it now stands for this FILE, with these options alone.

    Commands that find the cluster by this context take its options where you do not give them yourself; a
    Python program gives its own. The variable KCAST_SEAL goes before --seal of a context, and --seal '' where
    you type it before both: then the message goes in clear.

    \b
    Examples:
      kcast context add prod /etc/kcast/prod.cluster
      kcast context add ops prod.cluster --use --seal ops --from ann.key
    """
    with errors_as_lines("context"):
        before = _meaning(name)
        of_context(name, file if file.startswith("@") else str(Path(file).absolute())).read()
        options = [(f"--{option}", value) for option, value in given.items() if value]
        placed = [
            (option, _place(value)) for option, value in (*options, *(("--from", each) for each in senders))
        ]
        contexts.add(name, file, placed + [("--sign", "")] * sign)
        if is_used:
            contexts.use(name)
        _confirm(name, f" (was {before})" if before not in (None, _meaning(name)) else "")


def _place(text: str) -> str:
    """Returns what names a group, a key or a file, so that it does from any folder."""
    return str(Path(text).absolute()) if key_names.is_file(text) else text


def _meaning(name: str) -> str | None:
    """Returns what a context holds, as one line; None where there is none."""
    text = contexts.meaning(name)
    return text and " ".join([text, *_words(name)])


def _words(name: str) -> list[str]:
    """Returns the options of a context as they are typed."""
    return [word for option in contexts.options(name) for word in option if word]


@command.command("use")
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--none", "is_none", is_flag=True, help="Have no context in use.")
def use(name: str | None, is_none: bool) -> None:
    """Use the context NAME where nothing else names a cluster.

    \b
    Example:
      kcast context use prod
    """
    if is_none == bool(name):
        raise click.UsageError("give the NAME of a context, or --none.")
    with errors_as_lines("context"):
        if name:
            _known(name)
        contexts.use(name)
        if name:
            _confirm(name)
        else:
            tell("no context is in use")


@command.command("list")
@_json
def list_all(as_json: bool) -> None:
    """Print all contexts; `*` stands before the one in use.

    With --json the keys are context, in_use, file, options (a list of words), cluster (the name in the file),
    policy, servers (a list), and problem: null, or why the file cannot be used. Then cluster, policy and
    servers are null.
    """
    with errors_as_lines("context"):
        found = [_described(name) for name in contexts.names()]
        if as_json:
            for each in found:
                tell(to_json(each))
            return
        rows = [
            (
                "*" if each["in_use"] else "",
                each["context"],
                "-" if each["problem"] else str(len(each["servers"])),
                each["policy"] or "-",
                escaped(each["file"]),
            )
            for each in found
        ]
        for line in table(("", "context", "servers", "policy", "file"), rows, left=5) if rows else ():
            tell(line)
        for each in found:
            if each["problem"]:
                say("context", each["problem"])
        if not rows:
            say("context", "there are none: 'kcast context add NAME FILE' makes one")
        _warn_of_variable()


@command.command("show")
@click.argument("name", required=False, shell_complete=complete_contexts)
@_json
def show(name: str | None, as_json: bool) -> None:
    """Show the file, the policy and the servers of the context NAME, by default of the one in use.

    With --json the keys are those of `kcast context list`.
    """
    with errors_as_lines("context"):
        if name is None:
            name = contexts.in_use()
            if name is None:
                raise ContextError(
                    "no context is in use: give a NAME, or put one into use: 'kcast context use'"
                )
            _warn_of_variable()
        described = _described(_known(name))
        if described["problem"]:
            raise ContextError(described["problem"])
        for line in (to_json(described),) if as_json else _as_text(described):
            tell(line)


@command.command("remove")
@_name
def remove(name: str) -> None:
    """Remove the context NAME. Its file stays."""
    with errors_as_lines("context"):
        contexts.remove(_known(name))
        tell(f"{name} is removed; its file stays")


def _known(name: str) -> str:
    """Returns the name of a context. Raises ContextError if there is none of this name."""
    if contexts.meaning(name) is None:
        raise ContextError(f"no such context: {name}{contexts.unknown(name)}")
    return name


def _described(name: str) -> dict[str, Any]:
    """Returns what is known of a context, for JSON."""
    text = problem = None
    options: list[str] = []
    cluster: Cluster | None = None
    try:
        text = contexts.meaning(name)
        options = _words(name)
        cluster = of_context(name, text or "").read()
    except ClusterError as error:
        problem = str(error)
    return {
        "context": name,
        "in_use": contexts.in_use() == name,
        "file": text,
        "options": options,
        "cluster": cluster and cluster.name,
        "policy": cluster and str(cluster.policy),
        "servers": cluster and [server.name for server in cluster.servers],
        "problem": problem,
    }


def _as_text(described: dict[str, Any]) -> Iterator[str]:
    yield f"context  {described['context']}{' (in use)' if described['in_use'] else ''}"
    yield f"file     {escaped(described['file'])}"
    if described["options"]:
        yield f"options  {escaped(' '.join(described['options']))}"
    if described["cluster"]:
        yield f"cluster  {escaped(described['cluster'])}"
    yield f"policy   {described['policy']}"
    servers = described["servers"]
    yield f"servers  {servers[0]}"
    yield from (f"         {server}" for server in servers[1:])


def _confirm(name: str, more: str = "") -> None:
    described = _described(name)
    used = ", in use" if described["in_use"] else ""
    held = " ".join([described["file"] or "", *described["options"]])
    tell(f"{name}{used}: {escaped(held)}{escaped(more)}")
    if used:
        _warn_of_variable()


def _warn_of_variable() -> None:
    if os.environ.get(CLUSTER_VARIABLE) and contexts.in_use():
        say("context", f"{CLUSTER_VARIABLE} is set, and goes before the context in use")
