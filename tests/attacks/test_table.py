"""docs/reliability.md: its tables have the suite's rows, with their bars, and name tests that exist."""

import re

from tests.attacks.rows import ROWS
from tests.attacks.rows.floods import OLD
from tests.support.checkout import ROOT

ROW = re.compile(
    r"^\| `([a-z0-9-]+)`( \*)? \| (.+) \| (.+) \| (.+) \| (.+) \| `(\S+\.py)`: `(\w+)` \|$", re.M
)


def section() -> str:
    page = (ROOT / "docs/reliability.md").read_text()
    return page.partition("## The rows")[2].partition("\n## ")[0]


def test_the_page_has_each_row_of_the_suite_with_its_bar() -> None:
    told = [(name, bars, not star) for name, star, _, bars, *_ in ROW.findall(section())]
    assert told == [(row.name, row.bars, row.in_short) for row in ROWS]


def test_all_lines_are_understood() -> None:
    lines = [line for line in section().splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


def test_each_row_names_a_test_that_holds_it() -> None:
    for *_, path, test in ROW.findall(section()):
        assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.M), (path, test)


def test_each_row_has_figures() -> None:
    for name, _, attack, _, before, now, *_ in ROW.findall(section()):
        assert attack.strip() and before.strip() and re.search(r"\d|none", now), name


def test_the_commits_that_the_page_names_are_those_of_the_suite() -> None:
    assert OLD in section()


def others() -> str:
    page = (ROOT / "docs/reliability.md").read_text()
    return page.partition("## What other attacks there are")[2]


def test_the_list_of_attacks_names_rows_and_tests_that_exist() -> None:
    names = {row.name for row in ROWS} | {"junk-"}
    for line in [line for line in others().splitlines() if line.startswith("| ")][1:]:
        means = line.split(" | ")[-1]
        words = re.findall(r"`([^`]+)`", means)
        assert words or "](" in means, line
        path = ""
        for word in words:
            if word.endswith(".py"):
                path = word
            elif word.startswith("test_"):
                assert re.search(rf"^def {word}\(", (ROOT / path).read_text(), re.M), (path, word)
            else:
                assert word in names or word == "make fuzz", word


def test_each_row_stands_in_the_list_of_attacks() -> None:
    """Those where nobody attacks do not."""
    named = set(re.findall(r"`([a-z0-9-]+)`", others()))
    missing = {row.name for row in ROWS} - named
    assert {name for name in missing if not name.startswith(("junk-", "credit-"))} == set()
