"""Counts of slices that are counted one after the other, merged as they come."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from kcast.spark.jobs.job import Job, merge


class RunningCounts:
    """The merged counts of each job so far, on the disks of the machines where Spark works."""

    def __init__(self) -> None:
        self._merged: dict[str, DataFrame] = {}

    def add(self, job: Job, counts: DataFrame) -> None:
        """Merges the counts of another slice, which are computed at once."""
        before = self._merged.get(job.name)
        parts = [counts] if before is None else [before, counts]
        # A checkpoint, which forgets what its slice was counted from: else plans would grow for ever.
        merged = merge(parts, job.counts)
        self._merged[job.name] = merged.localCheckpoint(True, StorageLevel.DISK_ONLY)
        if before is not None:
            _forget(before)

    def merged(self, spark: SparkSession, job: Job) -> DataFrame:
        """The counts of all slices so far; no rows if there were none."""
        found = self._merged.get(job.name)
        return spark.createDataFrame([], job.counts) if found is None else found

    def close(self) -> None:
        """Forgets all counts."""
        while self._merged:
            _forget(self._merged.popitem()[1])


def _forget(checkpoint: DataFrame) -> None:
    """Frees the disk at once: Spark itself does so only when Java next collects garbage."""
    checkpoint._jdf.queryExecution().logical().rdd().unpersist(False)
