"""The processes of a benchmark: the side that starts them, gives orders, and hears how it goes.

None outlives the process that started it: each ends when its standard input does, which the kernel closes
however that process ends.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from kcast.loadtest.bench.orders import Go, Job
from kcast.pubsub.errors import KcastError

PROGRAM = (
    sys.executable,
    "-P",
    "-m",
    "kcast.loadtest.bench.worker",
)  # -P: modules that lie here hide none of ours
END_TIMEOUT_S = 5.0

_READ_BYTES = 1 << 16
_LOG_LINES = 8


class BenchFailed(KcastError, RuntimeError):
    """A benchmark could not be carried out; the message says why."""


class Told(NamedTuple):
    """What a worker, by its number, has told."""

    worker: int
    told: dict[str, Any]


class Workers:
    """A process for each of these jobs; use it with `with`."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self._processes.append(_Process())
                self._processes[-1].say(job)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The process ids of all, until they have ended."""
        return tuple(process.process_id for process in self._processes)

    def go(self, go: Go) -> None:
        """Tells all to begin."""
        for process in self._processes:
            process.say(go)

    def stop(self, *workers: int) -> None:
        """Tells these workers to stop, and to tell their figures."""
        for worker in workers:
            self._processes[worker].say({})

    def told(self, timeout_s: float) -> Iterator[Told | None]:
        """Yields what workers tell, as it comes; None where nothing has come for `timeout_s`. It never ends.

        Raises BenchFailed where one has failed, or has ended before it told its figures.
        """
        with selectors.DefaultSelector() as selector:
            for number, process in enumerate(self._processes):
                selector.register(process.output, selectors.EVENT_READ, (number, process))
            while True:
                ready = selector.select(timeout_s)
                if not ready:
                    yield None
                for key, _ in ready:
                    number, process = key.data
                    lines = process.read()
                    if lines is None:
                        selector.unregister(process.output)
                        process.require_done()
                        continue
                    for line in lines:
                        told = json.loads(line)
                        if told["is"] == "failed":
                            raise BenchFailed(told["why"])
                        yield Told(number, told)

    def end(self) -> None:
        """Ends all. Returns when they have ended."""
        for process in self._processes:
            process.close_input()
        until = time.monotonic() + END_TIMEOUT_S
        for process in self._processes:
            process.end(until)
        self._processes.clear()


class _Process:
    """One worker."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._popen = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us, who then end the workers in order
        )
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._input, self.output = self._popen.stdin, self._popen.stdout
        self._rest = b""
        self._has_told_figures = False

    @property
    def process_id(self) -> int:
        """Its process id."""
        return self._popen.pid

    def say(self, order: Any) -> None:
        """Gives an order; one that has ended gets none, and `read` will tell."""
        data = json.dumps(order).encode() + b"\n"
        try:
            while data:
                data = data[self._input.write(data) or 0 :]
        except BrokenPipeError:
            return

    def read(self) -> list[bytes] | None:
        """Returns the lines that have come; None at the end."""
        data = os.read(self.output.fileno(), _READ_BYTES)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._has_told_figures |= any(line.startswith(b'{"is": "figures"') for line in lines)
        return lines

    def require_done(self) -> None:
        """Raises BenchFailed where it has not told its figures."""
        if not self._has_told_figures:
            code = self._popen.wait(END_TIMEOUT_S)
            lines = self._said().splitlines()[-_LOG_LINES:]
            raise BenchFailed(
                "\n  ".join([f"a process of the benchmark ended with exit code {code}", *lines])
            )

    def close_input(self) -> None:
        """Lets it know that nothing more is wanted of it."""
        self._input.close()

    def end(self, until: float) -> None:
        """Waits for its end until this time of the monotonic clock; then kills it."""
        try:
            self._popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self.output.close()
        self._errors.close()

    def _said(self) -> str:
        size_bytes = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size_bytes, 0).decode(errors="replace")
