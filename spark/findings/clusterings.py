"""Sums over clusters of outcomes, of each cell by the clustering's name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kcast.hashring.effective_size import ClusterSums


def clusters_by_cell(
    rows: Iterable[Mapping[str, Any]], trials: str, successes: str
) -> Mapping[int, Mapping[str, ClusterSums]]:
    """Of the sums of a job, in which trials and successes have these names. Cells without any have none."""
    names = ("clusters", trials, successes, "squares", "products", "hits")
    found: defaultdict[int, dict[str, ClusterSums]] = defaultdict(dict)
    for row in rows:
        found[row["cell"]][row["clustering"]] = ClusterSums(*(int(row[name]) for name in names))
    return found
