"""Man pages made from the commands' help, in the language of man(7)."""

import re
from collections.abc import Iterator
from importlib.metadata import version

import click

SECTION = 1


def pages(root: click.Group, name: str) -> Iterator[tuple[str, str]]:
    """Yields name and text of a page for each command: `kcast`, `kcast-sub`, `kcast-load-compare`."""
    context = click.Context(root, info_name=name)
    yield from _pages(root, context)


def _pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield _name(context), page(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _pages(found, click.Context(found, info_name=each, parent=context))


def page(command: click.Command, context: click.Context) -> str:
    """Returns the man page of one command."""
    name = _name(context)
    summary, _, rest = (command.help or "").partition("\n")
    lines = [
        f'.TH "{_text(name.upper())}" {SECTION} "" "kcast {_text(version("kcast"))}" "kcast"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(_as_purpose(summary))}",
        ".SH SYNOPSIS",
        f"\\fB{_text(context.command_path)}\\fR {_text(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        _line(summary),
        *_paragraphs(rest),
        *_options(command, context),
        *_commands(command, context),
    ]
    if related := _related(context):
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_text(each)}\\fR({SECTION})" for each in related)]
    return "\n".join(lines) + "\n"


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _as_purpose(summary: str) -> str:
    text = summary.removesuffix(".")
    return text[:1].lower() + text[1:]


def _paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs as click shows them: one that begins with a line `\\b` keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        if lines[0].strip() == "\b":
            head, *kept = lines[1:]
            yield from (".PP", _line(head.strip()), ".RS 2", ".nf", *map(_line, kept), ".fi", ".RE")
        elif paragraph.strip():
            yield from (".PP", *(_line(line.strip()) for line in lines))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    if records:
        yield ".SH OPTIONS"
    for names, text in records:
        yield from (".TP", f"\\fB{_text(names)}\\fR", _line(text))


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        return
    yield ".SH COMMANDS"
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        summary = (found.help or "").partition("\n")[0]
        yield from (".TP", f"\\fB{_text(_name(context))}\\-{_text(each)}\\fR({SECTION})", _line(summary))


def _related(context: click.Context) -> list[str]:
    root = context.find_root()
    if context.parent is not None:
        return [_name(root)] if context.parent is root else [_name(root), _name(context.parent)]
    if not isinstance(root.command, click.Group):
        return []
    return [f"{_name(root)}-{each}" for each in root.command.list_commands(root)]


def _line(text: str) -> str:
    """A line of text, which must not be taken for a request where it begins with a dot or quote."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _text(text: str) -> str:
    """Text with nothing in it that man(7) acts on; a minus sign stays one, so that options can be copied."""
    table = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
    return "".join(table.get(each, each) for each in text)
