"""Compares what a program prints with what a page says, in shape: words and lines count, numbers do not."""

import re

# In this order: a server's address is a number, too.
_WILD = (
    (re.compile(r"\[[0-9a-f:.]+\]:\d+"), "#"),  # [2001:db8::7]:7400
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "#"),  # a salt, a digest
    (re.compile(r"\b\d+\.\d+\.\d+\.dev\d+"), "#"),  # a version that is not yet released
    (re.compile(r"(?:[<>~] )?\d[\d.,:]*(?<![.,:])(?:e[+-]?\d+)?"), "#"),
    (re.compile(r"(?<!\S)-(?!\S)"), "#"),  # a table has no number here
    (re.compile(r"(?<=%)\*(?!\S)"), ""),  # it differs from what was measured, as one in twenty does by chance
    (re.compile(r"\s+"), " "),  # columns are as wide as their numbers
)


def shape(line: str) -> str:
    """The line with `#` for each number and address, and single blanks."""
    for pattern, mark in _WILD:
        line = pattern.sub(mark, line)
    return line.strip()


def has_shape(printed: str, expected: str) -> bool:
    """Whether the text has the shape of what was expected: each line's words, and as many lines.

    `...` in what was expected stands for any text, and alone on a line for any lines. Empty lines at the end
    do not count.
    """
    pattern = ""
    for line in expected.rstrip().split("\n"):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(shape(part)) for part in line.split("...")) + r"\n"
    lines = [shape(line) for line in printed.rstrip().split("\n")]
    return re.fullmatch(pattern, "\n".join(lines) + "\n") is not None
