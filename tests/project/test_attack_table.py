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


def test_all_rows_are_understood() -> None:
    lines = [line for line in section().splitlines() if line.startswith("|")]
    assert len(lines) - 2 == len(ROW.findall(section()))


def test_the_attacks_themselves_are_all_named() -> None:
    """Those of the tests of a judge that are no attack are its own affair."""
    named = {row[3] for row in ROW.findall(section())}
    tree = ast.parse((ROOT / "tests/client/trust/checks/test_attacks.py").read_text())
    tests = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    first, last = (tests.index(name) for name in ("test_an_unlogged_list", "test_a_malicious_mirror"))
    beside = {
        "test_a_version_may_be_excepted_from_churn_by_the_owners",
        "test_after_an_exception_lists_are_compared_with_the_one_that_was_excepted",
        "test_two_roots_of_one_size_are_a_fork_that_needs_no_tiles",
        "test_a_rewritten_log_without_its_tiles_is_not_believed_either",
        "test_an_old_list_with_a_new_checkpoint",
        "test_few_entries_after_the_list_are_looked_at",
        "test_a_freeze_where_the_owners_say_refuse",
    }
    attacks = {name for name in tests[first : last + 1] if name.startswith("test_")}
    assert attacks - beside <= named
