"""A capture that grows: a whole one is handed out file by file, as a load test would have written it."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from kcast.loadtest.capture import manifest, parts
from kcast.loadtest.capture.folder import RunFolder, ScenarioFolder, open_run

# What clients record while they are there, by the column of its times; all else comes when a scenario ends.
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


class Growing:
    """The capture at `path`: at first only run.json, of a run whose scenarios are those of `source`.

    `owner` is who is said to run it, by default this process.
    """

    def __init__(self, source: Path, path: Path, owner: dict[str, Any] | None = None) -> None:
        self.path = path
        self._source = open_run(source)
        self._owner = owner or manifest.owner()
        path.mkdir()
        self._tell(self._source, status="running", ended=None)

    @property
    def scenarios(self) -> Sequence[ScenarioFolder]:
        """The whole ones."""
        return self._source.scenarios

    def place(self, path: Path) -> Path:
        """Where a file or folder of the whole capture is in this one."""
        return self.path / path.relative_to(self._source.path)

    def dies(self, owner: dict[str, Any]) -> None:
        """From now on somebody else is said to run it, who is no more."""
        self._owner = owner
        self.end("running")

    def begin(self, scenario: ScenarioFolder) -> None:
        """A scenario is begun; nothing is recorded yet."""
        self._tell(scenario, status="running", ended=None, tables=None)

    def moments(self, scenario: ScenarioFolder, rng: random.Random) -> list[list[Path]]:
        """The files of a scenario that appear together, one moment after the other, each in odd order.

        Some come a moment late.
        """
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
        """Files are there under their names, each whole."""
        for path in files:
            place = self.place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            hidden = place.with_name(f".{place.name}.unfinished")
            shutil.copyfile(path, hidden)
            hidden.rename(place)

    def complete(self, scenario: ScenarioFolder) -> None:
        """All else that a scenario has is there: taps, windows; and it says so."""
        rest = sorted(set(scenario.path.glob("table=*/*.parquet")) - set(_files(scenario, _MEANWHILE)))
        self.appear(rest)
        self._tell(scenario, status="complete")

    def end(self, status: str = "complete", **facts: Any) -> None:
        """The run is over."""
        self._tell(self._source, status=status, **facts)

    def _tell(self, folder: RunFolder | ScenarioFolder, **facts: Any) -> None:
        info = folder.info | {"owner": self._owner} | facts
        name = manifest.RUN_FILE if isinstance(folder, RunFolder) else manifest.SCENARIO_FILE
        place = self.place(folder.path) / name
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
