"""The host of a cluster of processes: forks each server, and kills, stalls or isolates it as its owner asks.

    python -m kcast.loadtest.clusters.process_host

Servers are restarted while load runs on the same machine: a fork takes some milliseconds, where a new Python
would take a tenth of a second of CPU. The host has one thread, so forking is safe.

Its servers do not outlive it. It kills them when its owner is gone. When it is killed itself, the servers
notice that a pipe (the lifeline) has closed. Stalled servers cannot notice: each is a process group of its
own, which the system wakes with SIGHUP when its parent is gone.
"""

import gc
import mmap
import os
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib import import_module
from typing import IO, BinaryIO, NoReturn

from kcast.loadtest.clusters.host_common import (
    Host,
    HostedServer,
    HostOptions,
    Refused,
    ServerState,
    allow_files,
    answer,
    say_cut_off,
    take_replies_output,
    write_all,
)
from kcast.pubsub.listen import ListenError
from kcast.pubsub.log import Log
from kcast.pubsub.process import EXIT_FAILURE, serve, warn

_STOP_TIMEOUT_S = 10.0
_LOG_LINES = 12
_FILES_PER_SERVER = 2
_PORT = struct.Struct("=H")  # what a server writes when it is ready


class _ServerProcess(HostedServer):
    """One server, with a process of its own; its log has all its lives."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - as long as this process
        self.life_at = 0  # the size of the log when this life began
        self.status: int | None = None  # a pipe: it writes its port when ready; closed when it ends

    @property
    def is_running(self) -> bool:
        """Whether its process runs; reaps it if it has ended."""
        if self.process_id is not None:
            self.reap(os.WNOHANG)
        return self.process_id is not None

    def signal(self, number: int) -> None:
        """Sends a signal. The number is still this process's: numbers are reused after `waitpid` only."""
        if self.process_id is not None:
            os.kill(self.process_id, number)

    def reap(self, options: int = 0) -> int | None:
        """Calls `waitpid` with these options; returns the exit code if the process has ended, else None."""
        assert self.process_id is not None and self.status is not None
        process_id, status = os.waitpid(self.process_id, options)
        self.is_stalled = self.is_stalled or (bool(process_id) and os.WIFSTOPPED(status))
        if not process_id or os.WIFSTOPPED(status):
            return None
        os.close(self.status)
        self.process_id = self.status = None
        self.is_stalled = False
        return os.waitstatus_to_exitcode(status)

    def stall(self) -> None:
        if self.is_running and not self.is_stalled:
            self.signal(signal.SIGSTOP)
            self.reap(os.WUNTRACED)

    def resume(self) -> None:
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.is_stalled = False

    def failure(self, what: str) -> Refused:
        """Returns the error that it did not start, with the end of its log."""
        return super().failure("\n  ".join([what, *self.read_log(self.life_at).splitlines()[-_LOG_LINES:]]))

    def read_log(self, start: int = 0) -> str:
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size - start, start).decode(errors="replace")


class _ProcessHost(Host[_ServerProcess]):
    """Carries out the owner's requests."""

    verbs = (*Host.verbs, "logs")

    def __init__(self, replies: BinaryIO) -> None:
        super().__init__()
        self._replies = replies
        self._lifeline, self._lifeline_end = os.pipe()
        self._options: HostOptions

    def open(self, count: int, options: list[str], tap_dir: str | None) -> None:
        self._options = HostOptions.of(count, options, tap_dir)
        allow_files(count * _FILES_PER_SERVER)
        self.flags = mmap.mmap(-1, count)  # shared with all servers
        self.servers = [_ServerProcess(index) for index in range(count)]
        _import_what_servers_need()
        gc.collect()
        gc.freeze()  # otherwise each server's first collection would copy all of it

    def start(self, servers: list[int], timeout_s: float) -> list[ServerState]:
        starting = [self.servers[index] for index in servers if not self.servers[index].is_running]
        try:
            for server in starting:
                self._fork(server)
            self._await_ready(starting, timeout_s)
        except BaseException:
            self.kill([server.index for server in starting])
            raise
        return self.states()

    def kill(self, servers: list[int]) -> list[ServerState]:
        chosen = [self.servers[index] for index in servers if self.servers[index].is_running]
        for server in chosen:
            server.signal(signal.SIGKILL)
        for server in chosen:
            server.reap()
        return self.states()

    def kill_all(self) -> None:
        self.kill([server.index for server in self.servers])

    def stop(self, servers: list[int]) -> list[ServerState]:
        chosen = [self.servers[index] for index in servers if self.servers[index].is_running]
        for server in chosen:
            server.signal(signal.SIGINT)  # ends a server without draining
            server.signal(signal.SIGCONT)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        waiting = _Waiting(chosen)
        while waiting.servers and time.monotonic() < deadline:
            for server, said in waiting.read(deadline):
                if not said:
                    waiting.remove(server)
                    server.reap()
        for server in chosen:
            if server.is_running:
                server.log.write(f"kcast: killed, {_STOP_TIMEOUT_S:g} s after it was told to end\n".encode())
                server.log.flush()
        return self.kill([server.index for server in chosen])

    def logs(self) -> list[str]:
        return [server.read_log() for server in self.servers]

    # --- Starting ------------------------------------------------------------------------------------

    def _await_ready(self, starting: list[_ServerProcess], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        waiting = _Waiting(starting)
        while waiting.servers:
            if time.monotonic() >= deadline:
                raise waiting.servers[0].failure(f"it was not ready after {timeout_s:g} s")
            for server, said in waiting.read(deadline):
                if not said:
                    raise server.failure(f"it ended with exit code {server.reap()}")
                (server.port,) = _PORT.unpack(said)
                waiting.remove(server)

    def _fork(self, server: _ServerProcess) -> None:
        status, said = os.pipe()
        server.life_at = os.fstat(server.log.fileno()).st_size
        try:
            process_id = os.fork()
        except OSError:
            os.close(status)
            os.close(said)
            raise
        if not process_id:
            self._be(server, said)
        os.close(said)
        server.process_id, server.status = process_id, status
        server.lives += 1

    def _be(self, server: _ServerProcess, said: int) -> NoReturn:
        """Runs the server, in the forked child, which never returns into the host's code."""
        code = EXIT_FAILURE
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for old, new in ((nothing, 0), (nothing, 1), (server.log.fileno(), 2)):
                os.dup2(old, new)
            for descriptor in (nothing, self._replies.fileno(), self._lifeline_end):
                os.close(descriptor)
            code = self._serve(server, said)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else EXIT_FAILURE
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _serve(self, server: _ServerProcess, said: int) -> int:
        log = Log(as_json=self._options.given.log == "json")
        try:
            ports = self._options.open_sockets(server.index, server.port, self.flags)
        except (ListenError, ValueError) as error:
            log.error("start", str(error))
            return EXIT_FAILURE
        settings = self._options.settings(server.index, server.lives + 1)
        warn(settings, [ports], log)
        number = _PORT.pack(ports[0].address[1])
        code = serve(settings, ports, log, on_ready=lambda: write_all(said, number), lifeline=self._lifeline)
        say_cut_off(ports, log)
        return code


class _Waiting:
    """Waits for servers to write to their status pipes, and for the owner's end."""

    def __init__(self, servers: list[_ServerProcess]) -> None:
        self.servers = list(servers)
        self._poll = select.poll()
        self._poll.register(0, 0)  # standard input: only its end is reported; requests wait
        for server in servers:
            assert server.status is not None
            self._poll.register(server.status, select.POLLIN)

    def read(self, deadline: float) -> list[tuple[_ServerProcess, bytes]]:
        """Waits until a server writes, or the deadline; returns what they wrote, b"" for one that has ended.

        Raises _OwnerGone.
        """
        ready = dict(self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if 0 in ready:
            raise _OwnerGone
        return [(each, os.read(each.status, 64)) for each in self.servers if each.status in ready]

    def remove(self, server: _ServerProcess) -> None:
        """Stops waiting for this server."""
        assert server.status is not None
        self._poll.unregister(server.status)
        self.servers.remove(server)


class _OwnerGone(Exception):
    pass


def _import_what_servers_need() -> None:
    """Imports what each server would otherwise import for itself."""
    for name in ("asyncio", "uvloop", "kcast.pubsub.tap"):
        with suppress(ImportError):
            import_module(name)


def main() -> None:
    """Carries out requests until the owner is gone."""
    replies = take_replies_output()
    host = _ProcessHost(replies)
    try:
        for line in iter(sys.stdin.buffer.readline, b""):
            write_all(replies.fileno(), answer(line, host.handlers))
    except (_OwnerGone, BrokenPipeError):
        pass
    finally:
        host.kill_all()


if __name__ == "__main__":
    main()
