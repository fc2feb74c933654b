"""Text for people, with nothing in it that can act on a terminal; tables and paragraphs that fit their page.

On a terminal, and in all text formats, control characters of what peers or users chose appear as `\\x1b`.
JSON has them as JSON does. Payloads go to pipes and files as they are, where no format was asked for.

On a terminal the page is as wide as the terminal. Elsewhere it has 80 columns, and a row of a table is one
line, whatever its width, so that other programs can read it.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from textwrap import wrap

import click

from kcast.pubsub.errors import named

COLUMNS = 80
_WIDEST = 10_000
_GAP = 2  # columns between two columns of a table
_NO_BREAK = "\N{NO-BREAK SPACE}"

# Control characters, and those that reverse or break lines: they could mislead a terminal or a reader.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str | bytes) -> str:
    """Returns text that no terminal acts on: control characters, and bytes that are not UTF-8, as `\\x1b`."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0])
    code = ord(match[0])
    if short:
        return short
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def to_json(fields: dict[str, object]) -> str:
    """Returns one JSON object in one line, in ASCII only, so that no terminal acts on it."""
    return json.dumps(fields).replace("\x7f", "\\u007f")


def text_fields(name: str, data: bytes) -> dict[str, object]:
    """Returns `{name: text}` if the bytes are UTF-8, else `{name_base64: ...}`."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def tell(text: str, *, err: bool = False) -> None:
    """Prints text on standard output, or on standard error. What peers and users chose cannot act on a
    terminal. What of that may have a LF is to be `escaped` before."""
    with named("standard error" if err else "standard output"):
        click.echo("\n".join(map(escaped, text.split("\n"))), err=err)


# --- Pages -------------------------------------------------------------------------------------------


def terminal_columns() -> int | None:
    """Returns the width of the terminal that standard output is; None where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def paragraph(text: str, label: str = "", columns: int | None = None) -> list[str]:
    """Returns lines of text; the first begins with a label, below which nothing stands."""
    lines = wrap(
        text.replace(" %", f"{_NO_BREAK}%"),  # a number and its percent sign are one word
        max(columns or terminal_columns() or COLUMNS, len(label) + 20),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, columns: int | None = None
) -> list[str]:
    """Returns aligned lines: the first `left` columns to the left, the others to the right. Where there is
    too little room, text goes on below: on a terminal that of all cells, elsewhere that of heads."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    below = [(head, *cells) for head, *cells in zip(heads, *rows, strict=True)]
    full = sum(max(map(len, column)) + _GAP for column in below) - _GAP
    room = columns or terminal_columns()
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="")
    for index, (head, *cells) in enumerate(below):
        grid.add_column(
            Text(head),
            justify="left" if index < left else "right",
            overflow="fold",
            max_width=None if room or full <= COLUMNS else max(map(len, (*head.split(), *cells))),
        )
    for row in zip(*(cells for _, *cells in below), strict=True):
        grid.add_row(*map(Text, row))
    page = io.StringIO()
    Console(file=page, width=room or _WIDEST, color_system=None).print(grid)
    return [line.rstrip() for line in page.getvalue().splitlines()]
