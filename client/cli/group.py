"""The group of all commands, which are loaded only when they are called.

Ctrl-C may come before a command can deal with it. Then it ends without a word.
"""

import sys
from importlib import import_module
from typing import Any

import click

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_COMMANDS = {
    "serve": ("kcast.pubsub.serve", "run a server"),
    "sub": ("kcast.client.cli.sub", "print the messages of topics"),
    "pub": ("kcast.client.cli.pub", "publish a message, or one per line of standard input"),
    "where": ("kcast.client.cli.where", "the servers of a topic, their ranks, and why"),
    "ping": ("kcast.client.cli.ping", "every server of the cluster: up, round-trip time, loss"),
    "health": ("kcast.client.cli.health", "whether one server serves, for health checks"),
    "plan": ("kcast.client.cli.plan", "predicted delivery, copies and cost of a policy"),
    "demo": (
        "kcast.loadtest.demo.command",
        "a cluster, servers killed, delivery measured against prediction",
    ),
    "load": ("kcast.loadtest.load.command", "load tests: clusters, faults, captures, and what came of them"),
    "analyse": ("kcast.spark.command", "captures of load tests: reliability versus K, against theory"),
}


class _LazyGroup(click.Group):
    """Importing one subcommand must not pay for the others: `kcast serve` needs no numpy."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Reads the command line up to the subcommand."""
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; Ctrl-C is what it has not dealt with itself."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kcast")
def main() -> None:
    """Publish/subscribe over UDP with dumb servers and smart clients."""
