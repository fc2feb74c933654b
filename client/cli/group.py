"""The group of all commands. A command is imported only when it is called.

Ctrl-C before a command can handle it ends the program silently. Wrong usage is told in one line.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_COMMANDS = {
    "serve": ("kcast.pubsub.serve", "run a server"),
    "sub": ("kcast.client.cli.sub", "print the messages of topics"),
    "pub": ("kcast.client.cli.pub", "publish a message, or one per line of standard input"),
    "where": ("kcast.client.cli.where", "the servers of a topic, and why it is these"),
    "ping": ("kcast.client.cli.ping", "which servers of the cluster are up, round-trip time, loss"),
    "top": ("kcast.client.cli.top", "watch the servers: state, round-trip time, loss, rates, leases"),
    "health": ("kcast.client.cli.health", "check whether one server works, for health checks"),
    "context": ("kcast.client.cli.context", "names for clusters, and the one in use"),
    "plan": ("kcast.client.cli.plan", "what theory expects a policy to deliver and to cost"),
    "demo": (
        "kcast.loadtest.demo.command",
        "kill servers of a cluster here, and compare what arrives with theory",
    ),
    "load": ("kcast.loadtest.load.command", "run load tests, with faults, and capture them"),
    "analyse": ("kcast.spark.command", "analyse captures of load tests, and compare them with theory"),
    "help": ("kcast.client.cli.help", "the help of a command"),
    "completion": ("kcast.client.cli.completion", "make your shell complete commands and options"),
}

_Result = TypeVar("_Result")


class _LazyGroup(click.Group):
    """A group that imports only the subcommand that is called: `kcast serve` needs no numpy."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Reads the command line up to the subcommand."""
        return _told(lambda: super(_LazyGroup, self).make_context(*args, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; handles what the subcommand has not handled."""
        return _told(lambda: self._invoke(ctx))

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            if error.ctx is None and name in _COMMANDS:  # click's parser does not say which command it was
                command = self.get_command(ctx, name)
                assert command is not None
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; says which one may have been meant where there is none of this name."""
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from kcast.client.resembling import did_you_mean

            ctx.fail(f"no such command {args[0]}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Returns the subcommands and options that begin like this, without loading any subcommand."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(n, help=text) for n, (_, text) in _COMMANDS.items() if n.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

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


def _told(run: Callable[[], _Result]) -> _Result:
    """Runs it; tells wrong usage in one line, and ends silently after Ctrl-C."""
    try:
        return run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no command: click shows the help
            raise
        from kcast.client.cli import usage

        with suppress(OSError):
            click.echo(f"{usage.command_of(error)}: {usage.one_line(error)}", err=True)
        sys.exit(EXIT_USAGE)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kcast")
def main() -> None:
    """Publish/subscribe over UDP with dumb servers and smart clients."""
