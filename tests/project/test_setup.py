"""`tools/setup` with a Python whose pip is ours: what it says of a failure, and when it builds anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

# It makes environments of itself. Its pip says what $PIP_SAYS holds, or links what it could build.
PYTHON = f"""#!/bin/sh
case "$*" in
    *_base_executable*) echo "3.11.0 new venv $0" ;;
    "-m venv "*)
        mkdir -p "$3/bin" "$3/lib/python3/site-packages/__editable__.kcast-1"
        cp "$0" "$3/bin/python" ;;
    "-m pip "*)
        [ -z "$PIP_SAYS" ] || {{ echo "$PIP_SAYS"; exit 1; }}
        mkdir -p build/__editable__.kcast-1/kcast/pubsub
        [ "$CC" != true ] || touch build/__editable__.kcast-1/kcast/pubsub/_router.abi3.so ;;
    *) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("tools/setup", "pyproject.toml", "constraints.txt", "pubsub/_router.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("client/receiving", "hashring", "loadtest", "spark"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "client/receiving/_copies.c", tmp_path / "client/receiving")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def setup(checkout: Path, **variables: str) -> str:
    """What it says."""
    run = subprocess.run(
        ("sh", "tools/setup"),
        cwd=checkout,
        env=os.environ | {"PYTHON": str(checkout / "python"), "PIP_SAYS": "", "CC": "false"} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == bool(variables.get("PIP_SAYS"))
    return run.stderr


def test_an_index_that_is_not_trusted_is_no_missing_network(checkout: Path) -> None:
    said = setup(checkout, PIP_SAYS="WARNING: Retrying (...) SSLError: CERTIFICATE_VERIFY_FAILED")
    assert "PIP_CERT" in said and "Is there a network?" not in said
    assert "Is there a network?" in setup(checkout, PIP_SAYS="WARNING: Retrying (...) Connection refused")


def test_native_code_is_built_once_a_compiler_has_come(checkout: Path) -> None:
    assert "installing" in setup(checkout)
    assert setup(checkout) == "", "it is fit, as far as it can be"
    assert "installing" in setup(checkout, CC="true")
    assert setup(checkout, CC="true") == setup(checkout) == ""
