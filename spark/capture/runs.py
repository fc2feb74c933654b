"""The runs at the paths that an analysis is given, and the scenarios that it is to have.

Nothing heavy is imported here: so what is wrong with a path is told at once, before Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.scenario import Scenario, ScenarioError, select
from kcast.spark.session.local_files import shown


class Files(Protocol):
    """What is needed of a file system: `kcast.spark.session.files.Files` and `LocalFiles` have it."""

    def qualify(self, path: str) -> str:
        """The absolute path with its scheme."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at this path."""

    def read(self, path: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError if there is none."""

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder, sorted."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its folder, and what its run.json tells."""

    path: str
    info: Mapping[str, Any]
    run_id: str
    planned: tuple[Scenario, ...]
    begun: frozenset[str]  # names of folders of scenarios that were begun

    def about(self) -> dict[str, Any]:
        """What a report tells of the run: path, run, status, started, ended, host."""
        host = self.info.get("host")
        return {
            "path": shown(self.path),
            "run": self.run_id,
            "status": manifest.status(self.info),
            "started": self.info.get("started"),
            "ended": self.info.get("ended"),
            "host": _machine(host) if isinstance(host, dict) else None,
        }


def open_runs(files: Files, paths: Sequence[str], only: Sequence[str]) -> tuple[list[Run], frozenset[str]]:
    """The runs at these paths, and the names of the scenarios that `only` chooses. Raises CaptureError."""
    runs = [open_run(files, path) for path in paths]
    for number, run in enumerate(runs):
        for earlier in runs[:number]:
            if earlier.run_id == run.run_id:
                raise CaptureError(
                    f"{shown(run.path)}: this is run {run.run_id}, as {shown(earlier.path)} is: give it once"
                )
    return runs, selected([scenario for run in runs for scenario in run.planned], only)


def open_run(files: Files, given: str) -> Run:
    """The run at a path. Raises CaptureError."""
    try:
        path = files.qualify(given)
        if path.endswith(f"/{manifest.RUN_FILE}"):
            path = path.rpartition("/")[0]
        where = f"{shown(path)}/{manifest.RUN_FILE}"
        try:
            text = files.read(f"{path}/{manifest.RUN_FILE}")
        except FileNotFoundError:
            has_none = f"not a capture: it has no {manifest.RUN_FILE}"
            what = has_none if files.exists(path) else "no such folder"
            raise CaptureError(f"{shown(path)}: {what}; name a folder that kcast load wrote") from None
        info = manifest.parse(text, where)
        run_id, planned = manifest.run_id(info, where), manifest.planned(info, where)
        runs = [name for name in files.names(path) if name.startswith("run=")]
        begun = files.names(f"{path}/{manifest.run_folder(run_id)}")
    except OSError as error:
        raise CaptureError(f"{given}: cannot be read: {error}") from None
    begun = [name for name in begun if name.startswith("scenario=")]
    manifest.check_folders(shown(path), run_id, [scenario.name for scenario in planned], runs, begun)
    return Run(path, info, run_id, planned, frozenset(begun))


def selected(planned: Sequence[Scenario], only: Sequence[str]) -> frozenset[str]:
    """The names of the scenarios that `only` chooses, as `kcast load --only` does; of all if it is empty.

    Raises CaptureError.
    """
    try:
        return frozenset(scenario.name for scenario in select(planned, only))
    except ScenarioError as error:
        raise CaptureError(str(error)) from None


def _machine(host: Mapping[str, Any]) -> str:
    known = [str(host["cpu"])] if host.get("cpu") else []
    if host.get("cores_usable"):
        known.append(f"{host['cores_usable']} cores")
    if host.get("memory_bytes"):
        known.append(f"{host['memory_bytes'] / 2**30:.0f} GiB")
    known += [f"{host[name]}" for name in ("system", "kernel") if host.get(name)]
    return ", ".join(known)
