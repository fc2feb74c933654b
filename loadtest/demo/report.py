"""The demo's report: what `kcast analyse` makes of its capture, in a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path

MODULES = ("pyspark", "pandas", "pyarrow", "scipy")
PAGE = "report.html"


def missing_module() -> str | None:
    """What of the extra is not installed; None if all of it is."""
    return next((name for name in MODULES if importlib.util.find_spec(name) is None), None)


def make(capture: Path, out: Path) -> Path | None:
    """Analyses a capture; the page, or None where that failed, which has been said on standard error.

    How far it has come is shown on a terminal.
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
    reason = said[-1] if said else f"kcast analyse has ended with exit code {done.returncode}"
    print(f"kcast demo: no report: {reason}", file=sys.stderr, flush=True)
    return None


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
