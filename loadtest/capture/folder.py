"""A run's folder: JSON files say what was run and how it ended, hive-partitioned Parquet files what happened.

    RUN/run.json
    RUN/run=<run_id>/scenario=<name>/scenario.json
    RUN/run=<run_id>/scenario=<name>/table=<table>/*.parquet

All changes are atomic: JSON files are replaced, a scenario's folder appears with its JSON file in it, and the
folder of a scenario that is run again is renamed. So a run can be read however it ended. A process that is
killed cannot change the status: "running" counts only while the process that wrote it exists.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from kcast.client.clusters.durable import write_whole
from kcast.loadtest.capture import host, manifest, parts
from kcast.loadtest.capture.manifest import RUN_FILE, SCENARIO_FILE
from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.manifest import Status as Status
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario

# Readers guess a partition's type from its values. These are text for them: what begins with a letter, and
# policies such as 5-3-5, which are no dates, since those have years of four digits.
_NAME = re.compile(r"(?!(?i:nan|inf|infinity|null|true|false)$)([A-Za-z]|\d{1,3}-\d+-)[^\0-\x1f]*")
_NAME_BYTES_MAX = 200  # after quoting


class _Folder:
    """A folder with a JSON file about it."""

    def __init__(self, path: Path, file_name: str) -> None:
        self.path = path
        self._file = path / file_name

    @property
    def info(self) -> dict[str, Any]:
        """The contents of its JSON file. Raises CaptureError."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            raise CaptureError(f"{self.path}: not a capture: it has no {self._file.name}") from None
        except OSError as error:
            raise CaptureError(f"{self._file}: cannot be read: {error}") from None
        return manifest.parse(text, self._file)

    @property
    def status(self) -> Status:
        """The status. "running" becomes "partial" if the process that wrote it has ended."""
        return manifest.status(self.info)

    def update(self, **facts: Any) -> None:
        """Changes facts in its JSON file, atomically. Raises OSError."""
        _write_json(self._file, self.info | facts)

    def finish(self, status: Status, **facts: Any) -> None:
        """Writes the status at its end, and further facts. Raises OSError."""
        self.update(status=status, ended=_now(), **facts)


class ScenarioFolder(_Folder):
    """The folder of one scenario of a run: CaptureWriters write into it, the analysis reads it."""

    def __init__(self, path: Path, scenario: Scenario) -> None:
        super().__init__(path, SCENARIO_FILE)
        self.scenario = scenario

    def parts(self, table: str) -> list[Path]:
        """Returns a table's files, sorted by name; an empty list if nothing was recorded."""
        # Hidden files are unfinished.
        found = (self.path / manifest.table_folder(table)).glob(f"[!._]*{manifest.PART_SUFFIX}")
        return sorted(found)

    def finish(self, status: Status, **facts: Any) -> None:
        """Writes the status at its end, and further facts. If it is complete, also writes the size of each
        table, and the hash of each part, so that readers notice what is lost or damaged later. Raises
        OSError, and CaptureError for a damaged part."""
        if status == "complete" and "tables" not in facts:
            found = {
                table: {path.name: parts.contents(path) for path in self.parts(table)} for table in TABLES
            }
            facts["tables"] = {
                table: {"files": len(each), "rows": sum(part.rows for part in each.values())}
                for table, each in found.items()
            }
            facts["hashes"] = {
                table: {name: part.hash for name, part in each.items()} for table, each in found.items()
            }
        super().finish(status, **facts)

    def read(
        self, table: str, columns: Sequence[str] | None = None, *, msg_id: int | None = None
    ) -> pa.Table:
        """Reads a table, with all columns or these. It has no rows if nothing was recorded.

        With `msg_id`, only the rows of that message are kept, a part at a time; the columns must have it.
        Raises CaptureError, which names the file that is damaged or of another version.
        """
        schema = parts.arrow_schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        paths, known = self.parts(table), manifest.hashes(self.info, self._file)
        hashes: Mapping[str, str] = known[table] if known is not None else {}
        if known is not None and (wrong := sorted({path.name for path in paths} ^ hashes.keys())):
            raise CaptureError(
                f"{self.path}: table {table} has lost, or was given, files: {', '.join(wrong)}"
            )
        found = []
        for path in paths:
            rows = parts.read_part(path, table, schema.names, expected_hash=hashes.get(path.name))
            if msg_id is not None:
                rows = rows.filter(pc.equal(rows.column("msg_id"), msg_id))
            found.append(rows)
        return pa.concat_tables(found) if found else schema.empty_table()


class RunFolder(_Folder):
    """The folder of a run; `create_run` and `open_run` return it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, RUN_FILE)

    @property
    def run_id(self) -> str:
        """The id of this run, different from all others. Raises CaptureError."""
        return manifest.run_id(self.info, self._file)

    @property
    def planned(self) -> tuple[Scenario, ...]:
        """All scenarios of the run, whether they have begun or not. Raises CaptureError."""
        return manifest.planned(self.info, self._file)

    @property
    def scenarios(self) -> tuple[ScenarioFolder, ...]:
        """The scenarios that have begun, in the order of run.json. Raises CaptureError."""
        found = (ScenarioFolder(self._path_of(planned.name), planned) for planned in self.planned)
        return tuple(folder for folder in found if folder.path.exists())

    def scenario(self, name: str) -> ScenarioFolder:
        """Returns a scenario that has begun. Raises CaptureError."""
        for folder in self.scenarios:
            if folder.scenario.name == name:
                return folder
        begun = ", ".join(folder.scenario.name for folder in self.scenarios)
        raise CaptureError(f"{self.path}: no scenario {name}; it has {begun or 'none'}")

    def begin(self, name: str) -> ScenarioFolder:
        """Makes a new folder for one of the run's scenarios, with status "running".

        The folder of an earlier attempt gets a hidden name, which readers ignore. Raises OSError, and
        CaptureError if the scenario is complete or running.
        """
        scenario = next((planned for planned in self.planned if planned.name == name), None)
        if scenario is None:
            raise CaptureError(f"{self.path}: this run has no scenario {name}")
        path = self._path_of(name)
        if path.exists():
            status = ScenarioFolder(path, scenario).status
            if status in ("complete", "running"):
                raise CaptureError(f"{self.path}: scenario {name} is already {status}")
            _move_aside(path)
        facts = {"run_id": self.run_id, "name": name, "scenario": scenario.as_json()}
        unready = path.with_name(f".{path.name}.unready-{token_hex(4)}")
        unready.mkdir(parents=True)
        try:
            _write_json(unready / SCENARIO_FILE, _begun() | facts)
            unready.rename(path)
        except BaseException:
            (unready / SCENARIO_FILE).unlink(missing_ok=True)
            unready.rmdir()
            raise
        return ScenarioFolder(path, scenario)

    def begin_anew(self, scenario: Scenario) -> ScenarioFolder:
        """Begins the scenario of this name again, with other settings; the run has these from now on.

        What an attempt left, complete or not, gets a hidden name. Raises as `begin` does.
        """
        every = [scenario if each.name == scenario.name else each for each in self.planned]
        path = self._path_of(scenario.name)
        if path.exists():
            _move_aside(path)
        self.update(scenarios=[each.as_json() for each in every])
        return self.begin(scenario.name)

    def _path_of(self, name: str) -> Path:
        return self.path / manifest.run_folder(self.run_id) / manifest.scenario_folder(name)

    def check(self) -> None:
        """Raises CaptureError if the folder has files of another run."""
        run = self.run_id
        runs = [path.name for path in self.path.glob("run=*")]
        scenarios = [path.name for path in self.path.glob(f"{manifest.run_folder(run)}/scenario=*")]
        manifest.check_folders(self.path, run, [planned.name for planned in self.planned], runs, scenarios)


def create_run(
    path: Path,
    scenarios: Sequence[Scenario],
    *,
    seed: int,
    command: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Makes a run's folder, with a run.json of status "running".

    `facts` are added to run.json as they are. Raises OSError, and CaptureError if `path` is not empty or a
    scenario's name cannot be used.
    """
    names = [scenario.name for scenario in scenarios]
    for number, name in enumerate(names):
        if _NAME.fullmatch(name) is None or len(quote(name, safe="")) > _NAME_BYTES_MAX:
            raise CaptureError(
                f"scenario {name!r}: the name becomes a folder's: begin it with a letter, and keep it short"
            )
        if name in names[:number]:
            raise CaptureError(f"two scenarios have the name {name}: give each its own")
    if (path / RUN_FILE).exists():
        raise CaptureError(f"{path}: there is already a capture; resume it, or give another folder")
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise CaptureError(f"{path}: not an empty folder; give another")
    now = datetime.now(UTC)
    info = _begun() | {
        "run_id": f"load-{now:%Y%m%d-%H%M%S}-{token_hex(3)}",
        "seed": seed,
        "command": list(command),
        "versions": host.versions(),
        "host": host.machine(),
        "clock": host.clock(),
        "limits": host.limits(),
        "scenarios": [scenario.as_json() for scenario in scenarios],
    }
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / RUN_FILE, info | dict(facts or {}))
    return RunFolder(path)


def open_run(path: Path) -> RunFolder:
    """Opens the run at `path`, a folder or a run.json. Raises CaptureError if it is none, or mixed."""
    folder = RunFolder(path.parent if path.name == RUN_FILE and not path.is_dir() else path)
    folder.check()
    return folder


def resume_run(path: Path) -> RunFolder:
    """Opens a run, as `open_run` does, and marks it as "running" in this process.

    Raises OSError, and CaptureError also if another process runs it.
    """
    folder = open_run(path)
    info = folder.info
    if folder.status == "running" and info["owner"] != manifest.owner():
        raise CaptureError(f"{folder.path}: process {info['owner'].get('pid')} is still running it")
    again = {"resumed": [*info.get("resumed", []), _now()]}
    folder.update(status="running", owner=manifest.owner(), ended=None, **again)
    return folder


def _begun() -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "owner": manifest.owner(),
        "started": _now(),
        "ended": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _move_aside(path: Path) -> None:
    number = 1
    while (aside := path.with_name(f".partial-{path.name}-{number}")).exists():
        number += 1
    path.rename(aside)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")
