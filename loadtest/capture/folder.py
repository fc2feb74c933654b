"""A run's folder: what was run and how it ended in JSON, what happened in Parquet, hive-partitioned.

    RUN/run.json
    RUN/run=<run_id>/scenario=<name>/scenario.json
    RUN/run=<run_id>/scenario=<name>/table=<table>/*.parquet

Nothing here is changed halfway: JSON files are replaced as a whole, a scenario's folder appears with its
JSON in it, and what is to be done again is moved aside as a whole. So whatever ends a run, what it leaves can
be read. A process that was killed has no time to say so: what says "running" is believed only while the
process that wrote it runs.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from kcast.loadtest.capture import host, manifest, parts
from kcast.loadtest.capture.manifest import RUN_FILE, SCENARIO_FILE
from kcast.loadtest.capture.manifest import CaptureError as CaptureError
from kcast.loadtest.capture.manifest import Status as Status
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario

# Readers guess a partition's type from its values: what begins with a letter is text for all of them.
_NAME = re.compile(r"(?!(?i:nan|inf|infinity|null|true|false)$)[A-Za-z][^\0-\x1f]*")
_NAME_BYTES_MAX = 200  # quoted


class _Folder:
    """A folder with a JSON file that tells of it."""

    def __init__(self, path: Path, file_name: str) -> None:
        self.path = path
        self._file = path / file_name

    @property
    def info(self) -> dict[str, Any]:
        """What its JSON file says. Raises CaptureError."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            raise CaptureError(f"{self.path}: no capture, there is no {self._file.name}") from None
        except OSError as error:
            raise CaptureError(f"{self._file}: cannot be read, {error}") from None
        return manifest.parse(text, self._file)

    @property
    def status(self) -> Status:
        """How far it came. What was "running" in a process that is no more is "partial"."""
        return manifest.status(self.info)

    def update(self, **facts: Any) -> None:
        """Changes facts in its JSON file, all or none. Raises OSError."""
        _write_json(self._file, self.info | facts)

    def finish(self, status: Status, **facts: Any) -> None:
        """Writes how it ended, and further facts. Raises OSError."""
        self.update(status=status, ended=_now(), **facts)


class ScenarioFolder(_Folder):
    """The folder of one scenario of a run: what a CaptureWriter writes into, and who analyses reads."""

    def __init__(self, path: Path, scenario: Scenario) -> None:
        super().__init__(path, SCENARIO_FILE)
        self.scenario = scenario

    def parts(self, table: str) -> list[Path]:
        """A table's files, in the order of their names; none where nothing was recorded."""
        # Hidden files are those that were not finished.
        found = (self.path / manifest.table_folder(table)).glob(f"[!._]*{parts.SUFFIX}")
        return sorted(found)

    def finish(self, status: Status, **facts: Any) -> None:
        """As of a run. Where it is complete, also writes how much of each table there is, so that readers
        notice what is lost later. Raises CaptureError for a part that is damaged, too."""
        if status == "complete" and "tables" not in facts:
            facts["tables"] = self._stored()
        super().finish(status, **facts)

    def _stored(self) -> dict[str, dict[str, int]]:
        return {
            table: {"files": len(found), "rows": sum(map(parts.count_rows, found))}
            for table, found in ((table, self.parts(table)) for table in TABLES)
        }

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, with all columns or these; no rows where nothing was recorded.

        Raises CaptureError, which names the file that is damaged, or of another version.
        """
        schema = parts.arrow_schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        found = [parts.read_part(path, table, schema.names) for path in self.parts(table)]
        return pa.concat_tables(found) if found else schema.empty_table()


class RunFolder(_Folder):
    """The folder of a run: what `create_run` has made, or `open_run` has found."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, RUN_FILE)

    @property
    def run_id(self) -> str:
        """What tells this run from all others. Raises CaptureError."""
        return manifest.run_id(self.info, self._file)

    @property
    def planned(self) -> tuple[Scenario, ...]:
        """All scenarios of the run, begun or not. Raises CaptureError."""
        return manifest.planned(self.info, self._file)

    @property
    def scenarios(self) -> tuple[ScenarioFolder, ...]:
        """Those that were begun, in the order of run.json. Raises CaptureError."""
        found = (ScenarioFolder(self._path_of(planned.name), planned) for planned in self.planned)
        return tuple(folder for folder in found if folder.path.exists())

    def scenario(self, name: str) -> ScenarioFolder:
        """One that was begun. Raises CaptureError."""
        for folder in self.scenarios:
            if folder.scenario.name == name:
                return folder
        begun = ", ".join(folder.scenario.name for folder in self.scenarios)
        raise CaptureError(f"{self.path}: no scenario {name}; there are {begun or 'none'}")

    def begin(self, name: str) -> ScenarioFolder:
        """A fresh folder for one of the run's scenarios, with status "running".

        What an earlier try has left is moved aside as a whole, under a name that readers pass over. Raises
        CaptureError where it is complete, or is being run; and OSError.
        """
        scenario = next((planned for planned in self.planned if planned.name == name), None)
        if scenario is None:
            raise CaptureError(f"{self.path}: {name} is no scenario of this run")
        path = self._path_of(name)
        if path.exists():
            status = ScenarioFolder(path, scenario).status
            if status in ("complete", "running"):
                raise CaptureError(f"{self.path}: scenario {name} is {status} already")
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

    def _path_of(self, name: str) -> Path:
        return self.path / manifest.run_folder(self.run_id) / manifest.scenario_folder(name)

    def check(self) -> None:
        """Raises CaptureError where the folder holds more than this run."""
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
    """Makes a run's folder, and run.json with status "running".

    `facts` go into run.json as they are: of servers, say. Raises CaptureError where there is something at
    `path` already, or names of scenarios do not do; OSError where the system refuses.
    """
    names = [scenario.name for scenario in scenarios]
    for number, name in enumerate(names):
        if _NAME.fullmatch(name) is None or len(quote(name, safe="")) > _NAME_BYTES_MAX:
            raise CaptureError(
                f"scenario {name!r}: its name becomes a folder's: begin it with a letter, and keep it short"
            )
        if name in names[:number]:
            raise CaptureError(f"two scenarios have the name {name}: a capture keeps them apart by it")
    if (path / RUN_FILE).exists():
        raise CaptureError(f"{path}: there is a capture already; resume it, or give another folder")
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
    """The run at `path`: its folder, or its run.json. Raises CaptureError where that is none, or mixed."""
    folder = RunFolder(path.parent if path.name == RUN_FILE and not path.is_dir() else path)
    folder.check()
    return folder


def resume_run(path: Path) -> RunFolder:
    """As `open_run`, to go on with: it is "running" again, by this process.

    Raises CaptureError also where it is being run, and OSError.
    """
    folder = open_run(path)
    info = folder.info
    if folder.status == "running" and info["owner"] != manifest.owner():
        raise CaptureError(f"{folder.path}: process {info['owner'].get('pid')} is running it")
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
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
