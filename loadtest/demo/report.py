"""Makes the demo's report: runs `kcast analyse` on its capture, in a process of its own."""

import importlib.util
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kcast.client.cli.text import escaped

MODULES = ("pyspark", "pandas", "pyarrow", "scipy")
PAGE = "report.html"
ENDING_S = 2.0  # in which an analysis that is interrupted usually ends


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
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if is_shown else subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            _, said = process.communicate()
        except KeyboardInterrupt:
            _end(process)
            raise
    if _modified_ns(out / PAGE) != began:
        return out / PAGE
    lines = (said or "").strip().splitlines()
    reason = lines[-1] if lines else f"kcast analyse ended with exit code {process.returncode}"
    print(f"kcast demo: no report: {escaped(reason)}", file=sys.stderr, flush=True)
    return None


def _end(process: "subprocess.Popen[str]") -> None:
    """Lets an analysis end that was interrupted: it ends Spark, and removes its files."""
    # Ctrl-C on a terminal has reached it, too. A second signal would end it before it has removed them.
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
        return
    process.send_signal(signal.SIGINT)
    process.wait()


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
