"""A group of commands that imports only the one that is called."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from kcast.client.cli.ordered_group import OrderedGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Members = Mapping[str, tuple[str, str]]  # the name of a command: its module, and what it does, for the help


class LazyGroup(OrderedGroup):
    """A group whose commands are named with their modules: `kcast serve` needs no numpy.

    Each module has its command as `command`.
    """

    def __init__(self, *args: Any, members: Members, **options: Any) -> None:
        super().__init__(*args, **options)
        self.members = members

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; an error of usage says which command it was."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            if error.ctx is None and name is not None and name in self.members:
                command = self.get_command(ctx, name)  # click's parser does not say which it was
                assert command is not None
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Returns the subcommands and options that begin like this, without loading any subcommand."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(n, help=text) for n, (_, text) in self.members.items() if n.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands, in the order of the table."""
        return list(self.members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a subcommand; None where there is none of this name."""
        if cmd_name not in self.members:
            return None
        command = import_module(self.members[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table of subcommands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.members.items()])
