"""Servers to test on, whatever they run in: what all backends offer.

    with open_servers("processes", 12, ttl_s=60, tap_dir=folder) as servers:
        cluster = servers.cluster(Policy(5, 3, 5))
        servers.kill(0, 7)
        servers.restart(0, 7)
        servers.stop()
        taps = servers.taps

No server outlives its owner, the process that opened them, however that one ends. An owner that forks, and
whose child lives on, has not ended.
"""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kcast.client.cluster import Cluster, ServerEntry
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from kcast.pubsub.errors import KcastError

IMAGE = "kcast"


class ServerFailed(KcastError, RuntimeError):
    """Servers that did not start; the message says why, and holds the end of what one said."""


class EngineMissing(KcastError, RuntimeError):
    """No container engine can be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ServerStat:
    """What the system counts for a server; 0 where that is not known, or it does not run.

    In a lab all servers have one process, whose figures each of them tells.
    """

    cpu_ns: int = 0  # since its process began
    rss_bytes: int = 0
    kernel_drops: int = 0  # of its sockets, since they were opened
    queue_bytes: int = 0  # what waits in its sockets, with what the kernel needs to keep it


class Servers(Protocol):
    """`len()` servers, numbered from 0; use it with `with`, at whose end none of them is left.

    Methods block, and may be called from any thread, but from one at a time. They take the numbers of
    servers, and leave those alone that are as wanted already.
    """

    backend: str

    def __enter__(self) -> Self:
        """Starts all. Raises ServerFailed, EngineMissing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends all, and removes what they ran in. `taps` and `logs` stay."""

    def __len__(self) -> int:
        """How many there are, running or not."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where they are reached; they keep that when restarted."""

    @property
    def names(self) -> tuple[str, ...]:
        """The addresses as clients' events name them."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Their keys on the ring, `server-1` and so on, so that topics lie on the same ones in each run."""

    @property
    def running(self) -> tuple[bool, ...]:
        """Which of them live; a stalled one does."""

    @property
    def pids(self) -> tuple[int | None, ...]:
        """The processes on this machine, of those that run; in a lab the same for all."""

    @property
    def taps(self) -> tuple[tuple[Path, ...], ...]:
        """Of each server the tap file of each of its lives, as `kcast.pubsub.tap.read_all` takes it.

        They are whole after `stop`, but for those of lives that were killed. Empty without a `tap_dir`.
        """

    def cluster(self, policy: Policy | None = None) -> Cluster:
        """What a cluster file for these servers would say."""

    def kill(self, *indexes: int) -> None:
        """Ends servers at once, as SIGKILL does: they can say and do nothing more."""

    def restart(self, *indexes: int) -> None:
        """Starts servers that do not run, where they were; returns when all serve. Raises ServerFailed."""

    def stall(self, *indexes: int) -> None:
        """Halts servers that run. What is sent to them waits in their sockets."""

    def resume(self, *indexes: int) -> None:
        """Lets stalled servers go on."""

    def isolate(self, *indexes: int) -> None:
        """Cuts servers off from the network, until `rejoin`, whether they run, or are restarted meanwhile."""

    def rejoin(self, *indexes: int) -> None:
        """Ends the isolation. What was sent meanwhile is lost."""

    def stop(self) -> None:
        """Ends all in order, at once but with their taps written to the end."""

    def logs(self) -> dict[str, str]:
        """What each server, by its key, has said on standard error, in all its lives."""

    def stats(self) -> list[ServerStat]:
        """Of each server, now."""


def refuse_impossible(count: int, tap_dir: Path | None) -> None:
    """Raises ValueError where there can be no cluster of `count` servers with taps in `tap_dir`."""
    if count < 1:
        raise ValueError(f"count is {count}: a cluster has at least 1 server")
    if tap_dir is not None and not tap_dir.is_dir():
        raise ValueError(f"tap_dir is {tap_dir}: there is no such folder")


def lab_cluster(addresses: tuple[Address, ...], keys: tuple[str, ...], policy: Policy | None) -> Cluster:
    """The cluster of servers with these addresses and keys."""
    entries = zip(addresses, keys, strict=True)
    servers = tuple(ServerEntry((address,), key) for address, key in entries)
    return Cluster(servers, policy or Policy(), name="lab", salt=b"kcast", is_lab=True)
