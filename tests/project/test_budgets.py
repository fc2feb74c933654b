"""How much code each room may have: `BUDGETS`.

A budget is raised by a decision, with a line in docs/decisions.md; who makes a room smaller lowers it.
A line of code is one that is neither blank, nor only a comment, nor part of a docstring.
"""

import ast
import re
from pathlib import PurePosixPath

from tests.support.project_files import texts

# Each file counts for the longest of these that its path begins with.
BUDGETS = {
    "pubsub": 8_260,
    "hashring": 900,
    "client": 9_660,
    "client/cli": 7_095,
    "client/history": 2_600,
    "client/layers": 1_202,
    "client/sealed": 2_511,
    "client/trust": 4_940,
    "loadtest": 12_795,
    "spark": 7_000,
    "tests": 77_690,
    "bench": 3_815,
}
OTHERS = 380  # setup.py, tools/, docs/examples/
SUFFIXES = {".py", ".c", ".j2", ".html", ".css", ".js"}

_COMMENTS = re.compile(r"/\*.*?\*/|\{#.*?#\}|<!--.*?-->|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)


def code_lines(name: str, text: str) -> int:
    """How many lines of code a file has."""
    if not name.endswith(".py"):
        return sum(1 for line in _COMMENTS.sub("", text).splitlines() if line.strip())
    lines = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    docs: list[ast.expr] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Constant(value=str()) if node.end_lineno != node.lineno:  # also its blank lines
                lines.update(_span(node))
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as doc, *_])
            ):
                docs.append(doc.value)
    return len(lines.difference(*map(_span, docs)))


def _span(node: ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def room_of(name: str) -> str:
    return max((room for room in BUDGETS if name.startswith(f"{room}/")), key=len, default="")


def test_no_room_has_more_code_than_its_budget() -> None:
    counted = dict.fromkeys(BUDGETS, 0) | {"": 0}
    for name, text in texts().items():
        if PurePosixPath(name).suffix in SUFFIXES:
            counted[room_of(name)] += code_lines(name, text)
    over = {
        room or "other files": f"{lines:,} lines of code, and its budget is {budget:,}"
        for room, lines in counted.items()
        if lines > (budget := BUDGETS.get(room, OTHERS))
    }
    assert over == {}


def test_what_counts_as_code() -> None:
    source = '"""Module."""\n\nX = """a\n\nb"""  # text\n# comment\n\n\n'
    source += 'def f():\n    """Doc.\n\n    More.\n    """\n    return (\n        1\n    )\n'
    assert code_lines("a.py", source) == 7
    assert code_lines("a.c", "// one\nint a; // two\n/* three\nfour */\n\nint b; /* five */\n") == 2
    assert code_lines("a.j2", "{# one\ntwo #}\n<p>\n<!-- three -->\n</p>\n") == 2
    assert room_of("client/cli/pub.py") == "client/cli"
    assert room_of("client/core.py") == "client"
