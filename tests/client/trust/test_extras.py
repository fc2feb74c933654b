"""Where an extra is missing, the message has the line that installs it."""

import runpy
import subprocess
import sys

import pytest

from kcast.client.cluster import ClusterError
from kcast.client.trust.extras import how_to_install
from tests.support.checkout import ROOT


@pytest.mark.parametrize(
    ("module", "library", "says"),
    [
        ("forms/ed25519", "nacl", "a signed list needs the extra 'trust': "),
        ("state/keys", "cryptography", "a key file needs the extra 'trust': "),
    ],
)
def test_the_line_that_installs_it(
    module: str, library: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "state/keys":
        pytest.importorskip("nacl")
    for name in [*sys.modules, library]:
        if name.partition(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ClusterError) as caught:
        runpy.run_path(str(ROOT / "client" / "trust" / f"{module}.py"))
    assert str(caught.value) == f"{says}{sys.executable} -m pip install 'kcast[trust]'"


def test_the_line_is_for_the_python_that_runs_kcast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/a b/venv/bin/python")
    assert how_to_install("load") == "'/home/a b/venv/bin/python' -m pip install 'kcast[load]'"


def test_pip_takes_the_line_for_kcast_as_it_is_installed_here() -> None:
    """Without an index: kcast itself is there, so that pip has only to look for the extra's libraries."""
    line = how_to_install("trust").replace(" install ", " install --dry-run --no-index --quiet ")
    pytest.importorskip("cryptography")
    pytest.importorskip("nacl")
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
