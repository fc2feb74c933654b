"""What a cluster file says of the time to come: one salt after another. Sans-IO. PROTOCOL §10.3.

A file may have several salts: one that holds from the beginning, and more that hold each from a time on. So a
file has *stages*, one after another, and each is a cluster with a single salt, from which a view is made.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from kcast.client.clusters.cluster import Cluster


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A cluster as it is from a time on, until the next stage begins; `cluster` has that one salt only.

    Each is equal to itself alone: to compare two lists of many servers would take long.
    """

    from_unix_s: float
    cluster: Cluster


def stages(cluster: Cluster, from_unix_s: float = -inf) -> list[Stage]:
    """Returns the stages of a cluster file that holds from this time on, in their order; never none.

    Of salts from one moment on, which no file has, the last counts.
    """
    first = Stage(from_unix_s, replace(cluster, next_salts=()) if cluster.next_salts else cluster)
    found = {from_unix_s: first}
    for salt, salt_from_s in sorted(cluster.next_salts, key=lambda item: item[1]):
        stage = Stage(max(from_unix_s, salt_from_s), replace(first.cluster, salt=salt))
        found[stage.from_unix_s] = stage
    return list(found.values())


def in_force(cluster: Cluster, unix_s: float) -> Cluster:
    """Returns the stage of a cluster that is in force at a time: it has the salt that counts then."""
    every = stages(cluster)
    return every[index_in_force(every, unix_s)].cluster


def index_in_force(line: Sequence[Stage], unix_s: float) -> int:
    """Returns which of these stages is in force: the last that has begun, or the first where none has."""
    return max(0, bisect_right(line, unix_s, key=attrgetter("from_unix_s")) - 1)
