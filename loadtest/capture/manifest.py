"""What run.json and scenario.json say, wherever they were read: `folder` reads them from a disk, Spark from
anything that it can read.

Nothing here reads or writes files. `where` is what people know a file by, in messages.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote

from kcast.loadtest.capture import host
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.pubsub.errors import KcastError
from kcast.pubsub.tap import read_clock_id

Status = Literal["running", "complete", "partial", "failed"]

RUN_FILE, SCENARIO_FILE = "run.json", "scenario.json"


class CaptureError(KcastError, ValueError):
    """What cannot be used as a capture, or as part of one; the message is one line that says why."""


class Stored(NamedTuple):
    """How much of a table there is."""

    files: int
    rows: int


def parse(text: bytes, where: object) -> dict[str, Any]:
    """What a run.json or scenario.json says. Raises CaptureError where it is none of this schema version."""
    try:
        info = json.loads(text)
    except ValueError as error:
        raise CaptureError(f"{where}: cannot be read, {error}") from None
    version = info.get("schema_version") if isinstance(info, dict) else None
    if version is None:
        raise CaptureError(f"{where}: not of a capture, it has no schema_version")
    if version != SCHEMA_VERSION:
        versions = info.get("versions")
        kcast = versions.get("kcast") if isinstance(versions, dict) else None
        raise CaptureError(
            f"{where}: a capture of schema version {version}, and this kcast reads {SCHEMA_VERSION}:"
            f" use kcast {kcast or 'as it was then'}"
        )
    if info.get("status") not in get_args(Status):
        raise CaptureError(f"{where}: its status is {info.get('status')!r}; was it edited?")
    return dict(info)


def status(info: Mapping[str, Any]) -> Status:
    """How far it came. What was "running" in a process that is no more is "partial"."""
    said: Status = info["status"]
    return "partial" if said == "running" and not is_running(info) else said


def owner() -> dict[str, Any]:
    """This process, as the one that must be there for "running" to be true."""
    pid = os.getpid()
    return {"pid": pid, "process_start": host.process_start(pid), "clock_id": read_clock_id()}


def is_running(info: Mapping[str, Any]) -> bool:
    """Whether the process that wrote it is still there; none on another machine is."""
    wrote = info.get("owner")
    if not isinstance(wrote, dict) or not is_of_this_machine(info):
        return False
    try:
        start = host.process_start(int(wrote.get("pid", 0)))
    except (TypeError, ValueError):
        return False
    return start != "" and start == wrote.get("process_start")


def is_of_this_machine(info: Mapping[str, Any]) -> bool:
    """Whether this machine wrote it, since it was last started: only then can be told if that still runs."""
    wrote = info.get("owner")
    return isinstance(wrote, dict) and wrote.get("clock_id") == read_clock_id()


def run_id(info: Mapping[str, Any], where: object) -> str:
    """What tells a run from all others. Raises CaptureError."""
    found = info.get("run_id")
    if not isinstance(found, str) or not found or "/" in found:
        raise CaptureError(f"{where}: it has no run_id; was it edited?")
    return found


def planned(info: Mapping[str, Any], where: object) -> tuple[Scenario, ...]:
    """All scenarios of a run, begun or not, as its run.json has them. Raises CaptureError."""
    try:
        return tuple(Scenario.from_json(values) for values in info["scenarios"])
    except (ScenarioError, KeyError, TypeError) as error:
        raise CaptureError(f"{where}: its scenarios cannot be read, {error}") from None


def run_folder(run: str) -> str:
    """The name of the folder of a run's scenarios."""
    return f"run={run}"


def scenario_folder(name: str) -> str:
    """The name of a scenario's folder, within that of its run."""
    return f"scenario={quote(name, safe='')}"


def table_folder(table: str) -> str:
    """The name of a table's folder, within that of its scenario."""
    return f"table={table}"


def check_folders(
    path: object, run: str, names: Sequence[str], runs: Sequence[str], scenarios: Sequence[str]
) -> None:
    """Raises CaptureError where the capture at `path` holds more than the run that its run.json tells of.

    `names` are those of that run's scenarios; `runs` are the folders run=* that are there, and `scenarios`
    those scenario=* of this run.
    """
    mine = {scenario_folder(name) for name in names}
    strange = [name for name in runs if name != run_folder(run)]
    strange += [f"{run_folder(run)}/{name}" for name in scenarios if name not in mine]
    if strange:
        raise CaptureError(f"{path}/{min(strange)}: not of this run, {run}; captures must not be mixed")


def stored(info: Mapping[str, Any], where: object) -> dict[str, Stored] | None:
    """How much of each table was written, by a scenario.json; None where it does not say, as older ones and
    those of scenarios that are not complete do not. Raises CaptureError."""
    said = info.get("tables")
    if said is None:
        return None
    try:
        found = {table: Stored(int(each["files"]), int(each["rows"])) for table, each in said.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CaptureError(f"{where}: its tables cannot be read; was it edited?") from None
    return {table: found.get(table, Stored(0, 0)) for table in TABLES}
