"""The interface of clusters to test on; `backends.open_servers` opens one.

    with open_servers("processes", 12, ttl_s=60, tap_dir=folder) as servers:
        cluster = servers.cluster(Policy(5, 3, 5))
        servers.kill(0, 7)
        servers.restart(0, 7)
        servers.stop()
        taps = servers.taps

No server outlives its owner, the process that opened it, however that process ends. An owner that has forked
has not ended as long as its child runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from kcast.client.cluster import Cluster, ServerEntry
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.server_names import server_key
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError

IMAGE = "kcast"

UNLIMITED = (
    *("--publish-rate", "0", "--copy-rate", "0", "--egress-rate", "0", "--challenge-rate", "0"),
    *("--capacity", "10000000", "--topics", "10000000", "--topics-per-prefix", "10000000"),
    *("--leases-per-address", "10000000", "--leases-per-prefix", "10000000"),
)
"""Options of `kcast serve` by which servers refuse nothing that a test does."""


class ServerFailed(KcastError, RuntimeError):
    """Servers did not start, or their host or engine failed; the message says why."""


class EngineMissing(KcastError, RuntimeError):
    """No container engine can be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ServerStat:
    """What Linux counts for a server; 0 if it is not known, or if the server does not run.

    In a lab all servers share one process, so each has the CPU time and memory of that process.
    """

    cpu_ns: int = 0  # CPU time since its process began
    rss_bytes: int = 0  # resident memory
    kernel_drops: int = 0  # datagrams that its sockets dropped, since they were opened
    queue_bytes: int = 0  # what waits in its sockets, with the kernel's own overhead


class Servers(Protocol):
    """`len()` servers, numbered from 0; use it with `with`, at whose end none of them is left.

    Methods block. They may be called from any thread, but by one at a time. They take numbers of servers;
    servers already in the requested state are left alone.
    """

    backend: str

    def __enter__(self) -> Self:
        """Starts all servers. Raises ServerFailed, EngineMissing."""

    def __exit__(self, *_: object) -> None:
        """Ends all servers, and removes what they ran in. `taps` and `logs` stay."""

    def __len__(self) -> int:
        """Number of servers, running or not."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The servers' addresses; a restarted server keeps its own."""

    @property
    def names(self) -> tuple[str, ...]:
        """The servers' addresses as text, as in clients' events."""
        return tuple(map(format_address, self.addresses))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys on the ring, `server-1` and so on: so a topic lies on the same servers in each run."""
        return tuple(map(server_key, range(len(self))))

    @property
    def running(self) -> tuple[bool, ...]:
        """Whether each server runs; a stalled one does."""

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Each server's process on this machine, None if it does not run; in a lab the same for all."""

    @property
    def taps(self) -> tuple[tuple[Path, ...], ...]:
        """The tap files of each server, one for each of its lives, as `kcast.pubsub.tap.read_all` takes it.

        They are complete after `stop`, except those of lives that were killed. Empty without a `tap_dir`.
        """

    def cluster(self, policy: Policy | None = None) -> Cluster:
        """Returns the cluster of these servers, as a cluster file would describe it."""
        return lab_cluster(self.addresses, self.keys, policy)

    def kill(self, *indexes: int) -> None:
        """Ends servers at once, as SIGKILL does."""

    def restart(self, *indexes: int) -> None:
        """Starts servers that do not run, at their addresses; returns when all serve. Raises ServerFailed."""

    def stall(self, *indexes: int) -> None:
        """Halts running servers. What is sent to them waits in their sockets."""

    def resume(self, *indexes: int) -> None:
        """Lets stalled servers continue."""

    def isolate(self, *indexes: int) -> None:
        """Cuts servers off from the network until `rejoin`, also those that do not run or are restarted."""

    def rejoin(self, *indexes: int) -> None:
        """Ends the isolation. What was sent meanwhile is lost."""

    def stop(self) -> None:
        """Ends all servers without draining; their taps are written to the end."""

    def logs(self) -> dict[str, str]:
        """Returns what each server has written to standard error in all its lives, by key."""

    def stats(self) -> list[ServerStat]:
        """Returns the current figures of each server."""


def refuse_impossible(count: int, tap_dir: Path | None) -> None:
    """Raises ValueError if there can be no cluster of `count` servers with taps in `tap_dir`."""
    if count < 1:
        raise ValueError(f"count is {count}: a cluster has at least 1 server")
    if tap_dir is not None and not tap_dir.is_dir():
        raise ValueError(f"tap_dir is {tap_dir}: there is no such folder")


def in_order(indexes: Iterable[int], count: int) -> list[int]:
    """Returns these numbers of `count` servers, sorted, each once. Raises IndexError for any other number."""
    return sorted({range(count)[index] for index in indexes})


def lab_cluster(addresses: tuple[Address, ...], keys: tuple[str, ...], policy: Policy | None) -> Cluster:
    """Returns the cluster of servers with these addresses and keys."""
    entries = zip(addresses, keys, strict=True)
    servers = tuple(ServerEntry((address,), key) for address, key in entries)
    return Cluster(servers, policy or Policy(), name="lab", salt=b"kcast", is_lab=True)
