"""A capture that grows: the files of a whole one appear one after the other, as a load test writes them."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from kcast.loadtest.capture import manifest, parts
from kcast.loadtest.capture.folder import RunFolder, ScenarioFolder, open_run

# Tables that are written while clients run, with their column of times. All others come at a scenario's end.
_MEANWHILE = {
    "member": "t_ns",
    "publish": "t_intended_ns",
    "pub_tx": "t_tx_ns",
    "deliver": "t_user_ns",
    "subscribe": "t_tx_ns",
    "process_stat": "t_ns",
    "client_stat": "t_ns",
    "server_stat": "t_ns",
}


class GrowingCapture:
    """The capture at `path`. At first it has only the run.json of a run with the scenarios of `source`.

    `owner` is the process that seems to run it, by default this one.
    """

    def __init__(self, source: Path, path: Path, owner: dict[str, Any] | None = None) -> None:
        self.path = path
        self._source = open_run(source)
        self._owner = owner or manifest.owner()
        path.mkdir()
        self._write_json(self._source, status="running", ended=None)

    @property
    def scenarios(self) -> Sequence[ScenarioFolder]:
        """The scenarios of the whole capture."""
        return self._source.scenarios

    def path_of(self, path: Path) -> Path:
        """Returns the path in this capture for a file or folder of the whole one."""
        return self.path / path.relative_to(self._source.path)

    def dies(self, owner: dict[str, Any]) -> None:
        """Names as its owner a process that has ended."""
        self._owner = owner
        self.end("running")

    def begin(self, scenario: ScenarioFolder, **facts: Any) -> None:
        """Begins a scenario, with nothing recorded yet."""
        self._write_json(scenario, status="running", ended=None, tables=None, **facts)

    def moments(self, scenario: ScenarioFolder, rng: random.Random) -> list[list[Path]]:
        """Returns groups of files that appear together, in random order. Some appear a group late."""
        by_time = sorted((_latest_ns(scenario, path), path) for path in _files(scenario, _MEANWHILE))
        size = max(1, len(by_time) // 6)
        found = [[path for _, path in by_time[at : at + size]] for at in range(0, len(by_time), size)]
        for number, files in enumerate(found[:-1]):
            late = [path for path in files if rng.random() < 0.1]
            found[number] = [path for path in files if path not in late]
            found[number + 1] += late
        for files in found:
            rng.shuffle(files)
        return found

    def appear(self, files: Sequence[Path]) -> None:
        """Makes files appear, each whole."""
        for path in files:
            place = self.path_of(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            hidden = place.with_name(f".{place.name}.unfinished")
            shutil.copyfile(path, hidden)
            hidden.rename(place)

    def complete(self, scenario: ScenarioFolder) -> None:
        """Makes all other tables of a scenario appear, and marks it as complete."""
        rest = sorted(set(scenario.path.glob("table=*/*.parquet")) - set(_files(scenario, _MEANWHILE)))
        self.appear(rest)
        self._write_json(scenario, status="complete")

    def end(self, status: str = "complete", **facts: Any) -> None:
        """Ends the run."""
        self._write_json(self._source, status=status, **facts)

    def _write_json(self, folder: RunFolder | ScenarioFolder, **facts: Any) -> None:
        info = folder.info | {"owner": self._owner} | facts
        name = manifest.RUN_FILE if isinstance(folder, RunFolder) else manifest.SCENARIO_FILE
        place = self.path_of(folder.path) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        hidden = place.with_name(f".{name}")
        hidden.write_text(json.dumps(info))
        hidden.replace(place)


def _files(scenario: ScenarioFolder, tables: Sequence[str] | dict[str, str]) -> Iterator[Path]:
    for table in tables:
        yield from scenario.parts(table)


def _latest_ns(scenario: ScenarioFolder, path: Path) -> int:
    table = path.parent.name.removeprefix("table=")
    times = parts.read_part(path, table, [_MEANWHILE[table]]).column(0)
    latest: int = pc.max(times).as_py() or 0
    return latest
