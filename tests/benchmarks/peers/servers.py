"""Starts and ends the servers that are compared, each on a core that the load does not use."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.peers.kcast import DatagramSession
from tests.benchmarks.peers.mqtt import Mqtt
from tests.benchmarks.peers.nats import Nats
from tests.benchmarks.peers.resp import Redis
from tests.benchmarks.peers.session import READY_S, Failed, Poller, Session
from tests.benchmarks.peers.streams import Broker, StreamSession
from tests.benchmarks.peers.workloads import Workload
from tests.support.trees import Tree

END_S = 5.0


@dataclass(frozen=True)
class Running:
    """A server that is ready."""

    process_id: int
    address: tuple[str, int]


@dataclass(frozen=True)
class Kind:
    """A server: how it is started, what it is spoken to. `broker` is None for kcast."""

    name: str
    command: Callable[[Path, int], Sequence[str]]
    """Of a folder of its own and a port; port 0 where it chooses one, and prints it."""
    version: Sequence[str]
    broker: Broker | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def open(self, workload: Workload, running: Running, stack: ExitStack, poller: Poller) -> Session:
        """Opens a session with the server. Raises Failed."""
        try:
            if self.broker is None:
                return DatagramSession(workload, running.address, stack, poller)
            return StreamSession(workload, self.broker, running.address, stack, poller)
        except OSError as error:
            raise Failed(f"{self.name}: {error}") from error


# Options of `kcast serve`: nothing is limited, since what is measured is what it can do, not what it allows.
_KCAST_OPTIONS = (
    "--port=0",
    "--ttl=3600",
    "--capacity=10000000",
    "--leases-per-address=1000000",
    "--topics=1000000",
    "--publish-rate=0",
    "--copy-rate=0",
    "--egress-rate=0",
    "--challenge-rate=0",
)

_NATS_CONFIG = 'ping_interval: "1h"\nmax_connections: 100000\n'
_MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
set_tcp_nodelay true
log_dest stderr
log_type error
"""
_REDIS_OPTIONS = (
    ("--bind", "127.0.0.1"),
    ("--save", ""),
    ("--appendonly", "no"),
    ("--maxclients", "100000"),
    # By default a subscriber is cut off when 32 MB wait for it.
    ("--client-output-buffer-limit", "pubsub 0 0 0"),
)


def kcast(tree: Tree, name: str = "kcast", *options: str) -> Kind:
    """Returns the server of a version."""
    known = [each for each in _KCAST_OPTIONS if tree.has_option(each.partition("=")[0])]
    command = tree.serve(*known, *options)
    return Kind(name, lambda folder, port: command, tree.kcast("--version"), environment=tree.environment)


def _nats(folder: Path, port: int) -> Sequence[str]:
    config = folder / "nats.conf"
    config.write_text(_NATS_CONFIG)
    return "nats-server", "-a", "127.0.0.1", "-p", str(port), "-c", str(config)


def _redis(folder: Path, port: int) -> Sequence[str]:
    options = [word for option in _REDIS_OPTIONS for word in option]
    return "redis-server", "--port", str(port), "--dir", str(folder), *options


def _mosquitto(folder: Path, port: int) -> Sequence[str]:
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO_CONFIG.format(port=port))
    return "mosquitto", "-c", str(config)


NATS = Kind("nats-server", _nats, ("nats-server", "--version"), Nats())
REDIS = Kind("redis-server", _redis, ("redis-server", "--version"), Redis())
MOSQUITTO = Kind("mosquitto", _mosquitto, ("mosquitto", "-h"), Mqtt())
PEERS = (NATS, REDIS, MOSQUITTO)


def version(kind: Kind) -> str:
    """Returns what a server says of its version. Raises Failed where it is not installed, or does not run."""
    try:
        done = subprocess.run(
            kind.version, env=kind.environment, capture_output=True, text=True, timeout=READY_S, check=False
        )
    except FileNotFoundError:
        raise Failed(f"{kind.version[0]} is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    words = (done.stdout or done.stderr).strip()
    found = re.search(r"\d+\.\d+\.\d+\S*", words)
    if not found:
        raise Failed(f"{kind.version[0]} tells no version: {words[:200]!r}")
    return found[0]


@contextmanager
def running(kind: Kind, cores: Sequence[int]) -> Iterator[Running]:
    """A server on these cores; it is ended, whatever happens. Raises Failed with what it said."""
    with tempfile.TemporaryDirectory(prefix="kcast-bench-") as text, ExitStack() as stack:
        folder = Path(text)
        folder.chmod(0o755)  # mosquitto reads its files as another user
        port = free_port() if kind.broker is not None else 0
        said = stack.enter_context((folder / "output").open("w+b"))
        try:
            process = start(kind.command(folder, port), kind.environment, cores, said.fileno())
        except FileNotFoundError as error:
            raise Failed(f"{error.filename} is not installed") from None
        stack.callback(end, process)
        address = _await_ready(kind, process, folder / "output", port)
        yield Running(process.pid, address)


def start(
    command: Sequence[str], environment: Mapping[str, str], cores: Sequence[int], output: int
) -> "subprocess.Popen[bytes]":
    """Starts a process on these cores, where its run-time system finds no others."""
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
        )
    finally:
        os.sched_setaffinity(0, mine)


def end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_S)


def free_port() -> int:
    """Returns a TCP port of loopback that nothing has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


_SERVING = re.compile(r"serving on (\d+\.\d+\.\d+\.\d+):(\d+)")


def _await_ready(
    kind: Kind, process: "subprocess.Popen[bytes]", output: Path, port: int
) -> tuple[str, int]:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise Failed(_last_words(output) or f"it ended with exit code {process.returncode}")
        if kind.broker is None:
            if found := _SERVING.search(output.read_text(errors="replace")):
                return found[1], int(found[2])
        else:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return "127.0.0.1", port
        time.sleep(0.02)
    raise Failed(f"it is not ready after {READY_S:g} s: {_last_words(output)}")


def _last_words(output: Path) -> str:
    """The last lines that a server said, in one."""
    return " / ".join(output.read_text(errors="replace").strip().splitlines()[-3:])[-500:]


def is_installed(kind: Kind) -> bool:
    return shutil.which(kind.version[0]) is not None
