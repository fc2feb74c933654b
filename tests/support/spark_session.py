"""A Spark session for tests: local[2], configured so that tiny queries are fast."""

from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

from kcast.spark.session.start import LEAN, start

CONF = {
    **LEAN,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}


def started(folder: Path) -> AbstractContextManager[SparkSession]:
    """The session, with 2 shuffle partitions; its temporary files are in `folder`."""
    return start("local[2]", app="kcast tests", temp_dir=folder, conf=CONF)
