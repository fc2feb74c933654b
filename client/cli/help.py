"""`kcast help COMMAND` is `kcast COMMAND --help`; `kcast help --man DIR` writes man pages, by click-man."""

from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path

import click

from kcast.client.cli.common import EXIT_USAGE, FOLDER, errors_as_lines, fail, how_to_install, value_option

_ROFF = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@value_option(
    "--man folder",
    FOLDER,
    "Write the man pages of all commands into this folder instead: kcast.1, kcast-sub.1, ...",
    unit="DIR",
)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], folder: Path | None) -> None:
    """Show the help of kcast, or of a command.

    --man needs the extra `man`.

    \b
    Examples:
      kcast help
      kcast help sub
      kcast help load compare
      kcast help --man ~/.local/share/man/man1
    """
    about = ctx.find_root()
    if folder is not None:
        if words:
            raise click.UsageError("--man writes the pages of all commands: name none")
        with errors_as_lines("help"):
            _write_man_pages(about, folder)
        return
    for number, word in enumerate(words):
        if not isinstance(about.command, click.Group):
            raise click.UsageError(
                f"kcast {' '.join(words[:number])} has no commands of its own, so no {word}"
            )
        _, found, _ = about.command.resolve_command(about, [word])
        assert found is not None
        about = click.Context(found, info_name=word, parent=about)
    click.echo(about.get_help())


def _write_man_pages(root: click.Context, folder: Path) -> None:
    try:
        from click_man.core import write_man_pages
    except ImportError:
        fail("help", f"man pages need the extra 'man': {how_to_install('man')}", EXIT_USAGE)
    folder.mkdir(parents=True, exist_ok=True)
    _prepare(root.command, root)
    write_man_pages("kcast", root.command, version=version("kcast"), target_dir=str(folder))


def _prepare(command: click.Command, context: click.Context) -> None:
    """Makes of a command what click-man looks at: its texts as roff, and of a group all commands, loaded."""
    command.short_help = command.get_short_help_str(limit=200).translate(_ROFF)
    texts = (cleandoc(command.help or ""), command.epilog or "")
    command.help = "\n\n".join(map(_roff, "\n\n".join(filter(None, texts)).split("\n\n")))
    for option in command.params:
        if isinstance(option, click.Option) and option.help:
            option.help = option.help.translate(_ROFF)
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        command.commands = {name: each for name in names if (each := command.get_command(context, name))}
        for name, each in command.commands.items():
            _prepare(each, click.Context(each, parent=context, info_name=name))


def _roff(paragraph: str) -> str:
    """A paragraph in which nothing is taken for a request; what begins with a line `\b` keeps its lines."""
    text = paragraph.translate(_ROFF)
    return text.replace("\b\n", ".nf\n", 1) + "\n.fi" if text.startswith("\b\n") else text
