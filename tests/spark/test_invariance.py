"""The tables are the same, to the last digit, however rows are spread over files, partitions and tasks."""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.capture.manifest import PART_SUFFIX
from kcast.loadtest.capture.schema import TABLES
from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import Captures, open_captures
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES as TABLES_OF_FINDINGS
from tests.support.big_capture import big_scenario
from tests.support.handmade_capture import T0
from tests.support.random_captures import random_world
from tests.support.run_of_worlds import write_run_of

pytestmark = pytest.mark.spark

SEED = 1
SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # so that rows are joined in another way
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
SMALL: Mapping[str, Any] = {
    "servers": 12,
    "rate": 25.0,
    "epoch_s": 0.5,
    "topics": 8,
    "topics_per_subscriber": 4,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of sound scenarios, and of random ones whose rows contradict each other, many at equal times."""
    sound = [
        big_scenario(4_000, name="few-publish", k_prime=2, **SMALL),
        big_scenario(4_000, name="views", known=0.9, k=4, side="subscribe", **SMALL),
        big_scenario(4_000, name="ch", scheme="CH", k=3, **SMALL),
    ]
    root = tmp_path_factory.mktemp("captures")
    worlds = [random_world(root, random.Random(seed)) for seed in range(3)]
    for number, world in enumerate(worlds):
        world.scenario = world.scenario.with_(name=f"random-{number}")
        for sub_id in (0, 1, 2):
            world.add("sighting", sub_id=sub_id, t_ns=T0 + sub_id % 2, what="joined", name=f"AAA{number}")
    return write_run_of(root / "run", sound, worlds)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, run: Path) -> Findings:
    return analyse(spark, open_captures(spark, [str(run)]))


def test_however_rows_are_spread_and_joined(
    spark: SparkSession, run: Path, expected: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(SEED)
    copy = shuffled(run, tmp_path / "copy", rng)
    monkeypatch.setattr(Captures, "table", repartitioned(Captures.table, rng))
    with configured(spark, SETTINGS):
        found = analyse(spark, open_captures(spark, [str(copy)]))
    assert list(found.tables) == list(expected.tables)
    for name, rows in expected.tables.items():
        assert list(found.tables[name]) == list(rows), f"seed {SEED}: {name} differs"


def test_all_tables_have_rows_that_could_differ(expected: Findings) -> None:
    # No capture here is of mute servers: `reach` is made of other tables, which are compared.
    captured = [name for name in TABLES_OF_FINDINGS if name not in ("simulation", "note", "reach")]
    assert expected.problems == ()
    assert len(expected.table("scenarios")) == 6
    assert [name for name in captured if not expected.table(name)] == []


def shuffled(run: Path, copy: Path, rng: np.random.Generator) -> Path:
    """A copy of a capture in which the rows of each table have another order, and files of other names."""
    shutil.copytree(run, copy)
    for folder in open_run(copy).scenarios:
        for table in TABLES:
            rows = folder.read(table)
            for path in folder.parts(table):
                path.unlink()
            rows = rows.take(pa.array(rng.permutation(rows.num_rows)))
            cuts = np.sort(rng.integers(0, rows.num_rows + 1, rng.integers(0, 4)))
            edges = [0, *cuts.tolist(), rows.num_rows]
            for start, end in pairwise(edges):
                name = f"p{rng.integers(1 << 60):x}{PART_SUFFIX}"
                parts.write_part(folder.path / f"table={table}" / name, rows.slice(start, end - start))
        folder.finish("complete")
    return copy


def repartitioned(table: Callable[[Captures, str], DataFrame], rng: np.random.Generator) -> Any:
    """The method `table` of captures, with its rows spread over other partitions."""

    def spread(captures: Captures, name: str) -> DataFrame:
        rows = table(captures, name)
        return rows.repartition(int(rng.integers(1, 8)), sf.rand(int(rng.integers(1 << 30))))

    return spread


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)
