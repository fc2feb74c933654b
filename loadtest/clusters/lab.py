"""A cluster to test on of many servers, up to a thousand and more, all in one process on loopback.

Each has a server's real core, sockets, driver and tap, on one event loop. So they share one CPU, end
together, and are never really killed: a server that is ended by `kill` loses all but its port, but its tap is
complete. It is for questions about many servers, not about the speed of one.
"""

import re
from typing import ClassVar

from kcast.loadtest.clusters.hosted_servers import HostedServers

_LABELLED = re.compile(r"(?:\S+ )?kcast serve (server-\d+): ")


class LabCluster(HostedServers):
    """`Servers` that share a process, which is the one in `pids` and `stats` of each.

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
