"""Runs several servers under one command: `--workers` of one host, or `--count` hosts of a lab.

Each server is a process with its own port, secret and table; none knows of the others. The parent handles no
datagram: it opens all sockets, forks, passes on signals, and restarts servers that die. It keeps the sockets
open, so no other program can take a port, and what arrives while a server is dead waits for the next one.
That one tells clients at once that it does not know them.

A child ends a moment after its parent, however the parent ends: it watches a pipe whose other end the parent
has, and the kernel closes that end.

The parent never starts a thread, because a fork beside threads can deadlock the child. Threads, as those for
metrics and the tap, start in the child.
"""

import errno
import os
import selectors
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import NoReturn

from kcast.pubsub.driver import draining_signals
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.listen import is_loopback, is_wildcard
from kcast.pubsub.log import Log
from kcast.pubsub.udp import UdpPort

RESTART_DELAY_S_MIN = 1.0
RESTART_DELAY_S_MAX = 30.0  # a server that lived for longer is restarted after the least delay
WORKERS_MAX = 256

_INDEX = struct.Struct("=H")  # what a child writes when it is ready

Work = Callable[[int, Callable[[], None], int], int]
"""What a child does: takes its index, a callback for when it is ready, a lifeline; returns an exit code."""


class _Worker:
    """One of the servers, and its process while it runs."""

    def __init__(self, index: int, ports: Sequence[UdpPort]) -> None:
        self.index = index
        self.ports = ports
        self.name = format_address(ports[0].address)
        self.process_id: int | None = None
        self.is_ready = False
        self.started_at = 0.0
        self.delay_s = RESTART_DELAY_S_MIN
        self.restart_at: float | None = None


class Supervisor:
    """Runs a server for each element of `servers`, its open sockets, until signals end them all.

    `work` runs in each child. `on_ready` runs in the parent once all children are ready; if it returns False,
    all are ended. Use it in the main thread of a process that has no other thread.
    """

    def __init__(
        self, servers: Sequence[Sequence[UdpPort]], work: Work, log: Log, on_ready: Callable[[], bool]
    ) -> None:
        self._workers = [_Worker(index, ports) for index, ports in enumerate(servers)]
        self._work = work
        self._log = log
        self._on_ready = on_ready
        self._signals = (*draining_signals(), signal.SIGINT)
        self._received: list[int] = []
        self._is_ending = False
        self._exit_code = 0

    def run(self) -> int:
        """Returns when the last child has ended: 0, or 1 if one did not start or did not end well."""
        wake_up_reader, wake_up_writer = os.pipe()
        ready_reader, self._ready_writer = os.pipe()
        self._lifeline, lifeline_end = os.pipe()
        self._pipes = (wake_up_reader, wake_up_writer, ready_reader, lifeline_end)
        for descriptor in (wake_up_reader, wake_up_writer, ready_reader):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_up_writer)
        for number in self._signals:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it only has to wake up `select`
        selector = selectors.DefaultSelector()
        selector.register(wake_up_reader, selectors.EVENT_READ)
        selector.register(ready_reader, selectors.EVENT_READ)
        for worker in self._workers:
            try:
                self._start(worker)
            except OSError as error:
                self._log.error("worker-failed", f"{worker.name} did not start: {_reason(error)}")
                self._fail()
                break
        is_announced = False
        while any(worker.process_id or worker.restart_at is not None for worker in self._workers):
            due = min((at for w in self._workers if (at := w.restart_at) is not None), default=None)
            selector.select(None if due is None else max(0.0, due - monotonic()))
            with suppress(BlockingIOError):
                os.read(wake_up_reader, 4096)
            while self._received:
                self._end_all(self._received.pop(0))
            with suppress(BlockingIOError):
                for (index,) in _INDEX.iter_unpack(os.read(ready_reader, 4096)):
                    self._workers[index].is_ready = True
            for worker in self._workers:
                self._look_after(worker)
            if not is_announced and not self._is_ending and all(w.is_ready for w in self._workers):
                is_announced = True
                if not self._on_ready():
                    self._fail()
        return self._exit_code

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._received.append(number)

    def _end_all(self, number: int) -> None:
        """Passes a signal on, and restarts nothing more."""
        self._is_ending = True
        for worker in self._workers:
            worker.restart_at = None
            if worker.process_id is not None:
                os.kill(worker.process_id, number)

    def _fail(self) -> None:
        """Ends all servers, with exit code 1."""
        self._exit_code = 1
        self._end_all(signal.SIGINT)

    def _look_after(self, worker: _Worker) -> None:
        if worker.process_id is not None:
            process_id, status = os.waitpid(worker.process_id, os.WNOHANG)
            if process_id:
                self._has_ended(worker, os.waitstatus_to_exitcode(status))
        elif worker.restart_at is not None and worker.restart_at <= monotonic():
            try:
                self._start(worker)
            except OSError as error:
                # The others go on, whatever the machine lacks.
                self._log.warning(
                    "worker-not-started",
                    f"{worker.name} cannot start: {_reason(error)}; next try in {worker.delay_s:.0f} s",
                    worker=worker.name,
                    delay_s=worker.delay_s,
                )
                self._start_later(worker)
                return
            self._log.info(
                "worker-started",
                f"{worker.name} starts again as process {worker.process_id}",
                worker=worker.name,
                process=worker.process_id,
            )

    def _has_ended(self, worker: _Worker, code: int) -> None:
        process_id, worker.process_id = worker.process_id, None
        if self._is_ending:
            # A child that does not handle signals yet is ended by them.
            if code != 0 and -code not in self._signals:
                self._exit_code = 1
            return
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        if not all(each.is_ready for each in self._workers):
            self._log.error("worker-failed", f"{worker.name} did not start: it {how}", worker=worker.name)
            self._fail()
            return
        if monotonic() - worker.started_at >= RESTART_DELAY_S_MAX:
            worker.delay_s = RESTART_DELAY_S_MIN
        self._log.warning(
            "worker-died",
            f"{worker.name} (process {process_id}) {how}; it starts again in {worker.delay_s:.0f} s",
            worker=worker.name,
            process=process_id,
            exit_code=code,
            delay_s=worker.delay_s,
        )
        self._start_later(worker)

    def _start_later(self, worker: _Worker) -> None:
        worker.restart_at = monotonic() + worker.delay_s
        worker.delay_s = min(2 * worker.delay_s, RESTART_DELAY_S_MAX)

    # --- Children ------------------------------------------------------------------------------------

    def _start(self, worker: _Worker) -> None:
        worker.restart_at = None
        worker.started_at = monotonic()
        # A signal between the fork and the setting of the child's own handlers must not get lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        try:
            worker.process_id = os.fork() or None
            if worker.process_id is None:
                self._run_child(worker)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)

    def _run_child(self, worker: _Worker) -> NoReturn:
        """Does all that the child does, and ends it. It never returns into the parent's code."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*self._signals, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
            # Ctrl-C goes to the parent, which passes it on once.
            os.setsid()
            for descriptor in self._pipes:
                os.close(descriptor)
            for other in self._workers:
                if other is not worker:
                    for port in other.ports:
                        port.close()
            _name_process(f"kcast-{worker.ports[0].address[1]}")
            code = self._work(worker.index, lambda: self._tell_ready(worker), self._lifeline)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                self._log.error("worker-failed", f"{worker.name}: {_reason(error)}", worker=worker.name)
            else:
                traceback.print_exc()
        finally:
            os._exit(code)

    def _tell_ready(self, worker: _Worker) -> None:
        os.write(self._ready_writer, _INDEX.pack(worker.index))


def _name_process(name: str) -> None:
    """Names the process, so that `ps` and `pkill` can tell the children apart."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/comm").write_text(name[:15])


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- What clients need to know -----------------------------------------------------------------------


def cluster_file(servers: Sequence[Sequence[Address]], *, is_lab: bool) -> str:
    """Returns the cluster file (PROTOCOL §10) of servers with these addresses.

    In a lab each server counts as a host of its own. Else they are the servers of one host; if only this
    machine can reach them, the file is a lab file too, with one key for all.
    """
    if any(is_wildcard(address) for addresses in servers for address in addresses):
        lines = ["# Serving on all addresses. In a cluster file, name the one that clients are told:"]
        lines += [f"#   server ADDRESS:{addresses[0][1]}" for addresses in servers]
        return "\n".join(lines) + "\n"
    hosts = len(servers) if is_lab else 1
    k = min(5, hosts)
    is_local = not is_lab and any(is_loopback(address) for address in servers[0])
    key = f" key={servers[0][0][0]}" if is_local else ""
    lines = ["kcast-cluster 1"]
    if is_lab or is_local:
        lines += ["name   lab"]
    lines += [f"policy k={k} publish={k // 2 + 1} subscribe={k}"]
    if is_lab or is_local:
        lines += ["lab"]
    lines += [f"server {','.join(map(format_address, addresses))}{key}" for addresses in servers]
    return "\n".join(lines) + "\n"
