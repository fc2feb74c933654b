"""Which scenarios of which runs can be analysed, by their JSON files and what their Parquet files have.

A scenario that cannot be trusted is left out and named.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError, Stored
from kcast.loadtest.capture.schema import CUT_OFF, TABLES
from kcast.loadtest.results.surroundings import may_leave
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.spark.capture.completeness import shortfalls
from kcast.spark.capture.footers import Found, Part, checked, is_part
from kcast.spark.capture.reading import CellFolder
from kcast.spark.capture.runs import Run as Run
from kcast.spark.capture.runs import open_run as open_run
from kcast.spark.capture.runs import selected as selected
from kcast.spark.capture.side_tables import SideTables, no_rows
from kcast.spark.capture.sizes import CellSize
from kcast.spark.findings.cells import Cell
from kcast.spark.session.files import Files, shown


@dataclass(slots=True)
class _Opened:
    """A scenario whose scenario.json is sound; `parts` are paths of its Parquet files, by table."""

    folder: CellFolder
    name: str
    run: Run
    scenario: Scenario
    status: str
    written: Mapping[str, Stored] | None
    hashes: Mapping[str, Mapping[str, str]] | None
    t0_ns: int | None
    parts: dict[str, list[str]] = field(default_factory=dict)

    def to_check(self) -> Iterator[Part]:
        """All parts, with their hashes as far as these are known."""
        for table, paths in self.parts.items():
            known = self.hashes[table] if self.hashes is not None else {}
            for path in paths:
                yield Part(path, self.folder.cell, table, known.get(path.rpartition("/")[2]))

    def strange(self) -> str | None:
        """The path of a part that the run did not write, if there is any."""
        if self.hashes is None:
            return None
        return next((each.path for each in self.to_check() if each.hash is None), None)


class ScenarioChecks:
    """Checks scenarios, one after the other with `scenario`, and then all their files with `files`.

    The results are in the attributes; `Captures` says what they are.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._opened: list[_Opened] = []
        self.cells: list[Cell] = []
        self.folders: list[CellFolder] = []
        self.rows: Counter[str] = Counter()  # by table
        self.sizes: dict[int, CellSize] = {}
        self.side: dict[int, SideTables] = {}
        self.problems: list[str] = []

    def scenario(self, run: Run, scenario: Scenario, number: int) -> None:
        """Checks a scenario's scenario.json, and lists its files."""
        name = f"{shown(run.path)}: scenario {scenario.name}"
        folder_name = manifest.scenario_folder(scenario.name)
        if folder_name not in run.begun:
            self.problems.append(f"{name} was not run")
            return
        folder = CellFolder(number, f"{run.path}/{manifest.run_folder(run.run_id)}/{folder_name}")
        where = f"{shown(folder.path)}/{manifest.SCENARIO_FILE}"
        try:
            info = manifest.parse(self._files.read(f"{folder.path}/{manifest.SCENARIO_FILE}"), where)
            if info.get("run_id", run.run_id) != run.run_id or not _is_of(scenario, info):
                raise CaptureError(f"{where}: of another run; captures must not be mixed")
            written, hashes = manifest.stored(info, where), manifest.hashes(info, where)
        except (OSError, CaptureError) as error:
            self.problems.append(f"{name} is left out: {error}")
            return
        status = manifest.status(info)
        if status != "complete":
            self.problems.append(f"{name} is left out: {_why_not(status, info)}")
            return
        t0_ns = info.get("t0_ns")
        opened = _Opened(
            folder, name, run, scenario, status, written, hashes, t0_ns if isinstance(t0_ns, int) else None
        )
        for table in TABLES:
            path = f"{folder.path}/{manifest.table_folder(table)}"
            opened.parts[table] = [f"{path}/{part}" for part in self._files.names(path) if is_part(part)]
        self._opened.append(opened)

    def files(self, spark: SparkSession) -> None:
        """Checks the files of all scenarios so far; each scenario that is sound becomes a cell."""
        found = checked(
            spark,
            [each.folder.path for each in self._opened],
            [part for each in self._opened for part in each.to_check()],
            frozenset(each.folder.cell for each in self._opened if may_leave(each.scenario)),
        )
        for opened in self._opened:
            own = {table: found.get((opened.folder.cell, table), Found()) for table in TABLES}
            errors = [each.error for each in own.values() if each.error is not None]
            if errors:
                others = sum(each.errors for each in own.values()) - 1
                more = f" (and {others} more)" if others else ""
                self.problems.append(f"{opened.name} is left out: {errors[0]}{more}")
            else:
                self._judge(opened, own)

    def _judge(self, opened: _Opened, found: Mapping[str, Found]) -> None:
        side = {table: each.side for table, each in found.items() if each.side is not None}
        window = side.get("window", no_rows("window"))
        amounts = {table: Stored(each.files, each.rows) for table, each in found.items()}
        missing = shortfalls(
            opened.scenario,
            amounts,
            opened.written,
            scheduled=pc.sum(window["scheduled"]).as_py() or 0,
            copies=found["client_stat"].most.get("copies", 0),
            cut_off=any(
                found[table].most.get("injected") == CUT_OFF for table in ("pub_tx", "deliver", "subscribe")
            ),
        )
        if not missing and not amounts["publish"].rows:
            missing = ["nothing was published"]
        if not missing and (strange := opened.strange()) is not None:
            missing = [f"{shown(strange)}: the run wrote no file of this name"]
        if missing:
            self.problems.append(f"{opened.name} is left out: {'; '.join(missing)}")
            return
        begun_ns = pc.min(window["t_from_ns"]).as_py()
        begins = (begun_ns, opened.t0_ns, found["publish"].least.get("t_intended_ns"), 0)
        t0_ns = next(each for each in begins if each is not None)
        self.folders.append(opened.folder)
        self.rows.update({table: amount.rows for table, amount in amounts.items()})
        self.sizes[opened.folder.cell] = CellSize.of(
            opened.scenario, {table: amount.rows for table, amount in amounts.items()}
        )
        self.cells.append(Cell(opened.folder.cell, opened.run.run_id, opened.scenario, opened.status, t0_ns))
        self.side[opened.folder.cell] = SideTables(
            opened.scenario, "complete", side, found["subscribe"].renewals
        )


def _is_of(scenario: Scenario, info: Mapping[str, Any]) -> bool:
    """Whether scenario.json is of this scenario. That of an earlier kcast may have fewer fields."""
    told = info.get("scenario")
    try:
        return isinstance(told, dict) and Scenario.from_capture(told) == scenario
    except ScenarioError:
        return False


def _why_not(status: str, info: Mapping[str, Any]) -> str:
    if status == "running":
        return "it is still being run; wait for it"
    reason = info.get("reason")
    told = f", {reason}" if reason else ""
    return f"it is {status}{told}; run it again with kcast load --resume"
