"""Starts and ends the servers that are compared, on cores that the load does not use."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.peers.session import READY_S, Failed

SAID_S, DRAIN_S, END_S = 0.5, 0.2, 5.0
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)

Process = subprocess.Popen[bytes]
Address = tuple[str, int]

# What a server of kcast says when it is ready, or its cluster file, where there are several.
_SERVING = re.compile(r"(?:serving on|^server) (\d+\.\d+\.\d+\.\d+):(\d+)\b", re.M)


@dataclass(frozen=True)
class Running:
    """A server that is ready; one of kcast may have several addresses."""

    process: Process
    addresses: tuple[Address, ...]
    said: Path

    def require_alive(self) -> None:
        """Raises Failed with what the server said, if it has ended."""
        if self.process.poll() is not None:
            raise Failed(_last_words(self.said) or f"it ended with exit code {self.process.returncode}")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that goes with its context, and that servers can read as other users, too."""
    with tempfile.TemporaryDirectory(prefix="kcast-bench-") as text:
        folder = Path(text)
        folder.chmod(0o755)
        yield folder


@contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str],
    cores: Sequence[int],
    *,
    port: int = 0,
    server_count: int = 1,
    must_say: str = "",
) -> Iterator[Running]:
    """A server, which is ended at the end, whatever happens.

    With a port it is ready when that takes connections; without one, when it has told `server_count`
    addresses, and `must_say`. Raises Failed with what it said.
    """
    with scratch_folder() as folder, ExitStack() as stack:
        said = folder / "output"
        output = stack.enter_context(said.open("w+b"))
        # An interruption must not come between the start and the note that it has to be ended.
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
        try:
            process = start(command, environment, cores, output.fileno())
            stack.callback(end, process)
        except FileNotFoundError:
            raise Failed(f"{command[0]} is not installed") from None
        except OSError as error:
            raise Failed(f"{command[0]} does not start: {error}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
        yield Running(process, _await_ready(process, said, port, server_count, must_say), said)


def start(
    command: Sequence[str], environment: Mapping[str, str], cores: Sequence[int], output: int
) -> Process:
    """Starts a process on these cores, so that it finds no others."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C ends the benchmark, which then ends it
            preexec_fn=_heed_interruptions,
        )
    finally:
        os.sched_setaffinity(0, mine)


def _heed_interruptions() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)


def end(process: Process) -> None:
    """Ends a process. A server of kcast forwards for a while after the first signal; a second one ends it."""
    for wait_s in (DRAIN_S, END_S):
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return
    process.kill()
    process.wait(END_S)


def free_port() -> int:
    """Returns a TCP port of loopback that nothing has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _await_ready(
    process: Process, said: Path, port: int, server_count: int, must_say: str
) -> tuple[Address, ...]:
    deadline_s = time.monotonic() + READY_S
    found: tuple[Address, ...] = ()
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise Failed(_last_words(said) or f"it ended with exit code {process.returncode}")
        if port:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return (("127.0.0.1", port),)
        else:
            words = said.read_text(errors="replace")
            found = addresses_in(words)
            if len(found) >= server_count:
                if must_say in words:
                    return found
                # It says all that it has to say in a moment.
                deadline_s = min(deadline_s, time.monotonic() + SAID_S)
        time.sleep(0.02)
    if found:
        raise Failed(f"it does not say {must_say!r}, but {_last_words(said)!r}")
    raise Failed(f"it is not ready after {READY_S:g} s: {_last_words(said) or 'it said nothing'}")


def addresses_in(words: str) -> tuple[Address, ...]:
    """Returns the addresses that a server says it has."""
    return tuple((host, int(port)) for host, port in _SERVING.findall(words))


def _last_words(said: Path) -> str:
    """The last lines that a process said, in one."""
    return " / ".join(said.read_text(errors="replace").strip().splitlines()[-3:])[-500:]
