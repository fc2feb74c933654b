"""Rows in which clients publish and receive: each in a process of its own, taking turns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version

from bench.peers.bench import Bench, rotated
from bench.peers.kinds import NATIVE, NATS, PROGRAMS, PYTHON, kcast
from bench.peers.processes import scratch_folder
from bench.peers.programs.client_load import SATURATED
from bench.peers.results import Figures, RowResult, Subject
from bench.peers.session import Failed
from bench.peers.workloads import Workload
from tests.support.trees import Tree

PACED = "2000"  # messages a second
LOADS = (SATURATED, PACED)
START_S_MAX = 20.0  # beside the time of the load
ANY_WORKLOAD = Workload(topic_count=1, subscriber_count=1, fan_out=1)

NATS_PY, NATS_PY_CALLBACK = "nats-py", "nats-py, callback"
WAYS = {
    "confirm": "kcast-confirm",
    "no confirm": "kcast",
    "callback, no confirm": "kcast-callback",
    "batches": "kcast-batches",
    "batches, confirm": "kcast-batches-confirm",
}
"""How kcast's client is used, and what the program calls that."""


@dataclass(frozen=True)
class Client:
    """A client under load: its name in the row, what the program calls it, its environment, and the servers
    while they run, as its program names them."""

    name: str
    way: str
    environment: Mapping[str, str]
    servers: Callable[[], AbstractContextManager[str]]

    def run(self, load: str, seconds: float) -> Figures:
        """Runs a load, on this process's cores; returns its figures. Raises Failed."""
        with self.servers() as servers:
            return self._run(servers, load, seconds)

    def _run(self, servers: str, load: str, seconds: float) -> Figures:
        program = str(PROGRAMS / "client_load.py")
        command = (sys.executable, program, self.way, servers, load, str(seconds))
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=START_S_MAX + seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"it had not ended after {START_S_MAX + seconds:g} s") from None
        if done.returncode:
            raise Failed(" / ".join(done.stderr.strip().splitlines()[-2:]) or f"exit code {done.returncode}")
        figures: Figures = json.loads(done.stdout)
        return figures


@dataclass(frozen=True)
class ClientRow:
    """Clients with one topic, publishing to themselves by a server of their kind."""

    name: str
    title: str
    tree: Tree
    policy: str
    server_count: int

    def measure(self, bench: Bench) -> RowResult:
        """Measures all clients of the row that there are."""
        result = RowResult(self.title, [NATS_PY])
        with ExitStack() as stack:
            clients = [*self._kcasts(bench), *_nats(stack, result, bench)]
            for number in range(bench.rounds):
                bench.report(f"{self.name}: round {number + 1} of {bench.rounds}")
                for load in LOADS:
                    for client in rotated(clients, number):
                        if client in clients:
                            _try(client, clients, load, result, bench)
        return result

    def _kcasts(self, bench: Bench) -> Iterator[Client]:
        kinds = {PYTHON: {"KCAST_NATIVE": "no"}}
        if self.tree.has_native_client:
            kinds[NATIVE] = {}
        for kind, variables in kinds.items():
            for name, way in WAYS.items():
                environment = self.tree.environment | variables
                yield Client(f"{kind}, {name}", way, environment, lambda: self._serving(bench.cores.server))

    @contextmanager
    def _serving(self, core: int) -> Iterator[str]:
        """New servers, named by a cluster file. They have no leases of clients that ended before: these would
        be sent copies for as long as their leases last, where a broker sees that they are gone."""
        with ExitStack() as stack:
            folder = stack.enter_context(scratch_folder())
            kinds = [kcast(self.tree, f"server {number + 1} of kcast") for number in range(self.server_count)]
            addresses = [
                stack.enter_context(kind.running(ANY_WORKLOAD, (core,))).addresses[0] for kind in kinds
            ]
            lines = "".join(f"server {host}:{port}\n" for host, port in addresses)
            file = folder / "lab.cluster"
            file.write_text(f"kcast-cluster 1\nname lab\npolicy {self.policy}\nlab\n{lines}")
            yield str(file)


def _nats(stack: ExitStack, result: RowResult, bench: Bench) -> Iterator[Client]:
    try:
        bench.versions[NATS_PY] = package_version("nats-py")
    except PackageNotFoundError:
        bench.skipped.setdefault(NATS_PY, "it is not installed: tools/setup peers brings it")
    if NATS_PY in bench.skipped or not bench.present([NATS]):
        result.skipped[NATS_PY] = bench.skipped.get(NATS_PY) or bench.skipped[NATS.name]
        return
    try:
        process = stack.enter_context(NATS.running(ANY_WORKLOAD, (bench.cores.server,)))
    except Failed as error:
        result.skipped[NATS_PY] = str(error)
        return
    host, port = process.addresses[0]
    for name, way in ((NATS_PY, "nats-py"), (NATS_PY_CALLBACK, "nats-py-callback")):
        yield Client(name, way, os.environ, lambda: nullcontext(f"nats://{host}:{port}"))


def _try(client: Client, clients: list[Client], load: str, result: RowResult, bench: Bench) -> None:
    """Runs a client. One that fails is left out: there are no figures of it in this row."""
    try:
        found = client.run(load, bench.seconds)
    except Failed as error:
        clients.remove(client)
        result.subjects.pop(client.name, None)
        result.skipped[client.name] = str(error)
        bench.report(f"{client.name} is skipped in this row: {error}")
        return
    result.subjects.setdefault(client.name, Subject()).loads.setdefault(load, []).append(found)
