"""client/clusters/watch.py: what becomes of a cluster file on disk, under a clock of the test's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kcast.client import cluster as clusters
from kcast.client.cluster import Cluster, parse
from kcast.client.clusters.watch import LOOK_INTERVAL_S, SETTLE_S, Change, FileWatch, watch
from kcast.client.events import ClusterRefused

ONE = "kcast-cluster 1\nname a\nserver 192.0.2.1:1\n"
TWO = ONE + "server 192.0.2.2:1\n"
WORDS = "version 1\ntrust 1\nvalid-after 1\nfresh-until 1\nvalid-until 1\nmin-servers 1\n"
SIGNED = f"{ONE}{WORDS}\n\N{EM DASH} s\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.cluster"
    path.write_text(ONE)
    return path


def watching(path: Path) -> FileWatch:
    found = watch(clusters.load(path), 0.0)
    assert found is not None
    return found


def looked(
    watch: FileWatch, until: float, meanwhile: Callable[[float], None] = lambda now: None
) -> list[object]:
    """What it tells when it is asked each second until then, from now on."""
    told: list[Change | ClusterRefused] = []
    for now in range(int(watch.look_at), int(until) + 1):
        meanwhile(now)
        told += watch.look(float(now))
    return [each.cluster if isinstance(each, Change) else each for each in told]


def test_file_that_stays_is_no_news(path: Path) -> None:
    assert looked(watching(path), 100) == []


def test_change_is_told_once_and_within_a_minute(path: Path) -> None:
    watch = watching(path)
    assert looked(watch, 30) == []
    path.write_text(TWO)
    assert looked(watch, 30 + LOOK_INTERVAL_S + SETTLE_S + 1) == [parse(TWO)]
    assert looked(watch, 200) == []
    path.write_text(ONE)
    assert looked(watch, 220) == [parse(ONE)]


def test_file_that_is_replaced_by_a_rename_is_seen_whatever_its_date(path: Path, tmp_path: Path) -> None:
    """As Kubernetes does it, by way of a link; and with the size and the time of the old one."""
    watch = watching(path)
    looked(watch, 30)
    before = path.stat()
    other = tmp_path / "other"
    other.write_text(ONE.replace("2.1:1", "2.3:1"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    (told,) = looked(watch, 60)
    assert isinstance(told, Cluster) and told.servers[0].name == "192.0.2.3:1"


def test_file_that_is_being_written_is_not_read(path: Path) -> None:
    """With some of its lines it would be a sound cluster of fewer servers."""
    watch = watching(path)
    looked(watch, 30)
    lines = [f"server 192.0.2.{n}:1\n" for n in range(2, 9)]

    def write(now: float) -> None:
        if lines:
            with path.open("a") as file:
                file.write(lines.pop(0))

    told = looked(watch, 60, write)
    assert told == [parse(path.read_text())] and not lines


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kcast-cluster 1\nsrever\n", "a.cluster:2: expected one of"),
        ("", "a.cluster:1: expected 'kcast-cluster 1'"),
        (
            TWO.replace("name a", "name b"),
            "it is the cluster 'b', and not 'a' now: restart the client to use it",
        ),
        (SIGNED, "it is signed now: restart the client to use it"),
    ],
)
def test_what_is_not_adopted_is_told_once_with_the_reason(path: Path, text: str, reason: str) -> None:
    watch = watching(path)
    looked(watch, 30)
    path.write_text(text)
    (told,) = looked(watch, 100)
    assert isinstance(told, ClusterRefused) and reason in told.reason
    path.write_text(ONE)
    assert looked(watch, 200) == [], "the one that it has is no news"
    path.write_text(TWO)
    assert looked(watch, 300) == [parse(TWO)]


def test_file_that_is_gone_is_told_once_until_it_is_back(path: Path) -> None:
    watch = watching(path)
    looked(watch, 30)
    path.unlink()
    (told,) = looked(watch, 100)
    assert isinstance(told, ClusterRefused) and "No such file" in told.reason
    path.write_text(TWO)
    assert looked(watch, 200) == [parse(TWO)]


def test_pipe_in_its_place_is_never_waited_for(path: Path) -> None:
    watch = watching(path)
    looked(watch, 30)
    path.unlink()
    os.mkfifo(path)
    (told,) = looked(watch, 100)
    assert isinstance(told, ClusterRefused) and "no plain file any more" in told.reason


def test_what_cannot_change_or_is_signed_is_not_watched(path: Path) -> None:
    assert watch(parse(ONE), 0.0) is None
    path.write_text(SIGNED)
    assert watch(clusters.load(path), 0.0) is None
    cluster = clusters.load(path)
    path.unlink()
    os.mkfifo(path)
    assert watch(cluster, 0.0) is None
