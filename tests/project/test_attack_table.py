"""docs/trust.md, "What was attacked": each row names tests, and each of them exists in its file."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("client/trust", "client/cli/servers")


def test_each_row_names_tests_that_exist() -> None:
    page = (ROOT / "docs/trust.md").read_text()
    rows = re.findall(r"^\| .+ \| .+ \| (`.+`) \|$", page.partition("## What was attacked")[2], re.M)
    assert len(rows) >= 10
    for row in rows:
        for file, names in re.findall(r"`(test_\w+\.py)`: ((?:`test_\w+`(?:, )?)+)", row):
            (path,) = {path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob(file)} or {
                ROOT / "tests/client" / file
            }
            found = {
                node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
            }
            assert set(re.findall(r"`(test_\w+)`", names)) <= found, file
        assert re.match(r"`test_\w+\.py`: `test_", row), row
