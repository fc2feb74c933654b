"""The processes that the users of a scenario run in: locust, by itself or as a master with its workers.

Each has the writing end of a pipe: the first one tells by it how it goes, one JSON object a line. None
outlives the process that started it, however that one ends, since each ends when nobody is left to read.
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
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.loadtest.users.progress import Progress

HOST = "127.0.0.1"
# -P: whatever lies in the working directory must not pass for our packages.
LOCUST = (sys.executable, "-P", "-m", "locust")
SILENCE_S_MAX = 60.0  # it tells something each second
STOP_TIMEOUT_S = 8.0

_READ_BYTES = 65_536
_LOG_LINES = 8


class LocustFailed(KcastError, RuntimeError):
    """Users could not be started, or ended before their time; the message says what locust said."""


class Locusts:
    """Locust on a scenario's file; use it with `with`, and follow `records` until it ends.

    With more than one of `workers` these run the users, and a further process leads them on `master_port`
    (0: any that is free). What they print goes to `log`. Raises LocustFailed.
    """

    def __init__(
        self,
        scenario_file: Path,
        cluster_file: Path,
        capture: Path,
        *,
        log: Path,
        workers: int = 1,
        master_port: int = 0,
    ) -> None:
        self._log = log
        self._options = (
            *("-f", str(Path(__file__).parent.parent / "locustfile.py"), "--headless"),
            *("--scenario", str(scenario_file.absolute()), "--cluster", str(cluster_file.absolute())),
            *("--capture", str(capture.absolute())),
        )
        self._workers = workers
        self._master_port = master_port
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of all processes that were started."""
        return tuple(process.popen.pid for process in self._processes)

    def records(self) -> Iterator["Progress | None"]:
        """What the first process tells, until all have ended in order; None when a second passes without.

        Raises LocustFailed where one ends otherwise, or nothing is told for a minute.
        """
        coordinator = self._processes[0]
        heard_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                selector.register(process.told, selectors.EVENT_READ, process)
            while selector.get_map():
                for key, _ in selector.select(1.0) or ((None, 0),):
                    if key is None:
                        yield None
                        continue
                    process = key.data
                    records = process.read()
                    if records is None:
                        selector.unregister(process.told)
                        self._await_end(process)
                    elif process is coordinator:
                        heard_at = time.monotonic()
                        yield from records
                if time.monotonic() - heard_at > SILENCE_S_MAX:
                    raise LocustFailed(
                        self._failure(coordinator, f"has told nothing for {SILENCE_S_MAX:g} s")
                    )

    def stop(self) -> None:
        """Ends what still runs, and waits until it has ended."""
        for process in self._processes:
            # Nobody reads any more, which ends those that SIGTERM finds deaf.
            os.close(process.told)
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
        port = self._master_port or _free_port()
        _refuse_port_in_use(port)
        self._start(
            *("locust's master", "--master", "--expect-workers", str(self._workers)),
            *("--master-bind-host", HOST, "--master-bind-port", str(port)),
        )
        for number in range(1, self._workers + 1):
            master = ("--master-host", HOST, "--master-port", str(port))
            self._start(f"locust's worker {number}", "--worker", *master)

    def _start(self, name: str, *options: str) -> None:
        told, telling = os.pipe()
        try:
            with self._log.open("ab") as log:
                popen = subprocess.Popen(
                    (*LOCUST, *self._options, *options, "--progress-fd", str(telling)),
                    stdin=subprocess.DEVNULL,
                    # What the user has set for locust of their own is not for this one: nor files like
                    # locust.conf, of the working directory.
                    env={name: text for name, text in os.environ.items() if not name.startswith("LOCUST_")},
                    cwd=self._log.parent,
                    stdout=log,
                    stderr=log,
                    pass_fds=(telling,),
                    # Ctrl-C is for the owner, who then ends them in order.
                    start_new_session=True,
                )
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(telling)
        self._processes.append(_Process(name, popen, told))

    def _await_end(self, process: "_Process") -> None:
        try:
            code = process.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LocustFailed(self._failure(process, "does not end")) from None
        if code:
            raise LocustFailed(self._failure(process, _ending(code)))

    def _failure(self, process: "_Process", what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n  ".join([f"{process.name} {what}; it said ({self._log}):", *lines])


class _Process:
    """A process of locust, and the end of the pipe that it tells its progress by."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], told: int) -> None:
        self.name = name
        self.popen = popen
        self.told = told
        self._rest = b""

    def read(self) -> "list[Progress] | None":
        """What it has told; None where it will tell no more."""
        data = os.read(self.told, _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def _refuse_port_in_use(port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what an earlier run left does not count
        try:
            sock.bind((HOST, port))
        except OSError as error:
            raise LocustFailed(
                f"locust's master cannot use port {port} of {HOST}: {error.strerror}; "
                "give another --master-port"
            ) from None
