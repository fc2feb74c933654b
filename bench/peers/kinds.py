"""The servers that are compared: how each is started, and how it is spoken to."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.peers.datagrams import open_session
from bench.peers.kcast import publish
from bench.peers.mqtt import Mqtt
from bench.peers.nats import Nats
from bench.peers.processes import Running, free_port, running, scratch_folder
from bench.peers.resp import Redis
from bench.peers.session import READY_S, Failed, Poller, Session
from bench.peers.streams import Broker, StreamSession
from bench.peers.workloads import Workload, payload
from tests.support.trees import Tree

PROGRAMS = Path(__file__).parent / "programs"

Command = Callable[[Path, int, Workload], Sequence[str]]
"""Of a folder for the server's files, a TCP port for it (0 if it chooses its own), and what it will do."""

_VERSION = re.compile(r"\d+\.\d+(\.\d+\S*)?")


@dataclass(frozen=True)
class Kind:
    """A server. With a `broker` it is spoken to over TCP; else over UDP, by leases if it `takes_leases`.

    `version` is the command that tells it; empty for what belongs to the benchmark.
    """

    name: str
    command: Command
    version: Sequence[str] = ()
    broker: Broker | None = None
    takes_leases: bool = False
    server_count: int = 1
    must_say: str = ""
    """What it says at start; else it is not what it is called here."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @contextmanager
    def running(self, workload: Workload, cores: Sequence[int]) -> Iterator[Running]:
        """The server, running on these cores. Raises Failed with what it said."""
        port = free_port() if self.broker is not None else 0
        with (
            scratch_folder() as folder,
            running(
                self.command(folder, port, workload),
                self.environment,
                cores,
                port=port,
                server_count=self.server_count,
                must_say=self.must_say,
            ) as process,
        ):
            yield process

    def open(
        self, workload: Workload, process: Running, stack: ExitStack, poller: Poller
    ) -> Sequence[Session]:
        """Opens a session with each of its servers, which share the topics. Raises Failed."""
        part = replace(workload, topic_count=max(1, workload.topic_count // self.server_count))
        try:
            if self.broker is not None:
                return [StreamSession(workload, self.broker, process.addresses[0], stack, poller)]
            return [
                open_session(part, address, stack, poller, takes_leases=self.takes_leases)
                for address in process.addresses
            ]
        except OSError as error:
            raise Failed(str(error)) from error


# --- kcast -------------------------------------------------------------------------------------------

# Nothing is limited, since what is measured is what it can do, not what it allows.
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


def kcast(tree: Tree, name: str, *options: str, server_count: int = 1, must_say: str = "") -> Kind:
    """Returns the server of a version."""
    known = [each for each in _KCAST_OPTIONS if tree.has_option(each.partition("=")[0])]
    command = tree.serve(*known, *options)
    return Kind(
        name,
        lambda folder, port, workload: command,
        tree.kcast("--version"),
        takes_leases=True,
        server_count=server_count,
        must_say=must_say,
        environment=tree.environment,
    )


PYTHON, NATIVE = "kcast (Python)", "kcast (native)"
KCAST = (NATIVE, PYTHON)
BEFORE = "70c243b"  # this project before it was made as fast as brokers are


def kcasts(tree: Tree) -> list[Kind]:
    """Returns the servers of a version: in Python, and with its native part if it can have one.

    Where that was not built, the native one does not start, and says so: it would be measured in Python.
    """
    if not tree.has_option("--no-native"):
        return [kcast(tree, PYTHON)]
    return [kcast(tree, NATIVE, must_say="routing in native code"), kcast(tree, PYTHON, "--no-native")]


# --- Brokers -----------------------------------------------------------------------------------------

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


def _nats(folder: Path, port: int, workload: Workload) -> Sequence[str]:
    config = folder / "nats.conf"
    config.write_text(_NATS_CONFIG)
    return "nats-server", "-a", "127.0.0.1", "-p", str(port), "-c", str(config)


def _redis(folder: Path, port: int, workload: Workload) -> Sequence[str]:
    options = [word for option in _REDIS_OPTIONS for word in option]
    return "redis-server", "--port", str(port), "--dir", str(folder), *options


def _mosquitto(folder: Path, port: int, workload: Workload) -> Sequence[str]:
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO_CONFIG.format(port=port))
    return "mosquitto", "-c", str(config)


NATS = Kind("nats-server", _nats, ("nats-server", "--version"), Nats())
REDIS = Kind("redis-server", _redis, ("redis-server", "--version"), Redis())
MOSQUITTO = Kind("mosquitto", _mosquitto, ("mosquitto", "-h"), Mqtt())
BETTER_OF = (NATS.name, REDIS.name)
"""The peers with which ratios are made: of the two, the better one."""


# --- What belongs to the benchmark -------------------------------------------------------------------


def _bare(folder: Path, port: int, workload: Workload) -> Sequence[str]:
    line = publish(workload.topic(0), payload(workload.size_bytes))
    return sys.executable, str(PROGRAMS / "bare.py"), str(len(line)), str(workload.fan_out)


BARE = Kind("bare loop", _bare)
FORWARDER = Kind("forwarder", lambda *_: (sys.executable, str(PROGRAMS / "forwarder.py")))


def version(kind: Kind) -> str:
    """Returns what a server says of its version; nothing where it has none.

    Raises Failed where it is not installed, or does not run.
    """
    if not kind.version:
        return ""
    try:
        done = subprocess.run(
            kind.version, env=kind.environment, capture_output=True, text=True, timeout=READY_S, check=False
        )
    except FileNotFoundError:
        raise Failed(f"{kind.version[0]} is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{kind.version[0]}: {error}") from None
    words = f"{done.stdout}\n{done.stderr}".strip()
    found = _VERSION.search(words)
    if not found:
        raise Failed(f"{kind.version[0]} tells no version: {words[-300:] or 'it says nothing'}")
    return found[0]
