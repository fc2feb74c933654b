"""What a capture says of itself (run.json, scenario.json): any bytes give values or a complaint."""

from typing import get_args

from kcast.loadtest.capture import manifest
from kcast.loadtest.capture.manifest import CaptureError, Status
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.scenario import Scenario

NAME = "run.json"


def check(data: bytes) -> None:
    """Takes bytes as a run.json, and as a scenario.json."""
    try:
        info = manifest.parse(data, NAME)
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
    except CaptureError as error:
        _check_complaint(error)


def _check_complaint(error: CaptureError) -> None:
    assert str(error).startswith(f"{NAME}: ") and "\n" not in str(error), str(error)
