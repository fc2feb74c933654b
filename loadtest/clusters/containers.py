"""A cluster to test on of containers: the image of compose.yaml, with the same restrictions.

    with ContainerCluster(12, ttl_s=60) as servers:
        ...

The containers have a network and addresses of their own, which this machine reaches directly: the Docker
engine must run on this machine, on Linux. `isolate` disconnects a server from its network, `stall` pauses its
container.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Self

from kcast.loadtest.clusters.engine import RUN_LABEL, connect, engine_errors, in_parallel, labels, sweep
from kcast.loadtest.clusters.server_names import server_key, tap_path
from kcast.loadtest.clusters.server_stats import read_sockets, stat_of
from kcast.loadtest.clusters.servers import (
    IMAGE,
    ServerFailed,
    Servers,
    ServerStat,
    in_order,
    refuse_impossible,
)
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.limits import REQUEST_BYTES_MIN
from kcast.pubsub.tap import bulk_path
from kcast.pubsub.tap_files import FILES_MAX, numbered

START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10
_REAPER_TIMEOUT_S = 120.0
_PORT = 7400
_FIRST_HOST = 2  # the network's first address belongs to this machine
_NETWORK_TRIES = 5
_PING_INTERVAL_S = 0.05
_LOOK_INTERVAL_S = 0.5
_LOG_LINES = 12
_TAPS = "/taps"
_MEMORY = "512m"
_PROCESSES = 64
_NANO_CPUS = 10**9


class ContainerCluster(Servers):
    """`Servers` in containers of `image`; they write taps to `tap_dir`, which the engine must see."""

    backend: str = "containers"

    def __init__(
        self,
        count: int,
        *,
        ttl_s: int,
        options: tuple[str, ...] = (),
        tap_dir: Path | None = None,
        image: str = IMAGE,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        refuse_impossible(count, tap_dir)
        # All clients are in one /24, that of this machine.
        own = (
            *("--host", "0.0.0.0", "--port", str(_PORT), "--ttl", str(ttl_s)),
            *("--leases-per-prefix", "1000000", "--topics-per-prefix", "1000000"),
        )
        self._command = ("serve", *own, *options)
        self._tap_dir = None if tap_dir is None else tap_dir.absolute()
        self._image = image
        self._start_timeout_s = start_timeout_s
        self._run = secrets.token_hex(6)
        self._servers = [_ServerContainer(index) for index in range(count)]
        self._client: Any = None
        self._network: Any = None
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._client = connect()
        try:
            with engine_errors():
                self._check_image()
                sweep(self._client)
                self._reaper = _start_reaper(self._run)
                self._network = self._create_network()
                in_parallel(self._create, self._servers)
            self.restart(*range(len(self)))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # It may fail because the engine has failed; the reaper removes the containers in any case.
            with suppress(ServerFailed):
                self.kill(*range(len(self)))
                self.logs()
        finally:
            self._end()

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses at which this machine reaches the servers."""
        return tuple(server.address for server in self._servers)

    @property
    def running(self) -> tuple[bool, ...]:
        """Whether each server runs."""
        self._look()
        return tuple(server.is_running for server in self._servers)

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Each server's process; None if it does not run, or this machine cannot see it."""
        self._look()
        return tuple(server.process_id for server in self._servers)

    @property
    def taps(self) -> tuple[tuple[Path, ...], ...]:
        """The tap files of each server's lives that have ended."""
        return tuple(tuple(server.taps) for server in self._servers)

    def kill(self, *indexes: int) -> None:
        """Ends servers with SIGKILL."""
        self._finish([server for server in self._chosen(indexes) if server.is_running], "SIGKILL")

    def restart(self, *indexes: int) -> None:
        """Starts the containers of servers that do not run; returns when all answer. Raises ServerFailed."""
        starting = [server for server in self._chosen(indexes) if not server.is_running]
        try:
            with engine_errors():
                in_parallel(_ServerContainer.start, starting)
                self._await_ready(starting)
        except BaseException:
            with suppress(ServerFailed):
                self._finish(starting, "SIGKILL")
            raise

    def stall(self, *indexes: int) -> None:
        """Pauses the containers of servers."""
        chosen = [each for each in self._chosen(indexes) if each.is_running and not each.is_stalled]
        with engine_errors():
            in_parallel(_ServerContainer.stall, chosen)

    def resume(self, *indexes: int) -> None:
        """Lets stalled servers continue."""
        with engine_errors():
            in_parallel(_ServerContainer.resume, [each for each in self._chosen(indexes) if each.is_stalled])

    def isolate(self, *indexes: int) -> None:
        """Disconnects servers from the network."""

        def disconnect(server: _ServerContainer) -> None:
            self._network.disconnect(server.container)
            server.is_isolated = True

        with engine_errors():
            in_parallel(disconnect, [each for each in self._chosen(indexes) if not each.is_isolated])

    def rejoin(self, *indexes: int) -> None:
        """Connects isolated servers again, at their addresses; returns when those that run answer."""

        def connect_again(server: _ServerContainer) -> None:
            self._network.connect(server.container, ipv4_address=server.address[0])
            server.is_isolated = False

        chosen = [each for each in self._chosen(indexes) if each.is_isolated]
        with engine_errors():
            in_parallel(connect_again, chosen)
            self._await_ready([each for each in chosen if each.is_running and not each.is_stalled])

    def stop(self) -> None:
        """Ends all servers without draining; their taps are written to the end."""
        running = [server for server in self._chosen(range(len(self))) if server.is_running]
        self._finish(running, "SIGINT")  # ends a server without draining

    def logs(self) -> dict[str, str]:
        """Returns what each server has written to standard error in all its lives, by key."""
        if self._client is not None:
            with engine_errors():
                in_parallel(
                    _ServerContainer.read_log, [each for each in self._servers if each.container is not None]
                )
        return {server.key: server.log for server in self._servers}

    def stats(self) -> list[ServerStat]:
        """Returns the current figures of each server whose process this machine can see; 0 for the others."""
        return [
            ServerStat()
            if server.process_id is None
            else stat_of(server.process_id, [server.address], read_sockets(server.process_id))
            for server in self._servers
        ]

    # --- Beginning -----------------------------------------------------------------------------------

    def _check_image(self) -> None:
        import docker

        try:
            self._client.images.get(self._image)
        except docker.errors.ImageNotFound:
            raise ServerFailed(
                f"the Docker engine has no image {self._image}; in a checkout of kcast run: "
                f"docker build --network host --tag {self._image} ."
            ) from None

    def _create_network(self) -> Any:
        """Creates a network with fixed addresses, in a subnet that the engine has free."""
        import docker

        name = f"kcast-load-{self._run}"
        for tries_left in reversed(range(_NETWORK_TRIES)):
            found = self._client.networks.create(f"{name}-probe", driver="bridge", labels=labels(self._run))
            try:
                found.reload()
                subnet = found.attrs["IPAM"]["Config"][0]["Subnet"]
            finally:
                found.remove()
            pool = docker.types.IPAMPool(subnet=subnet)
            try:
                network = self._client.networks.create(
                    name,
                    driver="bridge",
                    labels=labels(self._run),
                    ipam=docker.types.IPAMConfig(pool_configs=[pool]),
                )
            except docker.errors.APIError:
                if not tries_left:  # otherwise another program took this subnet meanwhile
                    raise
                continue
            hosts = ip_network(subnet)
            if len(self) + _FIRST_HOST + 1 > hosts.num_addresses:
                raise ServerFailed(f"the Docker engine's networks, as {subnet}, have no room for {len(self)}")
            for server in self._servers:
                server.address = (str(hosts[_FIRST_HOST + server.index]), _PORT)
            return network
        raise AssertionError("unreachable")

    def _create(self, server: "_ServerContainer") -> None:
        api = self._client.api
        endpoint = api.create_endpoint_config(ipv4_address=server.address[0])
        command, mounts, user = list(self._command), [], None
        if self._tap_dir is not None:
            server.tap_dir = self._tap_dir
            command += ["--tap", f"{_TAPS}/{server.live_tap.name}"]
            mounts = [_bind(self._tap_dir)]
            user = self._user()
        server.container = self._client.containers.create(
            self._image,
            command,
            name=f"kcast-load-{self._run}-{server.key}",
            labels=labels(self._run),
            network=self._network.name,
            networking_config={self._network.name: endpoint},
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit=_MEMORY,
            pids_limit=_PROCESSES,
            nano_cpus=_NANO_CPUS,
            healthcheck={"test": ["NONE"]},
            user=user,
            mounts=mounts,
        )

    def _user(self) -> str:
        """The user that may write where this process may: root, in an engine that is rootless."""
        is_rootless = any("rootless" in each for each in self._client.info().get("SecurityOptions") or ())
        return "0:0" if is_rootless else f"{os.getuid()}:{os.getgid()}"

    def _await_ready(self, starting: "list[_ServerContainer]") -> None:
        waiting = {server.address: server for server in starting}
        deadline = time.monotonic() + self._start_timeout_s
        look_at = 0.0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(_PING_INTERVAL_S)
            while waiting:
                for address, server in list(waiting.items()):
                    if server.is_isolated:
                        if server.has_said_ready():
                            del waiting[address]
                        continue
                    with suppress(OSError):  # no way to it yet
                        peer.sendto(b"%~ ready".ljust(REQUEST_BYTES_MIN, b"\n"), address)
                with suppress(TimeoutError):
                    while waiting:
                        said, source = peer.recvfrom(2048)
                        if said.startswith(b"%: ready "):
                            waiting.pop(source, None)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_INTERVAL_S
                    self._look()
                    for server in waiting.values():
                        if not server.is_running:
                            raise server.failure(f"ended with exit code {server.exit_code()}")
                if waiting and time.monotonic() >= deadline:
                    late = next(iter(waiting.values()))
                    raise late.failure(
                        f"did not answer within {self._start_timeout_s:g} s; its container has to be reached "
                        "at its own address, as on Linux, with the engine on this machine"
                    )

    # --- Ending --------------------------------------------------------------------------------------

    def _finish(self, servers: "list[_ServerContainer]", signal_name: str) -> None:
        with engine_errors():
            in_parallel(lambda server: server.finish(signal_name), servers)

    def _end(self) -> None:
        """Makes the reaper remove everything. Raises ServerFailed if something stays."""
        reaper, self._reaper = self._reaper, None
        if self._client is not None:
            self._client.close()
            self._client = None
        for server in self._servers:
            server.has_gone()
        if reaper is None:
            return
        try:
            _, said = reaper.communicate(b"end", timeout=_REAPER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"containers of run {self._run} are still being removed") from None
        if reaper.returncode:
            left = said.decode(errors="replace").strip()
            raise ServerFailed(
                f"not all containers and networks with the label {RUN_LABEL}={self._run} were removed: {left}"
            )

    # --- State ---------------------------------------------------------------------------------------

    def _chosen(self, indexes: Iterable[int]) -> "list[_ServerContainer]":
        numbers = in_order(indexes, len(self))
        self._look()
        return [self._servers[number] for number in numbers]

    def _look(self) -> None:
        """Updates the state of all containers, by one request."""
        if self._client is None:
            return
        with engine_errors():
            listed = self._client.api.containers(all=True, filters={"label": f"{RUN_LABEL}={self._run}"})
        states = {each["Id"]: each["State"] for each in listed}
        for server in self._servers:
            if server.container is not None:
                server.take_state(states.get(server.container.id, ""))


class _ServerContainer:
    """One server: its container, which is started once for each life, and the state that is known of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.key = server_key(index)
        self.address: Address = ("", 0)
        self.container: Any = None
        self.tap_dir: Path | None = None
        self.taps: list[Path] = []
        self.lives = 0
        self.log = ""
        self.is_running = False
        self.is_stalled = False
        self.is_isolated = False
        self.process_id: int | None = None

    @property
    def live_tap(self) -> Path:
        """The tap that its container writes, in each of its lives."""
        assert self.tap_dir is not None
        return self.tap_dir / f"{self.key}.tap"

    def start(self) -> None:
        self._keep_tap()
        self.container.start()
        self.lives += 1
        self.container.reload()
        self.process_id = _on_this_machine(self.container)
        self.is_running = True

    def take_state(self, state: str) -> None:
        """Takes the state that the engine reports for its container."""
        self.is_running = state in ("running", "paused")
        self.is_stalled = state == "paused"
        if not self.is_running:
            self.process_id = None

    def stall(self) -> None:
        self.container.pause()
        self.is_stalled = True

    def resume(self) -> None:
        self.container.unpause()
        self.is_stalled = False

    def finish(self, signal_name: str) -> None:
        """Ends this life, whatever state it is in."""
        import docker

        with suppress(docker.errors.NotFound):
            if self.is_stalled:
                self.container.unpause()
            with suppress(docker.errors.APIError):  # it has ended just now
                self.container.kill(signal=signal_name)
            try:
                self.container.wait(timeout=_STOP_TIMEOUT_S)
            except OSError:
                self.container.kill()
                self.container.wait()
        self.has_gone()
        self._keep_tap()

    def has_gone(self) -> None:
        self.is_running = self.is_stalled = False
        self.process_id = None

    def read_log(self) -> None:
        self.log = self.container.logs(stdout=False, stderr=True).decode(errors="replace")

    def has_said_ready(self) -> bool:
        """Whether it has logged that it serves in this life, too."""
        said: bytes = self.container.logs(stdout=True, stderr=False)
        return said.count(b"serving on ") >= self.lives

    def exit_code(self) -> int:
        self.container.reload()
        return int(self.container.attrs["State"]["ExitCode"])

    def failure(self, what: str) -> ServerFailed:
        lines = self.container.logs(stdout=False, stderr=True, tail=_LOG_LINES).decode(errors="replace")
        where = f"{self.key} ({format_address(self.address)})"
        return ServerFailed("\n  ".join([f"{where} did not start: it {what}", *lines.splitlines()]))

    def _keep_tap(self) -> None:
        """Renames the tap of a life that has ended."""
        if self.tap_dir is None or not self.live_tap.exists():
            return
        kept = tap_path(self.tap_dir, self.index, self.lives)
        for live, its_kept in ((self.live_tap, kept), (bulk_path(self.live_tap), bulk_path(kept))):
            for number in range(FILES_MAX):
                with suppress(FileNotFoundError):
                    numbered(live, number).rename(numbered(its_kept, number))
        self.taps.append(kept)


def _bind(folder: Path) -> Any:
    import docker

    return docker.types.Mount(_TAPS, str(folder), type="bind")


def _on_this_machine(container: Any) -> int | None:
    """The container's process on this machine; None if this machine cannot see it."""
    process_id = int(container.attrs["State"]["Pid"])
    try:
        groups = Path(f"/proc/{process_id}/cgroup").read_text("ascii", "replace")
    except OSError:
        return None
    return process_id if container.id in groups else None


def _start_reaper(run: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        (sys.executable, "-P", "-m", "kcast.loadtest.clusters.engine", run),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Ctrl-C, or the end of the owner's process group, must not end the reaper too.
        start_new_session=True,
    )
