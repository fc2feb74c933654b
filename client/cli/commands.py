"""A group of commands, in their own order, that imports only the one that is called; and the order of help:
examples and options stand before prose."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from kcast.client.trust.extras import MissingExtra

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Members = Mapping[str, tuple[str, str]]  # the name of a command: its module, and what it does, for the help

_FIRST_SENTENCE = 200  # characters at most
_METAVARS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
_EXAMPLES = "\b\nExample"


def documented(command: click.Command) -> click.Command:
    """Returns a command with its help, which is its docstring: under `python -OO`, as its source has it."""
    if command.help is None and command.callback is not None:
        import ast
        from inspect import getsource

        (function,) = ast.parse(getsource(command.callback)).body
        assert isinstance(function, ast.FunctionDef)
        command.help = ast.get_docstring(function)
    return command


class Commands(click.Group):
    """A group whose commands are its own, or named with their modules: `kcast serve` needs no numpy.

    Each of these modules has its command as `command`. The help lists commands under `headings`.
    """

    def __init__(
        self,
        *args: Any,
        members: Members | None = None,
        headings: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._members, self._headings = members or {}, headings
        documented(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands, in their order."""
        return [*self._members, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a command; None where there is none of this name."""
        command = self.commands.get(cmd_name)
        if cmd_name in self._members:
            module, text = self._members[cmd_name]
            try:
                command = import_module(module).command
            except MissingExtra as error:
                command = _without_extra(f"{ctx.command_path} {cmd_name}", error)
            assert isinstance(command, click.Command)
            command.short_help = text
        return command and laid_out(command)

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
        texts = self._texts()
        for heading, names in (self._headings or {"Commands": [*texts]}).items():
            with formatter.section(heading):
                formatter.write_dl([(name, texts[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Returns the commands and options that begin like this, without loading any command."""
        from click.shell_completion import CompletionItem

        texts = {name: text for name, text in self._texts().items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=text) for name, text in texts.items()]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def _texts(self) -> dict[str, str]:
        """What each command does."""
        own = {
            name: documented(each).get_short_help_str(limit=_FIRST_SENTENCE)
            for name, each in self.commands.items()
        }
        as_others = {name: text[:1].lower() + text[1:].removesuffix(".") for name, text in own.items()}
        return {name: text for name, (_, text) in self._members.items()} | as_others


def _without_extra(path: str, error: MissingExtra) -> click.Command:
    """Returns what a command is where its libraries are missing: it takes anything, and says which extra."""
    from kcast.client.cli.common import EXIT_USAGE, fail

    @click.command(help=f"{error}.", context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words: tuple[str, ...]) -> None:
        fail(path.partition(" ")[2], str(error), EXIT_USAGE)

    return command


def laid_out(command: click.Command) -> click.Command:
    """Has a command's help show examples and options before prose, and no names of click's types."""
    if documented(command).epilog is None:
        summary, *others = cleandoc(command.help or "").split("\n\n")
        examples = [text for text in others if text.startswith(_EXAMPLES)]
        command.help = "\n\n".join((summary, *examples))
        command.epilog = "\n\n".join(text for text in others if text not in examples)
    for option in command.params:
        if option.metavar is None and isinstance(option, click.Option):
            option.metavar = _METAVARS.get(option.type.name)
    return command
