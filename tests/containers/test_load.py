"""`kcast load` on containers, on a real engine: `make test-containers`.

It needs the image `kcast`, or one that KCAST_IMAGE names, built from this checkout.
"""

import os
from pathlib import Path

import pytest

from kcast.loadtest.clusters.engine import OWNER_LABEL, connect
from kcast.loadtest.clusters.servers import IMAGE
from tests.support.load_command import Load, living, run_load
from tests.support.load_results import assert_as_expected, assert_sound
from tests.support.waiting import wait_until

pytestmark = pytest.mark.containers

KCAST_IMAGE = os.environ.get("KCAST_IMAGE", IMAGE)


def containers() -> int:
    """Number of containers and networks of all load tests on the engine."""
    engine = connect()
    try:
        return len(engine.containers.list(all=True, filters={"label": OWNER_LABEL}, sparse=True))
    finally:
        engine.close()


@pytest.mark.smoke
def test_the_smoke_preset_on_containers(tmp_path: Path) -> None:
    arguments = ("--backend", "containers", "--preset", "smoke", "--image", KCAST_IMAGE)
    code, results, errors = run_load(*arguments, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert 0 < result["delivered"] == result["pairs"]
    assert containers() == 0


def test_a_small_grid_on_containers(tmp_path: Path) -> None:
    arguments = ("--preset", "containers", "--k-prime", "1,3", "--duration", "5", "--epoch", "0.5")
    code, results, errors = run_load(*arguments, "--image", KCAST_IMAGE, "--out", tmp_path / "run")
    assert code == 0, errors
    assert set(results) == {"5-1-5", "5-3-5"}
    for result in results.values():
        assert_sound(result)
        assert_as_expected(result)
    assert containers() == 0


def test_containers_that_are_killed_come_back(tmp_path: Path) -> None:
    arguments = (
        "--preset",
        "containers",
        "--k-prime",
        "1",
        "--outages",
        "exact",
        "--down",
        "1",
        "--loss",
        "0",
    )
    faults = ("--by", "kill", "--epoch", "3", "--ttl", "3", "--duration", "6")
    code, results, errors = run_load(*arguments, *faults, "--image", KCAST_IMAGE, "--out", tmp_path / "run")
    assert code == 0, errors
    (result,) = results.values()
    assert_sound(result)
    assert set() < set(result["causes"]) <= {"down", "lease-restart", "down-out", "unvouched"}


def test_ctrl_c_leaves_no_container(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Load("--preset", "containers", "--duration", "60", "--image", KCAST_IMAGE, "--out", out) as load:
        load.await_line("the load begins")
        assert containers() == 5
        started = load.descendants()
        load.interrupt()
        code, _, _ = load.end()
    assert code == 130
    wait_until(lambda: not living(started), "the end of all processes")
    assert containers() == 0


def test_an_image_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Load("--preset", "containers", "--image", "no-such-image", "--out", tmp_path / "run") as load:
        code, _, errors = load.end()
    assert code == 1
    assert errors.startswith("kcast load: ") and "no-such-image" in errors and "docker build" in errors
    assert errors.count("\n") == 1
