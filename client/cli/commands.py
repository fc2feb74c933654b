"""A group of commands, in their own order, that imports only the one that is called."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Members = Mapping[str, tuple[str, str]]  # the name of a command: its module, and what it does, for the help

_FIRST_SENTENCE = 200  # characters at most


class Commands(click.Group):
    """A group whose commands are its own, or named with their modules: `kcast serve` needs no numpy.

    Each of these modules has its command as `command`.
    """

    def __init__(self, *args: Any, members: Members | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._members = members or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands, in their order."""
        return [*self._members, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a command; None where there is none of this name."""
        if cmd_name not in self._members:
            return self.commands.get(cmd_name)
        module, text = self._members[cmd_name]
        command = import_module(module).command
        assert isinstance(command, click.Command)
        command.short_help = text
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; says which one may have been meant where there is none of this name."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from kcast.client.errors import did_you_mean

            ctx.fail(f"no such command {args[0]}{did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error of usage says which command it was, which click's parser does not."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            if error.ctx is None and name is not None and (command := self.get_command(ctx, name)):
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([*self._texts().items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Returns the commands and options that begin like this, without loading any command."""
        from click.shell_completion import CompletionItem

        texts = {name: text for name, text in self._texts().items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=text) for name, text in texts.items()]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def _texts(self) -> dict[str, str]:
        """What each command does."""
        own = {name: each.get_short_help_str(limit=_FIRST_SENTENCE) for name, each in self.commands.items()}
        return {name: text for name, (_, text) in self._members.items()} | own
