"""Which cluster a program means: the one rule for `--cluster`, the variable KCAST_CLUSTER, and `Client(...)`.

What the program or the option says goes before the variable, and the variable before the context in use.

- `@NAME` is a signed list (PROTOCOL §10.8), which is read from this user's state.
- What contains `/` or `.`, or exists, is the path of a cluster file.
- Anything else is a context (`client/clusters/contexts.py`): the path of a cluster file, or `@NAME`.

A signed list is used by its name alone: a file of it would go unchecked. For the same reason no unsigned file
is read that has the name of a signed list which is known here.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Protocol

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters import contexts, watch
from kcast.client.clusters.cluster import Cluster, ClusterError, is_list_name
from kcast.client.clusters.watch import Watch
from kcast.client.events import ListTrouble
from kcast.client.trust.extras import MissingExtra

if TYPE_CHECKING:
    from kcast.client.trust.reach.opening import Opened

CLUSTER_VARIABLE = (
    "KCAST_CLUSTER"  # the environment variable that names the cluster, where a program does not
)

Heads = Callable[[], Mapping[str, str]]


class Source(Protocol):
    """Where a cluster is read from. `name`, in complaints, begins with what led to it, unless that is the
    program: `context prod: /etc/prod.cluster`."""

    @property
    def name(self) -> str:
        """What stands in complaints."""

    def read(self) -> Cluster:
        """Reads the cluster. Raises ClusterError, also where it cannot be read."""

    def refresh(self) -> tuple[ListTrouble, ...]:
        """Fetches a newer signed list where that is due, and waits for it; returns what to tell."""

    def troubles(self) -> tuple[ListTrouble, ...]:
        """Returns what is wrong with the signed list that `read` has returned last. A watch tells it too."""

    def watch(self, cluster: Cluster, now: float, heads: Heads) -> Watch | None:
        """Returns a watch on the cluster that `read` has returned last; None where it cannot change.

        `heads` returns what servers tell of the log of a signed list, by server.
        """


@dataclass(frozen=True, slots=True)
class FileSource:
    """A cluster file, by its absolute path."""

    path: Path
    name: str

    def read(self) -> Cluster:
        """Reads the file. Raises ClusterError, also for a signed one, and for one that should be signed."""
        cluster = clusters.load(self.path, self.name)
        if cluster.is_signed:
            raise ClusterError(f"{self.name}: it is a signed list: {_how_to_use(cluster.name)}")
        if cluster.name and _is_known(cluster.name):
            raise ClusterError(
                f"{self.name}: it is not signed, and {cluster.name} is a signed list here (unsigned): "
                f"{_how_to_use(cluster.name)}"
            )
        return cluster

    def refresh(self) -> tuple[ListTrouble, ...]:
        """Does nothing."""
        return ()

    def troubles(self) -> tuple[ListTrouble, ...]:
        """Returns nothing."""
        return ()

    def watch(self, cluster: Cluster, now: float, heads: Heads) -> Watch | None:
        """Returns a watch on the file; None where it is no plain one."""
        return watch.watch(cluster, now)


class SignedSource:
    """The signed list of a name, from this user's state; at first contact from where that may come from."""

    def __init__(self, list_name: str, led: str = "") -> None:
        if not is_list_name(list_name):
            raise ClusterError(f"{led}@{list_name}: the name of a signed list is such as @example.org/lab")
        self.name = f"{led}@{list_name}"
        self._led = led
        self._list_name = list_name
        self._opened: Opened | None = None

    def read(self) -> Cluster:
        """Opens the list, and returns the cluster in force. Raises ClusterError."""
        try:
            # Slow to import, and it needs an extra.
            from kcast.client.trust.reach.opening import open_list

            self._opened = open_list(self._list_name, int(time()))
        except MissingExtra:
            raise
        except ClusterError as error:
            raise ClusterError(f"{self._led}{error}") from None
        return self._opened.cluster

    def refresh(self) -> tuple[ListTrouble, ...]:
        """Fetches a newer list where that is due, once an hour at most: for programs that soon end."""
        from kcast.client.trust.reach.opening import refresh

        return refresh(self._list_name, int(time()))

    def troubles(self) -> tuple[ListTrouble, ...]:
        """Returns what is wrong with the list: it is stale, has expired, or could not be stored."""
        assert self._opened is not None  # it has been read
        return self._opened.told(int(time()))

    def watch(self, cluster: Cluster, now: float, heads: Heads) -> Watch | None:
        """Returns what keeps the list up to date."""
        from kcast.client.trust.reach.list_watch import ListWatch

        assert self._opened is not None  # it has been read
        return ListWatch(self._opened, now, heads)


def _is_known(list_name: str) -> bool:
    from kcast.client.trust.state import places

    return places.is_known(list_name)


def _how_to_use(list_name: str) -> str:
    first = "" if _is_known(list_name) else ", after 'kcast servers trust URL PIN'"
    return f"use --cluster @{list_name}{first}"


def given(cluster: Cluster | str | Path | None) -> Cluster:
    """Returns a cluster itself, or reads the one that is named, by the rule above.

    Raises ClusterError, and TypeError where something else is given.
    """
    return cluster if isinstance(cluster, Cluster) else named(cluster).read()


def named(name: str | Path | None) -> Source:
    """Returns where the cluster that is meant is read from. Raises as `find`, and where nothing names one."""
    source = find(name)
    if source is None:
        raise ClusterError(
            "no cluster is given: give the path of a cluster file or a context, or set "
            f"{CLUSTER_VARIABLE} to one"
        )
    return source


def find(name: str | Path | None) -> Source | None:
    """Returns where the cluster that is meant is read from; None where nothing names one.

    Raises ClusterError where what is named is not there, and TypeError where it is no name.
    """
    if name is None:
        return _found_elsewhere()
    if isinstance(name, os.PathLike):
        return _file(os.fspath(name))
    if not isinstance(name, str):
        kind = type(name).__name__
        raise TypeError(f"the cluster is of type {kind}: give the path of a cluster file, or a Cluster")
    if not name:
        raise ClusterError("the cluster's name is empty: give the path of a cluster file, or a context")
    return _named(name)


def context_of(name: str | None) -> str | None:
    """Returns the name of the context by which the cluster is found that is meant; None where it is found in
    another way. Raises ContextError."""
    name = name or os.environ.get(CLUSTER_VARIABLE)
    return (None if _is_no_context(name) else name) if name else contexts.in_use()


def _found_elsewhere() -> Source | None:
    if name := os.environ.get(CLUSTER_VARIABLE):
        return _named(name, f"{CLUSTER_VARIABLE}: ")
    if name := contexts.in_use():
        return _context(name, "the context in use: ")
    return None


def _named(name: str, led: str = "") -> Source:
    if name.startswith("@"):
        return SignedSource(name[1:], led)
    return _file(name, led) if _is_no_context(name) else _context(name, led)


def _is_no_context(name: str) -> bool:
    return name.startswith("@") or "/" in name or "." in name or _exists(name)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a name that is too long
        return False


def _context(name: str, led: str) -> Source:
    text = contexts.meaning(name)
    if text is None:
        raise ClusterError(f"{led}{name}: no such file, and no such context{contexts.unknown(name)}")
    return of_context(name, text, led)


def of_context(name: str, text: str, led: str = "") -> Source:
    """Returns what a context means which holds this text; `led` is what led to the context.

    Raises ClusterError where it means nothing.
    """
    led += f"context {name}: "
    return SignedSource(text[1:], led) if text.startswith("@") else _file(text, led)


def _file(path: str, led: str = "") -> Source:
    return FileSource(Path(path).absolute(), f"{led}{path}")
