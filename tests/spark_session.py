"""One Spark for all tests of a run: `from tests.spark_session import spark as spark`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.session.start import start

# What is started anew for each tiny query costs more than the query.
CONF = {
    "spark.sql.adaptive.enabled": "true",
    "spark.default.parallelism": "2",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], 4 shuffle partitions, UI off."""
    folder: Path = tmp_path_factory.mktemp("spark")
    with start("local[2]", app="kcast tests", shuffle_partitions=4, temp_dir=folder, conf=CONF) as session:
        yield session
