"""loadtest/clusters/containers.py on a real engine: `make test-containers`.

It needs the image `kcast`, or one that KCAST_IMAGE names, built from this checkout.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.clusters.containers import ContainerCluster
from kcast.loadtest.clusters.engine import OWNER_LABEL, RUN_LABEL, connect, sweep
from kcast.loadtest.clusters.servers import IMAGE, ServerFailed
from tests.support.cluster_suite import ClusterSuite, Owner, answers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.containers

KCAST_IMAGE = os.environ.get("KCAST_IMAGE", IMAGE)


class TestContainers(ClusterSuite):
    """The tests of every backend."""

    backend = partial(ContainerCluster, image=KCAST_IMAGE)


@pytest.fixture
def engine() -> Iterator[Any]:
    """The engine; the test must leave nothing on it."""
    client = connect()
    before = leftovers(client)
    yield client
    assert leftovers(client) == before
    client.close()


def leftovers(engine: Any) -> set[str]:
    """All that container clusters have on the engine."""
    filters = {"label": OWNER_LABEL}
    containers = engine.containers.list(all=True, filters=filters, sparse=True)
    return {each.id for each in (*containers, *engine.networks.list(filters=filters))}


def test_a_server_is_confined(engine: Any) -> None:
    with ContainerCluster(1, ttl_s=2, image=KCAST_IMAGE):
        (container,) = engine.containers.list(filters={"label": OWNER_LABEL})
        config = container.attrs["HostConfig"]
        assert config["ReadonlyRootfs"] is True and config["Privileged"] is False
        assert config["CapDrop"] == ["ALL"] and "no-new-privileges:true" in config["SecurityOpt"]
        assert config["Memory"] > 0 and config["PidsLimit"] > 0
        assert container.attrs["Config"]["User"] == "7400:7400"
        assert not container.attrs["NetworkSettings"]["Ports"].get("7400/udp")


def test_the_taps_belong_to_who_asked_for_them(engine: Any, tmp_path: Path) -> None:
    with ContainerCluster(1, ttl_s=2, image=KCAST_IMAGE, tap_dir=tmp_path) as servers:
        servers.stop()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["server-1-1.tap", "server-1-1.tap.bulk"]
        assert (tmp_path / "server-1-1.tap").stat().st_uid == os.getuid()


def test_two_clusters_do_not_meet(engine: Any) -> None:
    with (
        ContainerCluster(2, ttl_s=2, image=KCAST_IMAGE) as one,
        ContainerCluster(2, ttl_s=2, image=KCAST_IMAGE) as other,
    ):
        assert len({*one.addresses, *other.addresses}) == 4
        one.kill(0)
        assert other.running == (True, True)


def test_what_a_server_says_is_kept_over_its_lives(engine: Any) -> None:
    with ContainerCluster(2, ttl_s=2, image=KCAST_IMAGE) as servers:
        servers.stop()
        servers.restart(0)
        servers.stop()
    logs = servers.logs()
    assert logs["server-1"].count("messages: 0") == 2 and logs["server-2"].count("messages: 0") == 1


def test_a_server_that_ends_by_itself_is_noticed(engine: Any) -> None:
    with ContainerCluster(2, ttl_s=2, image=KCAST_IMAGE) as servers:
        (pid, _) = servers.pids
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: servers.running == (False, True), "it is noticed")
        servers.restart(0, 1)
        assert all(map(answers, servers.addresses))


# What fails.


def test_without_the_image_it_says_how_to_build_it(engine: Any) -> None:
    with (
        pytest.raises(ServerFailed, match="docker build --network host --tag kcast-absent"),
        ContainerCluster(1, ttl_s=2, image="kcast-absent"),
    ):
        pass


def test_a_server_that_is_not_ready_in_time_is_named(engine: Any) -> None:
    with (
        pytest.raises(
            ServerFailed, match=r"server-1 \(.*:7400\) did not start: it did not answer within 0 s"
        ),
        ContainerCluster(1, ttl_s=2, image=KCAST_IMAGE, start_timeout_s=0),
    ):
        pass


# What is left behind: nothing.

PROGRAM = f"""
import sys, time
from kcast.loadtest.clusters.backends import open_servers
print("begun", flush=True)
with open_servers("containers", 5, ttl_s=2, image={KCAST_IMAGE!r}) as servers:
    servers.stall(0)
    servers.isolate(1)
    servers.kill(2)
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("number", "is_up"), [(signal.SIGKILL, True), (signal.SIGTERM, False)])
def test_the_death_of_the_owner_ends_all(engine: Any, number: signal.Signals, is_up: bool) -> None:
    with Owner("containers", PROGRAM) as owner:
        assert owner.process.stdout is not None
        assert owner.process.stdout.readline() == b"begun\n"
        if is_up:
            assert owner.process.stdout.readline() == b"up\n"
            assert len(leftovers(engine)) == 6
        else:
            wait_until(lambda: len(leftovers(engine)) > 2, "there are containers")
        owner.end(number)
        wait_until(lambda: not leftovers(engine), "all is gone")
        # The engine may have been asked for more just before.
        time.sleep(1.5)
        assert not leftovers(engine)


def test_what_owner_and_reaper_leave_is_swept_up(engine: Any) -> None:
    with Owner("containers", PROGRAM) as owner:
        assert owner.process.stdout is not None
        assert [owner.process.stdout.readline() for _ in range(2)] == [b"begun\n", b"up\n"]
        assert sweep(engine) == 0
        pid = owner.process.pid
        tasks = Path(f"/proc/{pid}/task")
        (reaper,) = [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]
        os.kill(int(reaper), signal.SIGKILL)
        owner.end(signal.SIGKILL)
        left = leftovers(engine)
        assert len(left) == 6
        with ContainerCluster(1, ttl_s=2, image=KCAST_IMAGE):
            assert not left & leftovers(engine)


def test_the_reaper_can_be_run_by_hand(engine: Any) -> None:
    cluster = ContainerCluster(1, ttl_s=2, image=KCAST_IMAGE)
    with pytest.raises(ServerFailed), cluster:
        (container,) = engine.containers.list(filters={"label": OWNER_LABEL})
        run = container.labels[RUN_LABEL]
        command = (sys.executable, "-m", "kcast.loadtest.clusters.engine", run)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert not leftovers(engine)
        assert cluster.running == (False,)
        cluster.restart(0)
