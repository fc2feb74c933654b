"""A cluster to test on that has many servers: up to a thousand and more, all in one process, on loopback.

They are the server's own core, sockets, driver and tap, on one event loop. So they share one CPU and one
fate, and there are no real kills: what `kill` ends keeps nothing but its port, and begins anew with
`restart`, but its tap is whole. For questions about many servers, not about how fast one is.
"""

import re
from typing import ClassVar

from kcast.loadtest.clusters.hosted import HostedServers

_LABELLED = re.compile(r"kcast serve (server-\d+): ")


class LabCluster(HostedServers):
    """As `ProcessCluster`, but all servers share a process, and `pids` and `stats` tell of that.

    `logs` has what that process said of no single server under the key `lab`, if there is any. Options that
    need a process for each server, `--metrics` and `--log json`, are refused.
    """

    backend: str = "lab"
    program: ClassVar[str] = "kcast.loadtest.clusters.lab_host"

    def logs(self) -> dict[str, str]:
        """What each server has said on standard error, in all its lives."""
        said: dict[str, str] = dict.fromkeys(self.keys, "")
        for line in self.host_errors().splitlines(keepends=True):
            label = _LABELLED.match(line)
            key = label[1] if label else "lab"
            said[key] = said.get(key, "") + line
        return said
