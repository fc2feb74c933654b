"""Opens a cluster to test on, by the name of its backend: processes, lab or containers."""

import re
from pathlib import Path
from typing import ClassVar

from kcast.loadtest.clusters.hosted_servers import HostedServers
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import IMAGE, Servers


def open_servers(
    backend: str,
    count: int,
    *,
    ttl_s: int,
    options: tuple[str, ...] = (),
    tap_dir: Path | None = None,
    image: str = IMAGE,
) -> Servers:
    """Returns `count` servers with leases of `ttl_s` seconds; they start at the beginning of the `with`.

    `options` are passed to `kcast serve`. With `tap_dir`, a folder that exists, each life of a server writes
    a tap there. `image` is for containers only. Raises ValueError if there can be no such cluster.
    """
    if backend == "processes":
        return ProcessCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir)
    if backend == "lab":
        return LabCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir)
    if backend == "containers":
        # Imported here: containers need a library that the others do not.
        from kcast.loadtest.clusters.containers import ContainerCluster

        return ContainerCluster(count, ttl_s=ttl_s, options=options, tap_dir=tap_dir, image=image)
    raise ValueError(f"backend is {backend!r}: use processes, lab or containers")


_LABELLED = re.compile(r"(?:\S+ )?kcast serve (server-\d+): ")


class LabCluster(HostedServers):
    """`Servers` that all share one process: many of them, up to a thousand and more. It is the one in `pids`
    and `stats` of each.

    Each has a server's real core, sockets, driver and tap, on one event loop. So they share one CPU, end
    together, and are never really killed: a server that is ended by `kill` loses all but its port, but its
    tap is complete. They are for questions about many servers, not about the speed of one.

    `logs` has what that process wrote that belongs to no server under the key `lab`, if there is any. Options
    that need a process per server, `--metrics` and `--log json`, are refused.
    """

    backend: str = "lab"
    program: ClassVar[str] = "kcast.loadtest.clusters.lab_host"

    def logs(self) -> dict[str, str]:
        """Returns what each server has written to standard error in all its lives, by key."""
        said: dict[str, str] = dict.fromkeys(self.keys, "")
        for line in self.host_errors().splitlines(keepends=True):
            label = _LABELLED.match(line)
            key = label[1] if label else "lab"
            said[key] = said.get(key, "") + line
        return said
