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
    assert re.findall(r"\n### (\w+)\n", section) == list(TABLES)
    for table, columns in TABLES.items():
        own = [tuple(column) for column in columns if column.name != "cell"]
        assert described(table) == own
        assert re.match(r"\n[A-Z][^|]+\.\n", TEXT.split(f"\n### {table}\n")[1]), f"{table}: what a row is"


def test_the_columns_of_pairs_are_described_as_they_are() -> None:
    section = TEXT.split("\n## Each pair\n")[1].split("\n## ")[0]
    told = [(name, kind, meaning.strip()) for name, kind, meaning in ROW.findall(section)]
    assert told == [tuple(column) for column in PAIR_COLUMNS]
