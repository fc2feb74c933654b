"""Makes the demo's report: runs `kcast analyse` on its capture, in a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from kcast.client.cli.text import escaped

MODULES = ("pyspark", "pandas", "pyarrow", "scipy")
PAGE = "report.html"


def missing_module() -> str | None:
    """Returns the name of a library of the extra that is not installed; None if all are there."""
    return next((name for name in MODULES if importlib.util.find_spec(name) is None), None)


def make(capture: Path, out: Path) -> Path | None:
    """Analyses a capture and returns the report's page; None after saying on standard error what failed.

    On a terminal the analysis shows its progress.
    """
    is_shown = sys.stderr is not None and sys.stderr.isatty()
    command = (sys.executable, "-m", "kcast.client.cli", "analyse", str(capture), "--out", str(out))
    began = _modified_ns(out / PAGE)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if is_shown else subprocess.PIPE,
        text=True,
        check=False,
    )
    if _modified_ns(out / PAGE) != began:
        return out / PAGE
    said = (done.stderr or "").strip().splitlines()
    reason = said[-1] if said else f"kcast analyse ended with exit code {done.returncode}"
    print(f"kcast demo: no report: {escaped(reason)}", file=sys.stderr, flush=True)
    return None


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
