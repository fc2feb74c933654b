"""docs/performance.md and its plots are what docs/performance.json makes of them."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

JSON = "docs/performance.json"


def test_the_page_is_what_was_measured(tmp_path: Path) -> None:
    """To bring it up to date: `python -m bench.peers --json docs/performance.json --write docs/performance.md
    --render`."""
    page = tmp_path / "performance.md"
    shutil.copy(ROOT / "docs/performance.md", page)
    command = (sys.executable, "-m", "bench.peers", "--json", JSON, "--write", str(page), "--render")
    subprocess.run(command, cwd=ROOT, check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs").glob("performance*.*")}
    del kept["performance.json"]
    assert made == kept
