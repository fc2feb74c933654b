"""Counts of slices that are counted one after the other, merged as they come."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from kcast.spark.judging.judge import COUNTS, merged_counts


class RunningCounts:
    """The merged counts so far, on the disks of the machines where Spark works."""

    def __init__(self) -> None:
        self._merged: DataFrame | None = None

    def add(self, counts: DataFrame) -> None:
        """Merges the counts of another slice, which are computed at once."""
        before = self._merged
        merged = counts if before is None else merged_counts(before.unionByName(counts))
        # A checkpoint, which forgets what its slice was counted from: else plans would grow for ever.
        self._merged = merged.localCheckpoint(True, StorageLevel.DISK_ONLY)
        if before is not None:
            _forget(before)

    def merged(self, spark: SparkSession) -> DataFrame:
        """The counts of all slices so far; no rows if there were none."""
        return spark.createDataFrame([], COUNTS) if self._merged is None else self._merged

    def close(self) -> None:
        """Forgets all counts."""
        if self._merged is not None:
            _forget(self._merged)
            self._merged = None


def _forget(checkpoint: DataFrame) -> None:
    """Frees the disk at once: Spark itself does so only when Java next collects garbage."""
    checkpoint._jdf.queryExecution().logical().rdd().unpersist(False)
