"""What a row of the attack suite works with: servers of the version that is tried, honest traffic, floods."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, format_address
from tests.attacks.honest import Honest
from tests.support.trees import HERE, Tree

WAIT_S = 30.0
_NO_EXEMPTION = "--no-loopback-exemption"

Enter = Callable[[Callable[[], Any]], Any]


class Skipped(Exception):
    """A row cannot be run here; the text says why."""


def unentered(function: Callable[[], Any]) -> Any:
    """Calls a function where this process is."""
    return function()


class Served:
    """A running server. `enter` calls a function where it runs, such as a network namespace."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: Address, metrics_port: int) -> None:
        self.process = process
        self.address = address
        self.metrics_port = metrics_port

    @property
    def cpu_s(self) -> float:
        """User and system time that it has used."""
        return cpu_seconds(self.process.pid)

    @property
    def kernel_drops(self) -> int:
        """The number of datagrams that found its receive buffer full."""
        end = f":{self.address[1]:04X}"
        rows = [
            line.split()
            for name in ("udp", "udp6")
            for line in Path(f"/proc/{self.process.pid}/net/{name}").read_text().splitlines()[1:]
        ]
        return sum(int(row[-1]) for row in rows if row[1].endswith(end))

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def metrics(self) -> dict[str, float]:
        """Returns its metrics, labels included in their names."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=WAIT_S) as page:
            lines = page.read().decode().splitlines()
        pairs = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    def dropped(self, reason: str) -> float:
        """Returns what it has dropped for a reason."""
        return self.metrics().get(f'kcast_drops_total{{reason="{reason}"}}', 0.0)


class Lab:
    """One row's servers, clients and attackers; use it with `with`, whose end ends all that it started."""

    def __init__(self, tree: Tree = HERE, *, is_full: bool = False, scratch: Path) -> None:
        self.tree = tree
        self.is_full = is_full
        self.scratch = scratch
        self.stack = ExitStack()
        self._files = 0

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def start(
        self, *command: str, tree: Tree = HERE, enter: Enter = unentered, **options: Any
    ) -> "subprocess.Popen[bytes]":
        """Starts a process that ends with the row."""
        settings: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
            "cwd": tree.folder,
        } | options
        process: subprocess.Popen[bytes] = enter(
            lambda: subprocess.Popen(command, env=tree.environment, **settings)
        )
        self.stack.callback(_end, process)
        return process

    def serve(
        self,
        *options: str,
        host: str = "127.0.0.1",
        tree: Tree | None = None,
        exempts_loopback: bool = False,
        has_metrics: bool = True,
        enter: Enter = unentered,
        **settings: Any,
    ) -> Served:
        """Starts a server of the version that is tried; it takes loopback for a network like any other.

        Of several, with `--workers`, it returns the first.
        """
        tree = tree or self.tree
        port = _free_port()
        more = ["--metrics", str(port)] if has_metrics else []
        if not exempts_loopback and tree.has_option(_NO_EXEMPTION):
            more.append(_NO_EXEMPTION)
        command = tree.serve("--host", host, "--port", "0", *more, *options)
        process = self.start(*command, tree=tree, enter=enter, **settings)
        assert process.stdout is not None
        if "--workers" in options:
            line = next((line for line in process.stdout if line.startswith(b"server ")), b"").decode()
            served = line.split()[1:2]  # the cluster file names them all
        else:
            served = re.findall(r"serving on (\S+)", process.stdout.readline().decode())  # text, or JSON
        if not served:
            raise RuntimeError(f"the server did not start: {command}")
        name, _, served_port = served[0].rpartition(":")
        return Served(process, (name.strip("[]"), int(served_port)), port)

    def cluster_file(self, *addresses: Address, policy: Policy | None = None) -> str:
        """Writes the cluster file of some servers; returns its path."""
        self._files += 1
        file = self.scratch / f"{id(self)}-{self._files}.cluster"
        file.write_text(format_cluster(lab(list(addresses), policy or Policy(1, 1, 1))))
        return str(file)

    def honest(
        self, server: Address, seconds: float, *, rate: float = 500, enter: Enter = unentered, **more: Any
    ) -> "HonestTraffic":
        """Starts honest traffic; returns when its lease stands."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
        return HonestTraffic(
            self.start(
                sys.executable,
                "-m",
                "tests.attacks.honest",
                self.cluster_file(server),
                f"--rate={rate}",
                f"--seconds={seconds}",
                *options,
                enter=enter,
                stderr=subprocess.PIPE,
            )
        )

    def flood(self, server: Address, kind: str, *, rate: float = 0, seconds: float, **more: Any) -> "Flood":
        """Starts a flood; with a rate of 0 as fast as one core can."""
        options = [f"--{name}={value}" for name, value in more.items()]
        return Flood(
            self.start(
                sys.executable,
                "-m",
                "tests.attacks.flood",
                format_address(server),
                kind,
                f"--rate={rate}",
                f"--seconds={seconds}",
                *options,
                stderr=subprocess.PIPE,
            )
        )

    def relayed(self, server: Address, *, delay_ms: float = 0, source: str = "127.7.7.7") -> Address:
        """Starts a relay; returns the address at which the server is reached with so much delay each way.

        The server sees clients there as coming from `source`.
        """
        process = self.start(
            sys.executable, "-m", "tests.attacks.relay", format_address(server), str(delay_ms), source
        )
        assert process.stdout is not None
        return "127.0.0.1", int(process.stdout.readline())


class HonestTraffic:
    """Honest traffic that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"honest clients got no lease: {process.communicate(timeout=WAIT_S)[1]!r}")
        self.began = time.monotonic()

    def result(self) -> Honest:
        """Waits for its end."""
        told = json.loads(_output(self._process))
        return Honest(told["sent"], told["came"], told["leases_lost"])


class Flood:
    """A flood that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def result(self) -> dict[str, float]:
        """Waits for its end; returns the datagrams `sent`, in all and `per_s`, and its `seconds`."""
        return dict(json.loads(_output(self._process)))

    def end(self) -> None:
        """Ends it before its time."""
        self._process.kill()
        self._process.wait(WAIT_S)


def _output(process: "subprocess.Popen[bytes]") -> bytes:
    out, complaints = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r} failed: {complaints!r}")
    return bytes(out)


def cpu_seconds(process_id: int) -> float:
    """Returns the user and system time that a process has used; see proc_pid_stat(5)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def more_files(count: int) -> None:
    """Lets this process open so many files. Raises Skipped where it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
    except (OSError, ValueError) as error:
        raise Skipped(f"this process may open {hard} files, not {count}: {error}") from None


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait(WAIT_S)
