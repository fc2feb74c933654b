"""Runs `kcast load` as a user does."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WAIT_S = 120.0


class Load:
    """Runs `kcast load` with these arguments; use it with `with`, and call `end`."""

    def __init__(self, *arguments: str | Path) -> None:
        self._arguments = tuple(map(str, arguments))

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            (sys.executable, "-m", "kcast.client.cli", "load", *self._arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def await_line(self, text: str) -> None:
        """Returns when it has printed a line that contains this text."""
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was not printed: {printed}")

    def descendants(self) -> set[int]:
        """Returns all processes that it has started, and that these have started."""
        return descendants_of(self.process.pid)

    def interrupt(self) -> None:
        """Sends Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Waits for its end. Returns exit code, output and errors."""
        output, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, output, errors


def run_load(*arguments: str | Path) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Runs it with --json to its end. Returns exit code, results by scenario, and errors."""
    with Load(*arguments, "--json") as load:
        code, output, errors = load.end()
    objects = [json.loads(line) for line in output.splitlines()]
    return code, {each["name"]: each for each in objects if each["type"] == "scenario"}, errors


def descendants_of(pid: int) -> set[int]:
    """Returns all processes that a process has started, and that these have started."""
    found: set[int] = set()
    parents = {pid}
    while parents:
        children = {child for parent in parents for child in _children(parent)}
        parents = children - found
        found |= children
    return found


def living(pids: set[int]) -> set[int]:
    """Returns those of the processes that still exist."""
    return {pid for pid in pids if _is_alive(pid)}


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= set(map(int, task.read_text().split()))
        except OSError:
            continue
    return found
