"""A cluster to test on of real servers, one process each, on loopback.

Servers are forked by a host (`process_host`), a child process of the owner. Its standard input is a pipe from
the owner, which the kernel closes however the owner ends; then the host ends its servers and itself.
"""

from typing import ClassVar

from kcast.loadtest.clusters.hosted_servers import HostedServers


class ProcessCluster(HostedServers):
    """`Servers`, each a process of its own on 127.0.0.1, on a port that it keeps when restarted."""

    backend: str = "processes"
    program: ClassVar[str] = "kcast.loadtest.clusters.process_host"
