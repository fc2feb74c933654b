"""The group of all commands.

Ctrl-C before a command can handle it ends the program silently. Wrong usage is told in one line.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from kcast.client.cli.commands import Commands

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_COMMANDS = {
    "serve": ("kcast.pubsub.serve", "run a server"),
    "sub": ("kcast.client.cli.sub", "print the messages of topics"),
    "pub": ("kcast.client.cli.pub", "publish a message, or one per line of standard input"),
    "ping": ("kcast.client.cli.ping", "which servers of the cluster are up, round-trip time, loss"),
    "top": ("kcast.client.cli.top", "watch the servers: state, round-trip time, loss, rates, leases"),
    "where": ("kcast.client.cli.where", "the servers of a topic, and why it is these"),
    "doctor": ("kcast.client.cli.doctor.command", "why something does not arrive here, and what to do"),
    "health": ("kcast.client.cli.health", "check whether one server works, for health checks"),
    "context": ("kcast.client.cli.context", "names for clusters, and the one in use"),
    "servers": ("kcast.client.cli.servers.group", "make, publish and check signed lists of servers"),
    "key": ("kcast.client.cli.key", "make and show the keys that sign messages"),
    "group": ("kcast.client.cli.groups.group", "make groups that read and write sealed messages"),
    "plan": ("kcast.client.cli.plan", "what theory expects a policy to deliver and to cost"),
    "demo": (
        "kcast.loadtest.demo.command",
        "kill servers of a cluster here, and compare what arrives with theory",
    ),
    "bench": (
        "kcast.loadtest.bench.command",
        "measure messages a second, latency and loss, here or on a cluster",
    ),
    "load": ("kcast.loadtest.load.command", "run load tests, with faults, and capture them"),
    "analyse": ("kcast.spark.command", "analyse captures of load tests, and compare them with theory"),
    "help": ("kcast.client.cli.help", "the help of a command"),
    "completion": ("kcast.client.cli.completion", "make your shell complete commands and options"),
}

_HEADINGS = {
    "Daily": ("serve", "sub", "pub", "ping", "top", "where", "doctor", "health"),
    "Clusters and keys": ("context", "servers", "key", "group"),
    "Measuring": ("plan", "demo", "bench", "load", "analyse"),
    "Help": ("help", "completion"),
}

_Result = TypeVar("_Result")


class _Commands(Commands):
    """All commands; what none of them has handled is handled here."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Reads the command line up to the subcommand."""
        return _told(lambda: super(_Commands, self).make_context(*args, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; handles what the subcommand has not handled."""
        return _told(lambda: super(_Commands, self).invoke(ctx))


def _told(run: Callable[[], _Result]) -> _Result:
    """Runs it; tells wrong usage in one line, and ends silently after Ctrl-C."""
    try:
        return run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as error:  # of --help and --version: commands tell their own
        sys.exit(f"kcast: {error.filename or 'standard output'}: {error.strerror or error}")
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError" and error.ctx and error.ctx.parent is None:
            raise  # kcast alone: click shows the help
        from kcast.client.cli import usage
        from kcast.client.cli.text import tell

        with suppress(OSError):
            tell(f"{usage.command_of(error)}: {usage.one_line(error)}", err=True)
        sys.exit(EXIT_USAGE)


def _tell_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        from importlib.metadata import version

        from kcast.client.cli.text import tell
        from kcast.pubsub.native import DESCRIPTION

        tell(f"kcast {version('kcast')}, {DESCRIPTION}")
        context.exit()


@click.group(
    cls=_Commands,
    members=_COMMANDS,
    headings=_HEADINGS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_version,
    help="Show the version, and whether native code was built.",
)
def main() -> None:
    """Publish/subscribe over UDP with dumb servers and smart clients."""
