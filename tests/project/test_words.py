"""The crudest ways of writing a sentence that has to be read twice. What is finer is for readers to find."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.project_files import PACKAGES, everywhere, modules

# A docstring begins with a verb or a noun phrase, not with a word that makes it the end of a sentence.
FIRST_WORDS = {
    *("and", "as", "by", "else", "for", "from", "has", "if", "in", "not", "of", "or", "so", "than", "then"),
    *("those", "to", "who", "whom", "whose", "with"),
}

CRUDE = (
    re.compile(r"\bbe (it|they)\b"),  # "be they lost or not": whether or not they were lost
    re.compile(r"\b[Ss]o many\b"),  # "after so many seconds": after `timeout_s` seconds
    re.compile(r"\b(that|those) of (which|whom|whose)\b"),
)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring of a module, and of the strings under its attributes."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield statement.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment that has a line of its own."""
    for number, line in enumerate(source.splitlines(), 1):
        if found := re.match(r"\s*# ?(.*)", line):
            yield number, found[1]


def crude(source: str) -> list[str]:
    problems = [
        f"{line}: {text.split()[0]} ..."
        for line, text in docstrings(source)
        if text.strip() and text.split()[0].strip(",:").lower() in FIRST_WORDS
    ]
    for line, text in (*docstrings(source), *comments(source)):
        problems += [f"{line}: {found[0]}" for pattern in CRUDE for found in pattern.finditer(text)]
    return problems


def test_no_docstring_or_comment_is_crude() -> None:
    product = {name: text for name, text in modules().items() if name.startswith(PACKAGES)}
    assert everywhere(crude, product) == []


# The check on the check.


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('def f():\n    """Of the interval."""', "2: Of ..."),
        ('"""Who holds a lease."""', "1: Who ..."),
        ('class C:\n    """A thing."""\n    x: int\n    """As y."""', "4: As ..."),
        ('"""All rows, be they lost or not."""', "1: be they"),
        ("x = 1\n# waits so many seconds", "2: so many"),
    ],
)
def test_what_is_crude_is_found(source: str, problem: str) -> None:
    assert crude(source) == [problem]


def test_what_is_plain_passes() -> None:
    assert crude('"""Opens a lease. Whose it is, the table knows."""\nx = "so many"  # As y has it.') == []
