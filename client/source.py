"""Which cluster a program means: the one rule for `--cluster`, the variable KCAST_CLUSTER, and `Client(...)`.

What the program or the option says goes before the variable, and the variable before the context in use.

- `@NAME` is a signed list. This version has none, and says so.
- What contains `/` or `.`, or exists, is the path of a cluster file.
- Anything else is a context (`kcast.client.contexts`), which holds the path of a cluster file.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from kcast.client import cluster as clusters
from kcast.client import contexts
from kcast.client.cluster import Cluster, ClusterError

CLUSTER_VARIABLE = (
    "KCAST_CLUSTER"  # the environment variable that names the cluster, where a program does not
)


@dataclass(frozen=True, slots=True)
class Source:
    """The file that a cluster is read from: its absolute path, and its name in complaints.

    The name begins with what led to the file, unless that is the program: `context prod: /etc/prod.cluster`.
    """

    path: Path
    name: str

    def read(self) -> Cluster:
        """Reads the cluster file. Raises ClusterError, also where the file cannot be read."""
        return clusters.load(self.path, self.name)


def given(cluster: Cluster | str | Path | None) -> Cluster:
    """Returns a cluster itself, or reads the one that is named, by the rule above.

    Raises ClusterError, and TypeError where something else is given.
    """
    if isinstance(cluster, Cluster):
        return cluster
    source = find(cluster)
    if source is None:
        raise ClusterError(
            "no cluster is given: give the path of a cluster file or a context, or set "
            f"{CLUSTER_VARIABLE} to one"
        )
    return source.read()


def find(name: str | Path | None) -> Source | None:
    """Returns the file that is meant; None where nothing names one.

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


def _found_elsewhere() -> Source | None:
    if name := os.environ.get(CLUSTER_VARIABLE):
        return _named(name, f"{CLUSTER_VARIABLE}: ")
    if name := contexts.in_use():
        return _context(name, "the context in use: ")
    return None


def _named(name: str, led: str = "") -> Source:
    if name.startswith("@"):
        raise ClusterError(_no_signed_list(f"{led}{name}"))
    if "/" in name or "." in name or _exists(name):
        return _file(name, led)
    return _context(name, led)


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
    """Returns the file that a context means which holds this text; `led` is what led to the context.

    Raises ClusterError where it means none.
    """
    if text.startswith("@"):
        raise ClusterError(_no_signed_list(f"{led}context {name}: {text}"))
    return _file(text, f"{led}context {name}: ")


def _file(path: str, led: str = "") -> Source:
    return Source(Path(path).absolute(), f"{led}{path}")


def _no_signed_list(name: str) -> str:
    return f"{name}: this version of kcast has no signed lists: give the path of a cluster file, or a context"
