"""The Makefile: what it says where something is missing."""

import shutil
import subprocess

import pytest

from tests.support.checkout import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_without_a_capture_analyse_says_what_to_give_and_sets_nothing_up() -> None:
    done = subprocess.run(
        ("make", "--no-print-directory", "analyse", "ARGS="),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "give the capture to analyse: make analyse ARGS=RUN" in done.stderr
