"""docs/analysis.md and the findings' tables tell the same."""

import re

from kcast.spark.findings.pair_columns import PAIR_COLUMNS
from kcast.spark.findings.tables import TABLES
from tests.support.checkout import ROOT

TEXT = (ROOT / "docs" / "analysis.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\S+) \|(.*)\|$", re.MULTILINE)


def described(table: str) -> list[tuple[str, str, str]]:
    section = TEXT.split(f"\n### {table}\n")[1].split("\n### ")[0]
    return [(name, kind, meaning.strip()) for name, kind, meaning in ROW.findall(section)]


def test_the_tables_are_described_as_they_are() -> None:
    section = TEXT.split("\n## The tables\n")[1]
    (told,) = re.findall(r"In all tables but (.+?), the\sfirst column is `cell`", section, re.DOTALL)
    without = {table for table, columns in TABLES.items() if columns[0].name != "cell"}
    assert set(re.findall(r"`(\w+)`", told)) == without
    listed = re.findall(
        r"^\| (?:\[`(\w+)`\]\(#\1\)|`(\w+)`) \| [^|]+ \|$", section.split("\n### ")[0], re.MULTILINE
    )
    assert ["".join(names) for names in listed] == list(TABLES)
    assert re.findall(r"\n### (\w+)\n", section) == [name for name, _ in listed if name]
    for table in re.findall(r"\n### (\w+)\n", section):
        assert described(table) == [tuple(column) for column in TABLES[table] if column.name != "cell"]


def test_the_columns_of_pairs_are_described_as_they_are() -> None:
    section = TEXT.split("\n## Each pair\n")[1].split("\n## ")[0]
    told = [(name, kind, meaning.strip()) for name, kind, meaning in ROW.findall(section)]
    assert told == [tuple(column) for column in PAIR_COLUMNS]
