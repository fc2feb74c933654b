from collections.abc import Iterator

import pytest

from kcast.client.cluster import Cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One real server."""
    with ProcessCluster(1, ttl_s=60) as processes:
        yield processes.cluster(Policy(1, 1, 1))
