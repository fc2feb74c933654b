"""The fixture `kcast_cluster`: pytest finds it by itself where kcast is installed.

Whoever does not use it pays nothing: servers and clients are imported by the first test that asks for it.
"""

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addhooks(pluginmanager: Any) -> None:
    """Lets kcast be imported as ever. pytest compiles anew each package with a plugin, for its asserts, which
    makes an import take up to four times as long; it has no public way to say no."""
    getattr(pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("kcast")


@pytest.fixture
def kcast_cluster() -> Iterator[Any]:
    """Three servers in this process, ready until the test ends, as the `cluster` of a Client.

    It is a `kcast.testing.LocalCluster`: `kill(0)` ends the first of them, and `restart(0)` starts it again.
    """
    from kcast.testing import local_cluster

    with local_cluster() as cluster:
        yield cluster
