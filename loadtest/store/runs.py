"""The runs in a folder with their results, in the order of time, and each scenario's series over them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kcast.loadtest.capture.folder import CaptureError, open_run
from kcast.loadtest.capture.manifest import RUN_FILE
from kcast.loadtest.results.summary import ResultsError, Summary

_NOT_COMPARED = ("name", "seed")
"""Settings in which runs of one series may differ."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run: its folder, when it began (ISO 8601, UTC), its kcast, and the results of its scenarios."""

    path: Path
    run_id: str
    started: str
    version: str
    summaries: Sequence[Summary]


@dataclass(frozen=True, slots=True)
class Store:
    """The runs of a folder, the oldest first; `problems` says what was left out and why."""

    runs: Sequence[StoredRun]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Point:
    """The results of a scenario in one run; `place` is that of the run in the store, from 0."""

    place: int
    run: StoredRun
    summary: Summary

    @property
    def is_compared(self) -> bool:
        """Whether its share is compared with those of other runs."""
        return self.summary.delivery_verdict.valid and self.summary.pairs > 0


@dataclass(frozen=True, slots=True)
class RunSeries:
    """A scenario over runs: all settings but the seed are the same."""

    name: str
    points: Sequence[Point]

    @property
    def has_same_outages(self) -> bool:
        """Whether all runs had the same seed, and so the same servers down at the same times."""
        return len({point.summary.scenario.seed for point in self.points}) == 1

    @property
    def trials(self) -> list[float]:
        """The effective sample size of each run: given the outages, where all runs had the same."""
        return [
            point.summary.trials_given_outages if self.has_same_outages else point.summary.trials
            for point in self.points
        ]


def read_store(folder: Path) -> Store:
    """Reads the results of all runs in a folder, or in its folders. No capture is read, only its results.

    Raises CaptureError if the folder is not there or has no run.
    """
    if not folder.is_dir():
        raise CaptureError(f"{folder}: no such folder: name one that has runs of kcast load in it")
    found = sorted({*folder.glob(f"*/{RUN_FILE}"), *folder.glob(f"*/*/{RUN_FILE}")})
    if not found:
        raise CaptureError(f"{folder}: no run in it: name a folder of folders that kcast load wrote")
    runs: dict[str, StoredRun] = {}
    problems: list[str] = []
    for path in (each.parent for each in found):
        try:
            run = _read(path)
        except (CaptureError, ResultsError) as error:
            problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
            continue
        if run.run_id in runs:
            problems.append(f"{path}: this is run {run.run_id}, as {runs[run.run_id].path} is")
        else:
            runs[run.run_id] = run
    if not runs:
        raise CaptureError(f"{folder}: no run can be read: {problems[0]}")
    return Store(sorted(runs.values(), key=lambda run: (run.started, run.run_id)), problems)


def _read(path: Path) -> StoredRun:
    run = open_run(path)
    info = run.info
    summaries = [
        Summary.from_json(each.info["results"])
        for each in run.scenarios
        if each.status == "complete" and each.info.get("results")
    ]
    if not summaries:
        raise CaptureError(f"{path}: none of its scenarios is complete, with results of kcast load")
    versions = info.get("versions") or {}
    return StoredRun(
        path, run.run_id, str(info.get("started", "")), str(versions.get("kcast", "")), summaries
    )


def series(store: Store) -> list[RunSeries]:
    """Returns each scenario over the runs, in the order of their first runs.

    Where a scenario of one name had other settings in some runs, these are a series of their own, numbered.
    """
    found: dict[str, list[Point]] = {}
    names: dict[str, str] = {}
    for place, run in enumerate(store.runs):
        for summary in run.summaries:
            settings = summary.scenario.as_json()
            key = json.dumps([summary.name, {k: v for k, v in settings.items() if k not in _NOT_COMPARED}])
            found.setdefault(key, []).append(Point(place, run, summary))
            if key not in names:
                alike = sum(json.loads(other)[0] == summary.name for other in names)
                names[key] = summary.name if not alike else f"{summary.name} (settings {alike + 1})"
    return [RunSeries(names[key], points) for key, points in found.items()]
