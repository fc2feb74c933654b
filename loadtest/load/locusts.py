"""Locust's processes for the users of a scenario: a single one, or a master with workers.

Each has the writing end of a pipe. The first writes its progress to it, one JSON object a line. All end when
the reading end is closed, so none outlives the process that started it, however that ends.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.loadtest.users.progress import Progress

HOST = "127.0.0.1"
# -P: modules in the working directory must not hide those of kcast.
LOCUST = (sys.executable, "-P", "-m", "locust")
SILENCE_S_MAX = 60.0  # normally it writes each second
STOP_TIMEOUT_S = 8.0

_READ_BYTES = 65_536
_LOG_LINES = 8


class LocustFailed(KcastError, RuntimeError):
    """Locust could not be started, or ended too early; the message has the end of its log."""


class Locusts:
    """Runs locust on a scenario's file; use it with `with`, and read `records` until they end.

    With more than one of `workers`, these run the users, and a further process is their master. Their output
    goes to the file `log`. Raises LocustFailed.
    """

    def __init__(
        self,
        scenario_file: Path,
        cluster_file: Path,
        capture: Path,
        *,
        log: Path,
        workers: int = 1,
    ) -> None:
        self._log = log
        self._options = (
            *("-f", str(Path(__file__).parent.parent / "locustfile.py"), "--headless"),
            *("--scenario", str(scenario_file.absolute()), "--cluster", str(cluster_file.absolute())),
            *("--capture", str(capture.absolute())),
        )
        self._workers = workers
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        try:
            if self._workers == 1:
                self._start("locust")
            else:
                self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all that were started."""
        return tuple(process.popen.pid for process in self._processes)

    def records(self) -> Iterator["Progress | None"]:
        """Yields the progress that the first process reports, until all have ended; None each second without.

        Raises LocustFailed if a process fails, or nothing is reported for a minute.
        """
        first = self._processes[0]
        heard_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                selector.register(process.progress_fd, selectors.EVENT_READ, process)
            while selector.get_map():
                for key, _ in selector.select(1.0) or ((None, 0),):
                    if key is None:
                        yield None
                        continue
                    process = key.data
                    records = process.read()
                    if records is None:
                        selector.unregister(process.progress_fd)
                        self._await_end(process)
                    elif process is first:
                        heard_at = time.monotonic()
                        yield from records
                if time.monotonic() - heard_at > SILENCE_S_MAX:
                    raise LocustFailed(self._failure(first, f"has reported nothing for {SILENCE_S_MAX:g} s"))

    def stop(self) -> None:
        """Ends all that still run. Returns when they have ended."""
        for process in self._processes:
            # Ends also those that ignore SIGTERM.
            os.close(process.progress_fd)
            process.popen.terminate()
        until = time.monotonic() + STOP_TIMEOUT_S
        for process in self._processes:
            try:
                process.popen.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
        self._processes.clear()

    def _start_all(self) -> None:
        port = _free_port()
        self._start(
            *("locust's master", "--master", "--expect-workers", str(self._workers)),
            *("--master-bind-host", HOST, "--master-bind-port", str(port)),
        )
        for number in range(1, self._workers + 1):
            master = ("--master-host", HOST, "--master-port", str(port))
            self._start(f"locust's worker {number}", "--worker", *master)

    def _start(self, name: str, *options: str) -> None:
        read_fd, write_fd = os.pipe()
        try:
            with self._log.open("ab") as log:
                popen = subprocess.Popen(
                    (*LOCUST, *self._options, *options, "--progress-fd", str(write_fd)),
                    stdin=subprocess.DEVNULL,
                    # The user's own settings for locust must not apply here: neither LOCUST_... variables nor
                    # a locust.conf in the working directory.
                    env={name: text for name, text in os.environ.items() if not name.startswith("LOCUST_")},
                    cwd=self._log.parent,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write_fd,),
                    # Only this process gets Ctrl-C, and then ends them properly.
                    start_new_session=True,
                )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self._processes.append(_Process(name, popen, read_fd))

    def _await_end(self, process: "_Process") -> None:
        try:
            code = process.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LocustFailed(self._failure(process, "does not end")) from None
        if code:
            raise LocustFailed(self._failure(process, _ending(code)))

    def _failure(self, process: "_Process", what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n  ".join([f"{process.name} {what}; its log ({self._log}) ends:", *lines])


class _Process:
    """A process of locust, and the reading end of its pipe."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], progress_fd: int) -> None:
        self.name = name
        self.popen = popen
        self.progress_fd = progress_fd
        self._rest = b""

    def read(self) -> "list[Progress] | None":
        """Returns the progress that was reported; None if the pipe is closed."""
        data = os.read(self.progress_fd, _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port
