"""Servers that a child process runs, a host: the owner's side of it, whatever the host runs them in."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from kcast.loadtest.clusters.host_common import ServerState
from kcast.loadtest.clusters.server_names import tap_path
from kcast.loadtest.clusters.server_stats import read_sockets, stat_of
from kcast.loadtest.clusters.servers import (
    ServerFailed,
    Servers,
    ServerStat,
    in_order,
    refuse_impossible,
)
from kcast.pubsub.endpoint import Address

START_TIMEOUT_S = 30.0
_REPLY_TIMEOUT_S = 20.0  # what a host needs at most beyond the time that it was given
_END_TIMEOUT_S = 10.0
_LOG_LINES = 12
_HOST = "127.0.0.1"


class HostedServers(Servers):
    """`Servers` of which the module `program` is the host.

    `options` are further ones for `kcast serve`, and `tap_dir` is where each life of a server gets a tap.
    Raises ServerFailed where a server does not start.
    """

    backend: str
    program: ClassVar[str]

    def __init__(
        self,
        count: int,
        *,
        ttl_s: int,
        options: tuple[str, ...] = (),
        tap_dir: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        refuse_impossible(count, tap_dir)
        self._options = ("--host", _HOST, "--ttl", str(ttl_s), *options)
        self._tap_dir = None if tap_dir is None else tap_dir.absolute()
        self._start_timeout_s = start_timeout_s
        self._host: _HostProcess | None = None
        self._states = [ServerState(is_running=False, port=0, process_id=None, lives=0)] * count
        self._logs = [""] * count

    def __enter__(self) -> Self:
        self._host = _HostProcess(self.program)
        try:
            tap_dir = None if self._tap_dir is None else str(self._tap_dir)
            self._host.ask("open", count=len(self), options=self._options, tap_dir=tap_dir)
            self.restart(*range(len(self)))
        except BaseException:
            self._host.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._host is not None:
            try:
                # What failed may be what failed before; the servers end with the host in any case.
                with suppress(ServerFailed):
                    self.kill(*range(len(self)))
                    self.logs()
            finally:
                self._host.end()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the servers are reached, in order; they keep their ports when restarted."""
        return tuple((_HOST, state.port) for state in self._states)

    @property
    def running(self) -> tuple[bool, ...]:
        """Which servers live."""
        self._look()
        return tuple(state.is_running for state in self._states)

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The processes of those that live."""
        self._look()
        return tuple(state.process_id for state in self._states)

    @property
    def taps(self) -> tuple[tuple[Path, ...], ...]:
        """The tap files of each server's lives."""
        if self._tap_dir is None:
            return ((),) * len(self)
        folder = self._tap_dir
        paths = (
            [tap_path(folder, index, life) for life in range(1, state.lives + 1)]
            for index, state in enumerate(self._states)
        )
        return tuple(tuple(path for path in lives if path.exists()) for lives in paths)

    def kill(self, *indexes: int) -> None:
        """Ends servers with SIGKILL, at once: they can say and do nothing more."""
        self._change("kill", indexes)

    def restart(self, *indexes: int) -> None:
        """Starts servers that do not run, on the port each had; returns when all of them take datagrams."""
        timeout_s = self._start_timeout_s
        try:
            self._change("start", indexes, timeout_s=timeout_s)
        except BaseException:
            with suppress(ServerFailed):
                self._look()
            raise

    def stall(self, *indexes: int) -> None:
        """Halts servers; what is sent to them waits in their sockets."""
        self._change("stall", indexes)

    def resume(self, *indexes: int) -> None:
        """Lets stalled servers go on."""
        self._change("resume", indexes)

    def isolate(self, *indexes: int) -> None:
        """Lets nothing in or out of servers."""
        self._ask("isolate", servers=in_order(indexes, len(self)))

    def rejoin(self, *indexes: int) -> None:
        """Ends the isolation."""
        self._ask("rejoin", servers=in_order(indexes, len(self)))

    def stop(self) -> None:
        """Ends all in order, so that their taps are whole."""
        self._change("stop", range(len(self)))

    def logs(self) -> dict[str, str]:
        """What each server has said on standard error, in all its lives."""
        logs = self._ask("logs")
        if logs is not None:
            self._logs = logs
        return dict(zip(self.keys, self._logs, strict=True))

    def stats(self) -> list[ServerStat]:
        """What the system counts for each."""
        self._look()
        sockets = read_sockets()
        return [
            stat_of(state.process_id, [address], sockets)
            for state, address in zip(self._states, self.addresses, strict=True)
        ]

    def host_errors(self) -> str:
        """What the host itself has said on standard error."""
        return "" if self._host is None else self._host.errors()

    def _change(self, verb: str, indexes: Iterable[int], **arguments: Any) -> None:
        states = self._ask(verb, servers=in_order(indexes, len(self)), **arguments)
        if states is not None:
            self._states = [ServerState(*state) for state in states]

    def _look(self) -> None:
        states = self._ask("states")
        if states is not None:
            self._states = [ServerState(*state) for state in states]

    def _ask(self, verb: str, **arguments: Any) -> Any:
        """The host's reply; None where there is no host any more, and so no server."""
        if self._host is None or self._host.has_ended:
            self._states = [state._replace(is_running=False, process_id=None) for state in self._states]
            if verb == "start":
                raise ServerFailed("the servers cannot start: the process that ran them has ended")
            return None
        return self._host.ask(verb, **arguments)


class _HostProcess:
    """The child, and the conversation with it."""

    def __init__(self, program: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        # -P: whatever lies in the working directory must not pass for our packages.
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            # Ctrl-C is for the owner, who then ends the servers in order.
            start_new_session=True,
        )
        self._asked = 0
        self._said = ""
        self._heard = b""
        self.has_ended = False

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Has something done. Raises ServerFailed where it is refused, or the host is not there to do it."""
        self._asked += 1
        request = json.dumps({"id": self._asked, "do": verb, **arguments}).encode() + b"\n"
        assert self._process.stdin is not None
        try:
            while request:
                request = request[self._process.stdin.write(request) or 0 :]
        except OSError:
            raise self._failure() from None
        deadline = time.monotonic() + float(arguments.get("timeout_s", 0)) + _REPLY_TIMEOUT_S
        while True:
            reply = json.loads(self._read_line(deadline))
            # Of a request that an exception has cut short here, the answer comes later.
            if reply["id"] == self._asked:
                break
        if "refused" in reply:
            raise ServerFailed(reply["refused"])
        return reply["value"]

    def end(self) -> None:
        """Ends it, and so all of its servers."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.has_ended = True  # first of all: Ctrl-C may cut this short
        if not self._errors.closed:
            self._process.stdin.close()
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._said = self.errors()
            self._errors.close()

    def errors(self) -> str:
        """What it has said on standard error."""
        if self._errors.closed:
            return self._said
        # The host writes where this descriptor, which it shares, stands: it must not be moved.
        size_bytes = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size_bytes, 0).decode(errors="replace")

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._process.kill()
                    raise ServerFailed("the process that runs the servers does not answer, and was killed")
                heard = os.read(self._process.stdout.fileno(), 65_536)
                if not heard:
                    raise self._failure()
                self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _failure(self) -> ServerFailed:
        code = self._process.wait(_END_TIMEOUT_S)
        self.end()
        lines = self.errors().splitlines()[-_LOG_LINES:]
        what = f"the process that runs the servers ended with exit code {code}"
        return ServerFailed("\n  ".join([what, *lines]))
