"""The group of all commands. A command is imported only when it is called.

Ctrl-C before a command can handle it ends the program silently.
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
    "where": ("kcast.client.cli.where", "the servers of a topic, and why it is these"),
    "ping": ("kcast.client.cli.ping", "which servers of the cluster are up, round-trip time, loss"),
    "health": ("kcast.client.cli.health", "check whether one server works, for health checks"),
    "plan": ("kcast.client.cli.plan", "what theory expects a policy to deliver and to cost"),
    "demo": (
        "kcast.loadtest.demo.command",
        "kill servers of a cluster here, and compare what arrives with theory",
    ),
    "load": ("kcast.loadtest.load.command", "run load tests, with faults, and capture them"),
    "analyse": ("kcast.spark.command", "analyse captures of load tests, and compare them with theory"),
}


class _LazyGroup(click.Group):
    """A group that imports only the subcommand that is called: `kcast serve` needs no numpy."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Reads the command line up to the subcommand."""
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; handles a Ctrl-C that the subcommand has not handled."""
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
