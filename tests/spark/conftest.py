"""Fixtures of several files."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One Spark for all tests of a run."""
    from tests.support.spark_session import (
        started,  # not at the top: tests without Spark need not wait for it
    )

    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session
