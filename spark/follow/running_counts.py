"""Counts of slices that were counted one after the other, merged as they come."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from kcast.spark.jobs.job import Job
from kcast.spark.jobs.merging import merge_all


class Ledger:
    """Merged counts of each job, on the disks of those that do Spark's work."""

    def __init__(self) -> None:
        self._merged: dict[str, DataFrame] = {}

    def add(self, job: Job, counts: DataFrame) -> None:
        """Counts of another slice, which are made at once."""
        before = self._merged.get(job.name)
        parts = [counts] if before is None else [before, counts]
        # A checkpoint, so that what a slice was counted from is forgotten: else plans would grow for ever.
        merged = merge_all(parts, job.counts)
        self._merged[job.name] = merged.localCheckpoint(True, StorageLevel.DISK_ONLY)
        if before is not None:
            _forget(before)

    def merged(self, spark: SparkSession, job: Job) -> DataFrame:
        """What came of all slices; no rows if there were none."""
        found = self._merged.get(job.name)
        return spark.createDataFrame([], job.counts) if found is None else found

    def close(self) -> None:
        """Forgets all."""
        while self._merged:
            _forget(self._merged.popitem()[1])


def _forget(checkpoint: DataFrame) -> None:
    """Gives the disk back at once: Spark itself does so when Java next collects garbage."""
    checkpoint._jdf.queryExecution().logical().rdd().unpersist(False)
