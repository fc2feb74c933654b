"""The simulation on Spark: the same whatever the partitions, and the same as block by block."""

from dataclasses import replace

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from kcast.hashring.ring import HashRing
from kcast.spark.findings.findings import Findings
from kcast.spark.simulation.counts import COLUMNS, no_counts
from kcast.spark.simulation.kernel import simulate_block
from kcast.spark.simulation.placement import server_keys
from kcast.spark.simulation.run import run_blocks, simulate
from kcast.spark.simulation.scenes import NoteSettings, scenes

pytestmark = pytest.mark.spark

TINY = NoteSettings(seed=3, effort=0.01, servers=2000, k=40)
SOME = tuple(
    scene
    for scene in scenes(TINY)
    if scene.name in ("rch-few-publish", "rch-few-subscribe-loss-5", "ch", "s-one-unknown", "r-45")
)


def test_counts_are_those_of_the_blocks_one_by_one(spark: SparkSession) -> None:
    ring = HashRing(server_keys(2000))
    expected = {}
    for scene in SOME:
        total = no_counts()
        for block in range(scene.size.blocks):
            counts = simulate_block(scene, block, 3, ring)
            total = {name: total[name] + counts[name] for name in COLUMNS}
        expected[scene.name] = total
    assert len(expected) == 5
    for partitions in (1, 5):
        assert run_blocks(spark, SOME, 3, partitions) == expected, f"{partitions} partitions"
    # Nor do other scenes change what one gives.
    assert run_blocks(spark, SOME[2:3], 3, 2) == {SOME[2].name: expected[SOME[2].name]}
    assert run_blocks(spark, SOME[:1], 4, 2) != {SOME[0].name: expected[SOME[0].name]}


def test_all_scenes_end_in_the_two_tables(spark: SparkSession) -> None:
    told: list[str] = []
    tables = simulate(spark, told.append, settings=TINY)
    found = Findings({}, tables=tables)
    assert [row["scene"] for row in found.table("simulation")] == [scene.name for scene in scenes(TINY)]
    assert len(found.table("note")) == 19
    assert told == ["simulate 71 scenes", "judge the note"]


def test_what_goes_wrong_in_a_block_is_told(spark: SparkSession) -> None:
    # Clients who know half of 50 servers cannot use 40.
    scene = replace(SOME[0], servers=50, known=0.5)
    with pytest.raises(PythonException, match="a client knows fewer than 40"):
        run_blocks(spark, [scene], 1, 2)
