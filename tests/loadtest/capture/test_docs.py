"""docs/capture.md and the schema tell the same, and its examples work."""

import re
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.capture.writer import CaptureWriter
from tests.support.capture_rows import new_scenario, rows
from tests.support.checkout import ROOT

TEXT = (ROOT / "docs" / "capture.md").read_text()
ROW = re.compile(r"\| `(\w+)` \| (\S+) \|(.*)\|")


def described(table: str) -> list[tuple[str, str, str]]:
    section = TEXT.split(f"\n### {table}\n")[1].split("\n### ")[0]
    return [(name, kind, meaning.strip()) for name, kind, meaning in ROW.findall(section)]


def test_each_table_is_described_as_it_is() -> None:
    for table in TABLES:
        assert described(table) == [tuple(column) for column in TABLES[table]]


def test_no_other_table_is_described() -> None:
    assert re.findall(r"\n### (\w+)\n", TEXT) == list(TABLES)


def test_the_examples_in_python_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = new_scenario(tmp_path, "load")
    writer = CaptureWriter(place.path, "w")
    writer.append("deliver", rows("deliver", 3))
    writer.close()
    (tmp_path / "run").rename(tmp_path / "RUN")
    monkeypatch.chdir(tmp_path)
    examples = [text for text in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "spark" not in text]
    assert len(examples) == 2
    for example in examples:
        found: dict[str, Any] = {}
        exec(example, found)
        assert found["deliver"]["msg_id"].to_pylist() == [0, 1, 2]


def test_how_to_read_it_takes_three_lines_each() -> None:
    first, second = re.findall(r"```python\n(.*?)```", TEXT.split("## The folder")[0], re.DOTALL)[:2]
    assert [len(re.findall(r"^.", example, re.MULTILINE)) for example in (first, second)] == [3, 3]
    assert ("pyarrow" in first, "spark" in second) == (True, True)
