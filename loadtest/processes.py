"""A cluster to test on: real servers, one process each, on loopback.

    with ProcessCluster(12, ttl_s=4) as servers:
        cluster = servers.cluster(Policy(5, 3, 5))
        servers.kill(0, 7)
        servers.restart(0, 7)

No server outlives the process that started it, however that one ends. Each has a pipe from it as standard
input, and ends when the pipe does: when its owner is killed, the kernel closes it. (Linux's parent-death
signal would come as soon as the starting *thread* ends, and other systems have none.)
"""

import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO, Self

from client.cluster import Cluster, ServerEntry
from hashring.policy import Policy
from pubsub.endpoint import Address, format_address

START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_LOG_LINES = 12
_HOST = "127.0.0.1"
_READY = re.compile(r"kcast: serving on .+:(\d+) \(ttl \d+ s\)")

# The real command, and a thread that only waits for the pipe to close.
_PROGRAM = """\
import os, threading
def end_with_owner():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=end_with_owner, daemon=True).start()
from client.cli import main
main()
"""


class ServerFailed(RuntimeError):
    """A server did not start; the message holds the end of what it said on standard error."""


class ProcessCluster:
    """`count` servers with leases of `ttl_s` seconds, each a host of its own on the ring; use it with `with`.

    Their keys are `server-1`, `server-2` ..., so that topics lie on the same servers whatever ports were
    free. `options` are further ones for `kcast serve`. Methods block, and may be called from any thread,
    but from one at a time. Raises ServerFailed where a server does not start.
    """

    def __init__(
        self,
        count: int,
        *,
        ttl_s: int,
        options: tuple[str, ...] = (),
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if count < 1:
            raise ValueError(f"count is {count}: a cluster has at least 1 server")
        self._options = ("--ttl", str(ttl_s), *options)
        self._start_timeout_s = start_timeout_s
        self._servers = [_Server(f"server-{number}") for number in range(1, count + 1)]

    def __enter__(self) -> Self:
        self.restart(*range(len(self._servers)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the servers are reached, in order; they keep their ports when restarted."""
        return tuple((_HOST, server.port) for server in self._servers)

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' addresses as clients' events name them."""
        return tuple(format_address(address) for address in self.addresses)

    @property
    def keys(self) -> tuple[str, ...]:
        """The servers' keys on the ring, in order."""
        return tuple(server.key for server in self._servers)

    @property
    def running(self) -> tuple[bool, ...]:
        """Which servers' processes live."""
        return tuple(server.is_running for server in self._servers)

    def cluster(self, policy: Policy | None = None) -> Cluster:
        """What a cluster file for these servers would say."""
        entries = zip(self.addresses, self.keys, strict=True)
        servers = tuple(ServerEntry((address,), key) for address, key in entries)
        return Cluster(servers, policy or Policy(), name="lab", salt=b"kcast", is_lab=True)

    def kill(self, *indexes: int) -> None:
        """Ends servers with SIGKILL, at once: they can say and do nothing more."""
        for index in indexes:
            self._servers[index].kill()
        for index in indexes:
            self._servers[index].reap()

    def restart(self, *indexes: int) -> None:
        """Starts servers that do not run, on the port each had; returns when all of them take datagrams."""
        servers = [self._servers[index] for index in indexes if not self._servers[index].is_running]
        try:
            for server in servers:
                server.start(self._options)
            self._await_ready(servers)
        except BaseException:
            for server in servers:
                server.kill()
                server.reap()
            raise

    def stop(self) -> None:
        """Ends all servers. They have nothing to save, so this is `kill` of all."""
        self.kill(*range(len(self._servers)))

    def _await_ready(self, servers: "list[_Server]") -> None:
        deadline = time.monotonic() + self._start_timeout_s
        with selectors.DefaultSelector() as selector:
            for server in servers:
                selector.register(server.stdout, selectors.EVENT_READ, server)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    if key.data.read_ready_line():
                        selector.unregister(key.fileobj)
                if not ready and time.monotonic() >= deadline:
                    late = next(iter(selector.get_map().values())).data
                    raise late.failure(f"was not ready after {self._start_timeout_s:g} s")


class _Server:
    """One server: its process while it runs, and its key and port for ever."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._said = b""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout

    def start(self, options: tuple[str, ...]) -> None:
        self.reap()
        self._said = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            # -P: whatever lies in the working directory must not pass for our packages.
            (
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                "serve",
                "--host",
                _HOST,
                "--port",
                str(self.port),
                *options,
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Ctrl-C is for the owner, who then ends the servers in order.
            start_new_session=True,
        )

    def read_ready_line(self) -> bool:
        """Takes what the server says; whether it says that it is ready. Raises ServerFailed at its end."""
        said = os.read(self.stdout.fileno(), 4096)
        if not said:
            assert self._process is not None
            self._process.wait(_STOP_TIMEOUT_S)
            raise self.failure(f"ended with exit code {self._process.returncode}")
        self._said += said
        line, newline, _ = self._said.partition(b"\n")
        if not newline:
            return False
        ready = _READY.fullmatch(line.decode(errors="replace"))
        if ready is None:
            raise self.failure(f"said {line!r} instead of that it is ready")
        self.port = int(ready[1])
        return True

    def failure(self, what: str) -> ServerFailed:
        where = f" (port {self.port})" if self.port else ""
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
        return ServerFailed("\n  ".join([f"{self.key}{where} did not start: it {what}", *lines]))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def reap(self) -> None:
        """Waits for the end of a process that was killed or has ended, and closes what it had."""
        if self._process is not None:
            self._process.wait(_STOP_TIMEOUT_S)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
