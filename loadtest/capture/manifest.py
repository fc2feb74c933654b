"""What is in run.json, in scenario.json and in the metadata of parts, the Parquet files of a scenario.

A scenario.json has a hash of each part, so that whatever happened to a file after the scenario had ended is
noticed: a bit that flipped, a file put in another's place. It is no defence against who can write that file.

`folder` and `parts` read the files from a disk, Spark from any storage.

Nothing here reads or writes files. `where` names the file in messages.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote

import xxhash

from kcast.client.cli.text import escaped
from kcast.loadtest.capture import host
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.errors import KcastError
from kcast.pubsub.tap import read_clock_id

Status = Literal["running", "complete", "partial", "failed"]

RUN_FILE, SCENARIO_FILE, PART_SUFFIX = "run.json", "scenario.json", ".parquet"
SHOWN_CHARS_MAX = 200
TABLE_KEY, VERSION_KEY = b"kcast.table", b"kcast.schema_version"
"""Keys of a part's metadata."""


class CaptureError(KcastError, ValueError):
    """Something is no capture, or no part of one. The message is one line that says why."""


class Stored(NamedTuple):
    """The size of a table."""

    files: int
    rows: int


def parse(text: bytes, where: object) -> dict[str, Any]:
    """Parses a run.json or scenario.json. Raises CaptureError, also for another schema version."""
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{where}: cannot be read: {error}") from None
    version = info.get("schema_version") if isinstance(info, dict) else None
    if version is None:
        raise CaptureError(f"{where}: not a capture: it has no schema_version")
    if version != SCHEMA_VERSION:
        versions = info.get("versions")
        kcast = versions.get("kcast") if isinstance(versions, dict) else None
        raise CaptureError(
            f"{where}: its schema version is {_shown(version)}, and this kcast reads {SCHEMA_VERSION}: "
            f"use kcast {_shown(kcast or 'of that time')}"
        )
    if info.get("status") not in get_args(Status):
        raise CaptureError(f"{where}: its status is {_shown(repr(info.get('status')))}; was it edited?")
    return dict(info)


def status(info: Mapping[str, Any]) -> Status:
    """Returns the status. "running" becomes "partial" if the process that wrote it has ended."""
    said: Status = info["status"]
    return "partial" if said == "running" and not is_running(info) else said


def owner() -> dict[str, Any]:
    """Identifies this process. The status "running" counts only while it exists."""
    pid = os.getpid()
    return {"pid": pid, "process_start": host.process_start(pid), "clock_id": read_clock_id()}


def is_running(info: Mapping[str, Any]) -> bool:
    """True if the process that wrote it still exists; False on any other machine."""
    wrote = info.get("owner")
    if not isinstance(wrote, dict) or not is_of_this_machine(info):
        return False
    try:
        start = host.process_start(int(wrote.get("pid", 0)))
    except (OverflowError, TypeError, ValueError):
        return False
    return start != "" and start == wrote.get("process_start")


def is_of_this_machine(info: Mapping[str, Any]) -> bool:
    """True if this machine wrote it since its last boot: only then is it known whether it still runs."""
    wrote = info.get("owner")
    return isinstance(wrote, dict) and wrote.get("clock_id") == read_clock_id()


def run_id(info: Mapping[str, Any], where: object) -> str:
    """Returns the id of a run. Raises CaptureError."""
    found = info.get("run_id")
    if not isinstance(found, str) or not found or "/" in found:
        raise CaptureError(f"{where}: it has no run_id; was it edited?")
    return found


def planned(info: Mapping[str, Any], where: object) -> tuple[Scenario, ...]:
    """Returns all scenarios that run.json lists, whether they have begun or not. Raises CaptureError."""
    try:
        return tuple(Scenario.from_capture(values) for values in info["scenarios"])
    except (KeyError, TypeError, ValueError) as error:
        raise CaptureError(f"{where}: its scenarios cannot be read: {_shown(error)}") from None


def run_folder(run: str) -> str:
    """Returns the name of the folder of a run's scenarios."""
    return f"run={run}"


def scenario_folder(name: str) -> str:
    """Returns the name of a scenario's folder, in that of its run."""
    return f"scenario={quote(name, safe='')}"


def table_folder(table: str) -> str:
    """Returns the name of a table's folder, in that of its scenario."""
    return f"table={table}"


def check_folders(
    path: object, run: str, names: Sequence[str], runs: Sequence[str], scenarios: Sequence[str]
) -> None:
    """Raises CaptureError if the capture at `path` has files of another run than its run.json's.

    `names` are the run's scenarios; `runs` are the folders run=* that exist, and `scenarios` the folders
    scenario=* in this run's.
    """
    mine = {scenario_folder(name) for name in names}
    strange = [name for name in runs if name != run_folder(run)]
    strange += [f"{run_folder(run)}/{name}" for name in scenarios if name not in mine]
    if strange:
        raise CaptureError(f"{path}/{min(strange)}: not part of run {run}: captures must not be mixed")


def stored(info: Mapping[str, Any], where: object) -> dict[str, Stored] | None:
    """Returns the size of each table by a scenario.json. None if it does not say, as in older captures and in
    scenarios that are not complete. Raises CaptureError."""
    said = info.get("tables")
    if said is None:
        return None
    try:
        found = {table: Stored(int(each["files"]), int(each["rows"])) for table, each in said.items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise CaptureError(f"{where}: its tables cannot be read; was it edited?") from None
    return {table: found.get(table, Stored(0, 0)) for table in TABLES}


def hashes(info: Mapping[str, Any], where: object) -> dict[str, dict[str, str]] | None:
    """Returns the hash of each part by its table and name, by a scenario.json. None if it does not say, as in
    older captures and in scenarios that are not complete. Raises CaptureError."""
    said = info.get("hashes")
    if said is None:
        return None
    try:
        found = {table: dict(names.items()) for table, names in said.items()}
    except AttributeError:
        raise CaptureError(f"{where}: its hashes cannot be read; was it edited?") from None
    return {table: found.get(table, {}) for table in TABLES}


def hash_of(part: bytes | memoryview) -> str:
    """Returns the hash of a part: 32 characters, of its whole file."""
    return xxhash.xxh3_128_hexdigest(part)


def check_hash(part: bytes | memoryview, expected: str, where: object) -> None:
    """Raises CaptureError if a part is not what was written."""
    if hash_of(part) != expected:
        raise CaptureError(f"{where}: damaged: it is not what was written under this name")


def check_part(metadata: Mapping[bytes, bytes] | None, has_columns: bool, table: str, where: object) -> None:
    """Raises CaptureError if a Parquet file with this metadata is no part of a table, or of another version.

    `has_columns` tells whether it has the columns of the table.
    """
    metadata = metadata or {}
    version = metadata.get(VERSION_KEY, b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise CaptureError(
            f"{where}: its schema version is {_shown(version)}, and this kcast reads {SCHEMA_VERSION}"
        )
    if metadata.get(TABLE_KEY) != table.encode() or not has_columns:
        raise CaptureError(f"{where}: not a part of table {table}")


def damaged_part(error: Exception, where: object) -> CaptureError:
    """Returns the error for a part that cannot be read."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CaptureError(f"{where}: not a whole Parquet file: {reason}")


def _shown(said: object) -> str:
    """Returns what a complaint quotes of a file: one line, which may be long and odd there."""
    text = escaped(str(said))
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
