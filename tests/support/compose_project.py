"""compose.yaml on a real engine, for tests: a cluster of containers that is removed completely at the end."""

import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import ip_network
from typing import Any, Self

from kcast.client.cluster import Cluster, parse
from tests.support.checkout import ROOT
from tests.support.cluster_of_processes import Command

SERVERS = ("server-1", "server-2", "server-3", "server-4", "server-5")
TTL_S = 6  # so that what a ttl decides, renewals and drains, takes seconds

ENGINE_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 240.0
WAIT_S = 60.0
_POLL_S = 0.1
_SETTLING_S = 1.0

_LABEL = "com.docker.compose.project"


class ComposeProject:
    """The cluster of compose.yaml under a name, an image, a network and ports of its own; use it with `with`.

    Its end removes all of it, also where it is SIGTERM or Ctrl-C that ends it.
    """

    def __init__(self) -> None:
        self.name = f"kcast-test-{secrets.token_hex(4)}"
        # What is set for another project, or in a file .env, must not decide anything here.
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")},
            "KCAST_IMAGE": self.name,
            "KCAST_NET": _free_net(),
            "KCAST_PORTS": _free_ports(),
            "KCAST_TTL": str(TTL_S),
        }
        file = ("--project-directory", str(ROOT), "--file", str(ROOT / "compose.yaml"))
        self._command = (*_compose(), *file, "--project-name", self.name)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        old = signal.signal(signal.SIGTERM, _end)
        self._stack.callback(signal.signal, signal.SIGTERM, old)
        self._stack.callback(self._remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compose(
        self, *arguments: str, timeout_s: float = ENGINE_TIMEOUT_S
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a compose command, which must succeed."""
        return _run(*self._command, *arguments, timeout_s=timeout_s, environment=self._environment)

    def begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Starts a compose command; it is a context, at the end of which it has ended."""
        null = subprocess.DEVNULL
        command = (*self._command, *arguments)
        return subprocess.Popen(command, env=self._environment, stdin=null, stdout=null, stderr=null)

    def up(self, *services: str) -> None:
        """Builds the image, and starts these servers, or all."""
        self.compose("up", "--detach", "--build", *services, timeout_s=BUILD_TIMEOUT_S)

    def await_healthy(self) -> None:
        """Returns when all servers are healthy."""
        wait_for(
            "all servers to be healthy",
            lambda: all(self.inspect(s)["State"]["Health"]["Status"] == "healthy" for s in SERVERS),
        )

    def client(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> Command:
        """Starts a `kcast` command in a container of its own."""
        return _ContainerCommand((*self._command, "run", "--rm", "-T", "client", *arguments), self, stdin)

    def cluster(self, side: str) -> Cluster:
        """Returns the cluster in a side's cluster file."""
        return parse(self.compose("run", "--rm", "-T", "cluster-file", side).stdout)

    def kill(self, service: str) -> None:
        """SIGKILL; returns when its container has ended."""
        docker("kill", "--signal", "KILL", self.container(service))
        wait_for(f"{service} to end", lambda: not self.inspect(service)["State"]["Running"])

    def container(self, service: str) -> str:
        """The id of a service's container, whatever its state."""
        filters = (f"label={_LABEL}={self.name}", f"label=com.docker.compose.service={service}")
        found = docker("ps", "--all", "--quiet", "--filter", filters[0], "--filter", filters[1]).split()
        assert len(found) == 1, f"{service} has {len(found)} containers"
        return found[0]

    def inspect(self, service: str) -> dict[str, Any]:
        """Returns what `docker inspect` prints of a service's container."""
        found: list[dict[str, Any]] = json.loads(docker("inspect", self.container(service)))
        return found[0]

    def python(self, service: str, program: str) -> str:
        """Returns what a Python program prints in a running container."""
        return docker("exec", self.container(service), "python", "-c", program)

    def log(self, service: str) -> list[dict[str, Any]]:
        """Returns a server's log."""
        told = _run("docker", "logs", self.container(service)).stderr
        return [json.loads(line) for line in told.splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of this project's compose commands."""
        return dict(self._environment)

    def _remove(self) -> None:
        # All that bears the project's label, whatever compose believes: it may have been interrupted, and
        # what it had asked for by then may come a moment later.
        deadline = time.monotonic() + ENGINE_TIMEOUT_S
        clean_since = None
        while clean_since is None or time.monotonic() < clean_since + _SETTLING_S:
            left = leftovers(self.name)
            for kind, identities in left.items():
                force = ("--force", "--volumes") if kind == "container" else ()
                docker(kind, "rm", *force, *identities, check=False)
            assert time.monotonic() < deadline, f"could not remove {left}"
            clean_since = None if left else clean_since or time.monotonic()
        docker("image", "rm", self.name, check=False)


class _ContainerCommand(Command):
    def __init__(self, argv: tuple[str, ...], project: ComposeProject, stdin: int) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=project.environment,
        )
        self.output = b""
        self.errors = b""


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # make, and whoever ended make, may both send one
    raise KeyboardInterrupt


def leftovers(project: str) -> dict[str, list[str]]:
    """The ids of all that the engine has of a project, by kind: container, network, volume."""
    found = {}
    for kind in ("container", "network", "volume"):
        everything = ("--all",) if kind == "container" else ()
        listed = docker(kind, "ls", *everything, "--quiet", "--filter", f"label={_LABEL}={project}")
        found[kind] = listed.split()
    return {kind: identities for kind, identities in found.items() if identities}


def wait_for(what: str, holds: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Returns when it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(_POLL_S)


def docker(*arguments: str, check: bool = True) -> str:
    """Returns what a docker command prints."""
    return _run("docker", *arguments, check=check).stdout


def _run(
    *command: str,
    timeout_s: float = ENGINE_TIMEOUT_S,
    environment: dict[str, str] | None = None,
    check: bool = True,
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env=environment,
        check=False,
    )
    said = done.stdout[-4000:] + done.stderr[-4000:]
    assert not check or done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{said}"
    return done


def _compose() -> tuple[str, ...]:
    """`docker compose` where it is there, else `docker-compose`."""
    plugin = ("docker", "compose")
    if _run(*plugin, "version", check=False).returncode == 0:
        return plugin
    assert shutil.which("docker-compose"), "neither `docker compose` nor docker-compose is there"
    return ("docker-compose",)


def _free_net() -> str:
    """The first three numbers of a /24 that overlaps no network of the engine, nor users' default."""
    networks = json.loads(docker("network", "inspect", *docker("network", "ls", "--quiet").split()))
    subnets = [
        ip_network(config["Subnet"])
        for network in networks
        for config in network["IPAM"]["Config"] or ()
        if "." in config["Subnet"]
    ]
    numbers = [
        number
        for number in range(100, 250)
        if not any(ip_network(f"172.30.{number}.0/24").overlaps(subnet) for subnet in subnets)
    ]
    return f"172.30.{random.choice(numbers)}"


def _free_ports() -> str:
    """A number to which 1 to 5 can be appended to give free ports of this machine."""
    while True:
        number = str(random.randrange(2000, 3200))  # below the ports that systems give out themselves
        with ExitStack() as stack:
            try:
                for digit in range(1, len(SERVERS) + 1):
                    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    sock.bind(("127.0.0.1", int(f"{number}{digit}")))
            except OSError:
                continue
        return number
