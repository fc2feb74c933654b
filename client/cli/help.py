"""`kcast help COMMAND` is `kcast COMMAND --help`; `kcast help --man DIR` writes man pages."""

from pathlib import Path

import click

from kcast.client.cli.common import errors_as_lines


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.option(
    "--man",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the man pages of all commands into this folder instead: kcast.1, kcast-sub.1, ...",
)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], folder: Path | None) -> None:
    """Show the help of kcast, or of a command.

    \b
    Examples:
      kcast help
      kcast help sub
      kcast help load compare
      kcast help --man ~/.local/share/man/man1
    """
    if folder is not None:
        if words:
            raise click.UsageError("--man writes the pages of all commands: name none")
        with errors_as_lines("help"):
            _write_man_pages(ctx.find_root(), folder)
        return
    about = ctx.find_root()
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
    from kcast.client.cli.manpage import SECTION, pages

    assert isinstance(root.command, click.Group)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(root.command, "kcast"):
        (folder / f"{name}.{SECTION}").write_text(text)
