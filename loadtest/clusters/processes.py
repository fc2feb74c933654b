"""A cluster to test on: real servers, one process each, on loopback.

    with ProcessCluster(12, ttl_s=4) as servers:
        cluster = servers.cluster(Policy(5, 3, 5))
        servers.kill(0, 7)
        servers.restart(0, 7)

No server outlives the process that started it, however that one ends: it has a child, the host, whose
standard input is a pipe from it, and all end when that does. When the owner is killed, the kernel closes it.
"""

from typing import ClassVar

from kcast.loadtest.clusters.hosted import HostedServers


class ProcessCluster(HostedServers):
    """`count` servers with leases of `ttl_s` seconds, each a host of its own on the ring; use it with `with`.

    Their keys are `server-1`, `server-2` ..., so that topics lie on the same servers whatever ports were
    free. `options` are further ones for `kcast serve`; with `tap_dir`, each life of a server has a tap there.
    Methods block, and may be called from any thread, but from one at a time. Raises ServerFailed where a
    server does not start.
    """

    backend: str = "processes"
    program: ClassVar[str] = "kcast.loadtest.clusters.process_host"
