"""A cluster of real `kcast serve` processes on loopback, for tests: started, killed, started again."""

import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from kcast.client.cluster import Cluster, format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, format_address

WAIT_S = 30.0
KCAST = (sys.executable, "-m", "kcast.client.cli")

_READY = re.compile(r"kcast: serving on (\S+):(\d+) \(ttl \d+ s, routing in [^\n]+\)\n")


class ClusterOfProcesses:
    """`servers` processes with a ttl of `ttl_s`, and `file`, the cluster file that lists them.

    Use it with `with`: its end ends every process that it started, and no other.
    """

    def __init__(
        self,
        folder: Path,
        servers: int,
        policy: Policy | None = None,
        ttl_s: int = 60,
        options: Sequence[str] = (),
    ) -> None:
        self.file = folder / "lab.cluster"
        self._options = "--ttl", str(ttl_s), *options
        self._size = servers
        self._policy = policy
        self._stack = ExitStack()
        self._running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "ClusterOfProcesses":
        with self._stack:
            starting = [self._spawn(0) for _ in range(self._size)]
            addresses = [self._await_ready(process) for process in starting]
            self.cluster: Cluster = lab(addresses, self._policy)
            self.file.write_text(format_cluster(self.cluster))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The servers as `ip:port`, in the order of the file."""
        return tuple(server.name for server in self.cluster.servers)

    def kill(self, name: str) -> None:
        """Ends a server with SIGKILL; returns when its process is gone."""
        process = self._running.pop(name)
        process.kill()
        process.wait(WAIT_S)

    def restart(self, name: str) -> None:
        """Starts a killed server again, on the same port; returns when it serves."""
        port = next(s.addresses[0][1] for s in self.cluster.servers if s.name == name)
        self._await_ready(self._spawn(port))

    def _spawn(self, port: int) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            (*KCAST, "serve", "--port", str(port), *self._options),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._stack.callback(end_process, process)
        return process

    def _await_ready(self, process: "subprocess.Popen[str]") -> Address:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], WAIT_S)
        match = _READY.fullmatch(process.stdout.readline()) if readable else None
        assert match, "a server did not say that it is ready"
        address = match[1], int(match[2])
        self._running[format_address(address)] = process
        return address


class Command:
    """A running `kcast` command, or another program's, whose output is awaited. Use it with `with`: its end
    kills it."""

    def __init__(
        self,
        *arguments: str | bytes,
        program: Sequence[str] = KCAST,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
    ) -> None:
        self.process = subprocess.Popen(
            (*program, *arguments), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, bufsize=0
        )
        self.output = b""
        self.errors = b""

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def feed(self, data: bytes, *, close: bool = True) -> None:
        """Writes to its standard input, all of it."""
        stdin = self.process.stdin
        assert stdin is not None
        while data:
            data = data[stdin.write(data) or 0 :]
        if close:
            stdin.close()

    def await_error(self, text: bytes, after: bytes = b"") -> None:
        """Returns when standard error has had this text, after that one."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.errors.partition(after)[2] if after else text not in self.errors:
            assert self._pump(deadline), f"no {text!r} in {self.errors!r}; standard output: {self.output!r}"

    def await_lines(self, count: int) -> None:
        """Returns when standard output has had `count` lines."""
        deadline = time.monotonic() + WAIT_S
        while self.output.count(b"\n") < count:
            assert self._pump(deadline), f"not {count} lines: {self.output!r}; errors: {self.errors!r}"

    def await_output(self, text: bytes) -> None:
        """Returns when standard output has had this text."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.output:
            assert self._pump(deadline), f"no {text!r} in {self.output!r}; errors: {self.errors!r}"

    def end(self) -> tuple[int, bytes, bytes]:
        """Waits for its end: exit code, and all of standard output and error."""
        deadline = time.monotonic() + WAIT_S
        while self._pump(deadline):
            pass
        return self.process.wait(max(0.0, deadline - time.monotonic())), self.output, self.errors

    def _pump(self, deadline: float) -> bool:
        """Reads what there is; False at the end of both outputs, or of the time."""
        out, err = self.process.stdout, self.process.stderr
        streams = [stream for stream in (out, err) if stream is not None and not stream.closed]
        if not streams:
            return False
        ready, _, _ = select.select(streams, [], [], max(0.0, deadline - time.monotonic()))
        for stream in ready:
            data = stream.read(65_536)
            if not data:
                stream.close()
            elif stream is out:
                self.output += data
            else:
                self.errors += data
        return bool(ready)


def end_process(process: "subprocess.Popen[str]") -> None:
    """Kills a process, if it has not ended, and closes what was open to it."""
    process.kill()
    process.communicate(timeout=WAIT_S)
