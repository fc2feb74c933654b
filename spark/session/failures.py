"""One line for people from Spark's long errors and logs."""

import re
from pathlib import Path

from py4j.protocol import Py4JJavaError

from kcast.pubsub.errors import KcastError

_TELLING = re.compile(r"error|exception|invalid|fatal|could not|cannot|no space|killed", re.IGNORECASE)
_PREFIX = 'Exception in thread "main" '
_LINES = 3
_TAIL_BYTES = 64 * 1024
_CHARS = 300


class SparkFailed(KcastError, RuntimeError):
    """Spark has failed; the message is one line that says why."""


def first_line(error: BaseException) -> str:
    """The cause of an error, in one line: for Java's exceptions that of the innermost one."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        causes = re.findall(r"^(?:Caused by|\t?: ?|: )(.+)$", text, re.MULTILINE)
        text = causes[-1] if causes else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _short(lines[0]) if lines else type(error).__name__


def worst_lines(log: Path | None) -> str:
    """The last lines of a log that tell of trouble, else its last lines; "" without a log or lines."""
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line) and not line.startswith("at ")]
    return " | ".join(_short(line.removeprefix(_PREFIX)) for line in (telling or lines)[-_LINES:])


def _short(line: str) -> str:
    return line if len(line) <= _CHARS else line[: _CHARS - 3] + "..."
