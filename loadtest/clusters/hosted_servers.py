"""Servers that a child process, their host, runs: the owner's side, for both kinds of host."""

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
from typing import Any, ClassVar, Self

from kcast.loadtest.clusters.host_common import ServerState
from kcast.loadtest.clusters.server_names import tap_path
from kcast.loadtest.clusters.server_stats import read_sockets, stat_of
from kcast.loadtest.clusters.servers import ServerFailed, Servers, ServerStat, in_order, refuse_impossible
from kcast.pubsub.endpoint import Address

START_TIMEOUT_S = 30.0
_REPLY_TIMEOUT_S = 20.0  # the most that a host needs beyond the time it was given
_END_TIMEOUT_S = 10.0
_LOG_LINES = 12
_HOST = "127.0.0.1"


class HostedServers(Servers):
    """`Servers` that are run by a host, the program `program`.

    `options` are passed to `kcast serve`; with `tap_dir`, each life of a server writes a tap there.
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

    def __exit__(self, *_: object) -> None:
        if self._host is not None:
            try:
                # It may fail because the host has failed; the servers end with the host in any case.
                with suppress(ServerFailed):
                    self.kill(*range(len(self)))
                    self.logs()
            finally:
                self._host.end()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The servers' addresses; a restarted server keeps its own."""
        return tuple((_HOST, state.port) for state in self._states)

    @property
    def running(self) -> tuple[bool, ...]:
        """Whether each server runs."""
        self._look()
        return tuple(state.is_running for state in self._states)

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Each server's process; None if it does not run."""
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
        """Ends servers at once, with SIGKILL."""
        self._change("kill", indexes)

    def restart(self, *indexes: int) -> None:
        """Starts servers that do not run, at their ports; returns when all serve. Raises ServerFailed."""
        timeout_s = self._start_timeout_s
        try:
            self._change("start", indexes, timeout_s=timeout_s)
        except BaseException:
            with suppress(ServerFailed):
                self._look()
            raise

    def stall(self, *indexes: int) -> None:
        """Halts servers. What is sent to them waits in their sockets."""
        self._change("stall", indexes)

    def resume(self, *indexes: int) -> None:
        """Lets stalled servers continue."""
        self._change("resume", indexes)

    def isolate(self, *indexes: int) -> None:
        """Cuts servers off from the network."""
        self._ask("isolate", servers=in_order(indexes, len(self)))

    def rejoin(self, *indexes: int) -> None:
        """Ends the isolation."""
        self._ask("rejoin", servers=in_order(indexes, len(self)))

    def stop(self) -> None:
        """Ends all servers without draining; their taps are written to the end."""
        self._change("stop", range(len(self)))

    def logs(self) -> dict[str, str]:
        """Returns what each server has written to standard error in all its lives, by key."""
        logs = self._ask("logs")
        if logs is not None:
            self._logs = logs
        return dict(zip(self.keys, self._logs, strict=True))

    def stats(self) -> list[ServerStat]:
        """Returns the current figures of each server."""
        self._look()
        sockets = read_sockets()
        return [
            stat_of(state.process_id, [address], sockets)
            for state, address in zip(self._states, self.addresses, strict=True)
        ]

    def host_errors(self) -> str:
        """Returns what the host itself has written to standard error."""
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
        """Returns the host's reply; None if the host has ended, and so all servers."""
        if self._host is None or self._host.has_ended:
            self._states = [state._replace(is_running=False, process_id=None) for state in self._states]
            if verb == "start":
                raise ServerFailed("the servers cannot start: the process that ran them has ended")
            return None
        return self._host.ask(verb, **arguments)


class _HostProcess:
    """The host, as a child process: requests to it, and its replies."""

    def __init__(self, program: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        # -P: so that nothing in the working directory is taken for our packages.
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            # Ctrl-C is for the owner only, who then ends the servers in order.
            start_new_session=True,
        )
        self._asked = 0
        self._said = ""
        self._heard = b""
        self.has_ended = False

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Returns the reply to a request. Raises ServerFailed if it is refused, or the host has failed."""
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
            # Replies to earlier requests, whose `ask` an exception has ended, are skipped.
            if reply["id"] == self._asked:
                break
        if "refused" in reply:
            raise ServerFailed(reply["refused"])
        return reply["value"]

    def end(self) -> None:
        """Ends the host, and so all of its servers."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.has_ended = True  # first, because Ctrl-C may interrupt this
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
        """Returns what it has written to standard error."""
        if self._errors.closed:
            return self._said
        # The host shares this descriptor and writes at its position, which must not be moved.
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
