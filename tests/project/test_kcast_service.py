"""docs/kcast.service: the systemd unit says what kcast does, and gives it no more than it needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from kcast.client.cli import main
from kcast.pubsub.limits import DRAIN_MARGIN_S, RENEWAL_INTERVAL_S_MAX
from tests.support.checkout import ROOT

UNIT = ROOT / "docs" / "kcast.service"
PROGRAM = "/opt/kcast/bin/kcast"
ENOUGH_S = 5.0  # for the process to end once it has drained

NEEDS_SYSTEMD = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What systemd says of the unit, with a program that is there."""
    unit = tmp_path / UNIT.name
    there = shutil.which("true")
    assert there is not None
    unit.write_text(UNIT.read_text().replace(PROGRAM, there))
    return subprocess.run(
        ("systemd-analyze", *arguments, str(unit)),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | {"SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
    )


def test_what_it_starts_is_a_command_of_ours() -> None:
    (line,) = settings()["ExecStart"]
    program, name, *options = line.split()
    assert program == PROGRAM
    assert options.pop() == "$KCAST_OPTIONS"
    command = main.get_command(click.Context(main), name)
    assert command is not None
    command.make_context(name, options)


def test_there_is_time_to_drain() -> None:
    (stop_s,) = settings()["TimeoutStopSec"]
    assert int(stop_s) >= RENEWAL_INTERVAL_S_MAX + DRAIN_MARGIN_S + ENOUGH_S


def test_workers_are_signalled_once() -> None:
    """By the main process; by systemd as well, their second signal would end the draining."""
    assert settings()["KillMode"] == ["mixed"]


@NEEDS_SYSTEMD
def test_systemd_understands_it(tmp_path: Path) -> None:
    verified = analyze(tmp_path, "verify")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@NEEDS_SYSTEMD
def test_it_is_exposed_to_little(tmp_path: Path) -> None:
    judged = analyze(tmp_path, "security", "--offline=true", "--threshold=15", "--no-pager")
    assert judged.returncode == 0, judged.stdout
    assert "Overall exposure level" in judged.stdout
