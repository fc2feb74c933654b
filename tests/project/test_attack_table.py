"""docs/trust.md, "What was attacked": each test that it names exists, and its command runs all of them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"^\| (.+) \| (.+) \| `(\w+\.py)`: `(\w+)` \|$", re.M)


def section() -> str:
    page = (ROOT / "docs/trust.md").read_text()
    return page.partition("## What was attacked")[2].partition("\n## ")[0]


def test_each_row_names_a_test_that_its_command_runs() -> None:
    rows = ROW.findall(section())
    files = [ROOT / path for path in re.findall(r"tests/\S+\.py", section())]
    found = {
        (path.name, node.name)
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert len(rows) >= 30
    assert [row for row in rows if row[2:] not in found] == []
    assert {path.name for path in files} == {row[2] for row in rows}
