"""What a capture says of itself (run.json, scenario.json): any bytes give values or a complaint."""

import json
from typing import Any, get_args

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError, Status
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from kcast.loadtest.scenario import Scenario
from tests.fuzz.script import Script

NAME = "run.json"
PLACES = ("", "owner", "scenario", "tables", "table", "hashes", "versions")
KEYS = (
    "schema_version", "status", "run_id", "owner", "scenarios", "tables", "hashes", "versions", "pid",
    "process_start", "clock_id", "files", "rows", "kcast", "publish", *Scenario().as_json(),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 5, 1 << 70, 0.5, float("inf"), float("nan"), "", "x", "a\nb", "\ud800", "a/b", "CH",
    "R", "S", "exact", "complete", [], {}, [1], [{}], {"x": 1},
)  # fmt: skip


def check(data: bytes) -> None:
    """Takes bytes as a file that is both run.json and scenario.json; or, behind a NUL, as changes to one."""
    try:
        info = manifest.parse(_changed(Script(data[1:])) if data[:1] == b"\0" else data, NAME)
    except CaptureError as error:
        _check_complaint(error)
        return
    assert manifest.status(info) in get_args(Status) and not manifest.is_running(info)
    try:
        assert manifest.run_folder(manifest.run_id(info, NAME)).count("/") == 0
    except CaptureError as error:
        _check_complaint(error)
    try:
        for scenario in manifest.planned(info, NAME):
            assert Scenario.from_json(scenario.as_json()) == scenario
            assert "/" not in manifest.scenario_folder(scenario.name)
    except CaptureError as error:
        _check_complaint(error)
    try:
        stored = manifest.stored(info, NAME)
        assert stored is None or stored.keys() == TABLES.keys()
        hashes = manifest.hashes(info, NAME)
        assert hashes is None or hashes.keys() == TABLES.keys()
    except CaptureError as error:
        _check_complaint(error)


def sound() -> dict[str, Any]:
    """What a sound file has."""
    return {
        "schema_version": SCHEMA_VERSION, "status": "complete", "run_id": "20260101-x",
        "owner": {"pid": 1, "process_start": "1", "clock_id": ""},
        "scenarios": [Scenario().as_json(), {"scheme": "CH", "k": 2, "k_prime": 0}],
        "tables": {table: {"files": 1, "rows": 10} for table in TABLES},
        "hashes": {table: {"a.parquet": "0" * 32} for table in TABLES},
        "versions": {"kcast": "0.1.0"},
    }  # fmt: skip


def _changed(script: Script) -> bytes:
    info = sound()
    places = {
        "": info, "owner": info["owner"], "scenario": info["scenarios"][0], "tables": info["tables"],
        "table": info["tables"]["publish"], "hashes": info["hashes"], "versions": info["versions"],
    }  # fmt: skip
    while script.has_more:
        place, key, value = places[script.choice(PLACES)], script.choice(KEYS), script.choice(VALUES)
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    return json.dumps(info).encode()


def _check_complaint(error: CaptureError) -> None:
    assert str(error).startswith(f"{NAME}: ") and str(error).isprintable(), str(error)
