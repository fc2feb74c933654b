"""Text laid out for people: tables and paragraphs that fit their page and break between words.

On a terminal the page is as wide as the terminal. Elsewhere it has 80 columns, and a row of a table is one
line, whatever its width, so that other programs can read it.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

COLUMNS = 80
_GAP = "  "
_NO_BREAK = "\N{NO-BREAK SPACE}"


def terminal_columns() -> int | None:
    """Returns the width of the terminal that standard output is; None where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def paragraph(text: str, label: str = "", columns: int | None = None) -> list[str]:
    """Returns lines of text; the first begins with a label, below which nothing stands."""
    width = columns or terminal_columns() or COLUMNS
    lines = wrap(
        _kept_together(text),
        max(width, len(label) + 20),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def folded(line: str, label_chars: int) -> list[str]:
    """Returns a line as several if it is too long, below each other from the column `label_chars` on."""
    return paragraph(line[label_chars:], line[:label_chars]) if line else [""]


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: int = 1,
    columns: int | None = None,
    breaks_heads: bool = False,
) -> list[str]:
    """Returns aligned lines: the first `left` columns to the left, the others to the right.

    On a terminal of `columns`, by default that of standard output, heads and cells break between words where
    the table is too wide; where even that does not help, each cell gets a line of its own. Elsewhere only
    heads break, with `breaks_heads`.
    """
    columns = columns or terminal_columns()
    cells = [[_kept_together(cell) for cell in row] for row in rows]
    heads = [_kept_together(head) for head in heads]
    full = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if columns:
        least = [max(map(_longest_word, column)) for column in zip(heads, *cells, strict=True)]
        widths = _narrowed(full, least, columns)
        if _width(widths) > columns:
            return list(_records(heads, cells, columns))
    elif breaks_heads and _width(full) > COLUMNS:
        words = [_longest_word(head) for head in heads]
        widths = [max([word, *map(len, column)]) for word, *column in zip(words, *cells, strict=True)]
        # As narrow as its words: how a head breaks does not hang on the length of the numbers below it.
        heads = ["\n".join(_broken(head, word)) for head, word in zip(heads, words, strict=True)]
    else:
        widths = full
    lines = _lines(heads, widths, left, at_the_bottom=True)
    for row in cells:
        lines += _lines(row, widths, left)
    return lines


def _kept_together(text: str) -> str:
    """A number and its percent sign are one word."""
    return text.replace(" %", f"{_NO_BREAK}%")


def _longest_word(text: str) -> int:
    return max(map(len, text.split(" ")), default=0)


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _broken(text: str, width: int) -> list[str]:
    """The lines of a text, each broken between words where it is longer than a width."""
    lines = []
    for line in text.split("\n"):
        fits = len(line) <= width
        lines += [line] if fits else wrap(line, width, break_long_words=False, break_on_hyphens=False)
    return lines


def _narrowed(full: Sequence[int], least: Sequence[int], columns: int) -> list[int]:
    widths = list(full)
    while _width(widths) > columns:
        index = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        if widths[index] <= least[index]:
            break
        widths[index] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], left: int, at_the_bottom: bool = False) -> list[str]:
    parts = [_broken(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, parts))
    for part in parts:
        missing = [""] * (height - len(part))
        part[:] = missing + part if at_the_bottom else part + missing
    return [
        _GAP.join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        .replace(_NO_BREAK, " ")
        for line in zip(*parts, strict=True)
    ]


def _records(heads: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """Yields each row as lines of head and cell, with an empty line between two rows."""
    width = max(map(len, heads))
    for number, row in enumerate(rows):
        if number:
            yield ""
        for head, cell in zip(heads, row, strict=True):
            if cell:
                label = f"{head.ljust(width)}{_GAP}".replace(_NO_BREAK, " ")
                yield from paragraph(cell, label, columns)
