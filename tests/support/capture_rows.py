"""Rows of any table, for tests: values that tell rows apart, of every type that columns have."""

from pathlib import Path
from typing import Any

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import ScenarioFolder, create_run
from kcast.loadtest.capture.manifest import PART_SUFFIX
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.scenario import Scenario


def rows(table: str, count: int, start: int = 0) -> dict[str, list[Any]]:
    """Returns `count` rows, numbered from `start`."""
    return {name: [_value(kind, start + row) for row in range(count)] for name, kind, _ in TABLES[table]}


def _value(kind: str, row: int) -> Any:
    match kind:
        case "string":
            return f"text {row}"
        case "list<int32>":
            return list(range(row % 4))
        case "int8":
            return row % 100
    return row


def new_scenario(folder: Path, name: str = "one") -> ScenarioFolder:
    """Returns a new scenario of a new run."""
    return create_run(folder / "run", [Scenario(name=name)], seed=1).begin(name)


def written(folder: Path) -> int:
    """Returns the number of rows in a scenario's folder."""
    return sum(parts.contents(path).rows for path in folder.glob(f"table=*/[!._]*{PART_SUFFIX}"))
