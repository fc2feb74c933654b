"""What tests of several files share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One Spark for all tests of a run."""
    from tests.support.spark_session import started  # other tests need not wait for it

    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session
