"""loadtest/clusters/backends.py: opens the backends by their names."""

from pathlib import Path

import pytest

from kcast.loadtest.clusters.backends import LabCluster, open_servers
from kcast.loadtest.clusters.containers import ContainerCluster
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import Servers


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("processes", ProcessCluster), ("lab", LabCluster), ("containers", ContainerCluster)],
)
def test_each_backend_has_a_name(backend: str, kind: type[Servers], tmp_path: Path) -> None:
    servers = open_servers(backend, 3, ttl_s=60, options=("--open",), tap_dir=tmp_path, image="other")
    assert type(servers) is kind
    assert servers.backend == backend
    assert len(servers) == 3 and servers.keys == ("server-1", "server-2", "server-3")
    # Nothing has started yet, and nothing ends that has not.
    assert servers.running == (False,) * 3
    assert servers.pids == (None,) * 3
    assert servers.taps == ((),) * 3


def test_a_backend_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="backend is 'file': use processes, lab or containers"):
        open_servers("file", 3, ttl_s=60)
