"""Watches a cluster file, so that a client adopts what changes in it. PROTOCOL §10.3.

A file that is being written may be a sound one at any moment, with fewer servers. So a change is read only
once the file has stayed as it is for a while; whoever replaces it at once, by a rename, avoids that at all.

What follows a signed list is a `Watch`, too, and uses topics of its own (`Listen`, `Say`).
"""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.client.clusters.facts import ListState
from kcast.client.clusters.view import View
from kcast.client.events import ClusterRefused, Event
from kcast.pubsub.errors import KcastError

LOOK_INTERVAL_S = 10.0
SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Change:
    """Another cluster to go by: from a time in seconds since 1970, or at once.

    `view` is the view of it, where it is made already: of many servers that takes long.
    """

    cluster: Cluster
    from_unix_s: float | None = None
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The cluster must not be used any more, and there is no other."""

    error: KcastError


@dataclass(frozen=True, slots=True)
class Listen:
    """The topics of kcast's own to be subscribed to from now on, and no others; `Watch.hear` gets what
    comes on them."""

    topics: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """A message on one of kcast's own topics, to be published."""

    topic: bytes
    payload: bytes


News = Change | Stop | Listen | Say | Event


class Watch(Protocol):
    """Looks now and then whether the cluster is another one. `look_at` is when it is to be asked again."""

    look_at: float

    def look(self, now: float) -> Sequence[News]:
        """Returns what is new."""

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Takes a message on one of kcast's own topics."""

    def state(self) -> ListState | None:
        """Returns what is known of a signed list; None of an unsigned file."""

    def close(self) -> None:
        """Ends what is under way."""


def watch(cluster: Cluster, now: float) -> "FileWatch | None":
    """Returns a watch on the file that a cluster was read from; None where it is no plain file."""
    if cluster.path is None or cluster.is_signed or not cluster.path.is_file():
        return None
    return FileWatch(cluster, cluster.path, now)


class FileWatch:
    """Looks at a file now and then. `look_at` is when it is to be asked again."""

    def __init__(self, cluster: Cluster, path: Path, now: float) -> None:
        self.look_at = now + LOOK_INTERVAL_S
        self._cluster = cluster
        self._path = path
        # That of the file as it was read is not known: it may have changed since. So it is read again once.
        self._read: object = "not known"
        self._seen: object = "not known"

    def look(self, now: float) -> Sequence[Change | ClusterRefused]:
        """Returns the cluster that the file says, or why it is refused, where that is news."""
        if now < self.look_at:
            return ()
        before, self._seen = self._seen, _state_of(self._path)
        if self._seen == self._read:
            self.look_at = now + LOOK_INTERVAL_S
            return ()
        if self._seen != before:
            self.look_at = now + SETTLE_S
            return ()
        self._read = self._seen
        self.look_at = now + LOOK_INTERVAL_S
        try:
            cluster = self._sound_news()
        except ClusterError as error:
            return (ClusterRefused(str(error)),)
        return () if cluster is None else (Change(cluster),)

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Does nothing: nobody talks of an unsigned file."""

    def state(self) -> None:
        """Returns None."""

    def close(self) -> None:
        """Does nothing."""

    def _sound_news(self) -> Cluster | None:
        """Returns the cluster that the file says where it is another one. Raises ClusterError."""
        try:
            is_plain = stat.S_ISREG(self._path.stat().st_mode)
        except OSError as error:  # such as a folder that may not be searched, or a mount that is gone
            raise ClusterError(f"{self._path}: {error.strerror or error}") from None
        if not is_plain:
            raise ClusterError(f"{self._path}: no plain file any more")  # to read a pipe could last for ever
        cluster = clusters.load(self._path)
        if cluster.is_signed:
            raise ClusterError(f"{self._path}: it is signed now: restart the client to use it")
        if cluster.name != self._cluster.name:
            names = f"{cluster.name!r}, and not {self._cluster.name!r}"
            raise ClusterError(f"{self._path}: it is the cluster {names} now: restart the client to use it")
        if cluster == self._cluster:
            return None
        self._cluster = cluster
        return cluster


def _state_of(path: Path) -> object:
    """What tells one content of a file from another; None where there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return stat.S_IFMT(found.st_mode), found.st_mtime_ns, found.st_size, found.st_ino
