"""The simulation on Spark: the blocks of all scenes in one job, added up to a row for each scene."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from kcast.hashring.ring import HashRing
from kcast.spark.findings.findings import Row
from kcast.spark.simulation.counts import COLUMNS, Counts
from kcast.spark.simulation.kernel import simulate_block
from kcast.spark.simulation.placement import server_keys
from kcast.spark.simulation.results import judge, rows
from kcast.spark.simulation.scene import Scene
from kcast.spark.simulation.scenes import NoteSettings, scenes

COUNTS = StructType(
    [StructField("scene", IntegerType()), *(StructField(name, LongType()) for name in COLUMNS)]
)
"""Columns of the counts; `scene` is the index among all scenes."""

_PARTITIONS_A_CORE = 16  # small enough for cores to end together and for progress to show

_ARROW = pa.schema([("scene", pa.int32()), *((name, pa.int64()) for name in COLUMNS)])


def simulate(
    spark: SparkSession,
    tell: Callable[[str], object] | None = None,
    *,
    settings: NoteSettings | None = None,
    partitions: int | None = None,
) -> dict[str, list[Row]]:
    """Returns the tables "simulation" and "note", which depend on the settings and not on the partitions.

    `tell` is called with a few words before each step.
    """
    chosen = settings or NoteSettings()
    every = scenes(chosen)
    tell = tell or (lambda _: None)
    tell(f"simulate {len(every)} scenes")
    counts = run_blocks(spark, every, chosen.seed, partitions)
    tell("judge the note")
    simulated = rows(every, counts)
    return {"simulation": simulated, "note": judge(chosen, simulated, counts)}


def run_blocks(
    spark: SparkSession, every: Sequence[Scene], seed: int, partitions: int | None = None
) -> dict[str, Counts]:
    """Returns the added counts of all blocks, by the scenes' names."""
    ring_sizes = {scene.servers for scene in every if scene.ring == "real" and scene.scheme != "S"}
    context = spark.sparkContext
    rings = context.broadcast({size: HashRing(server_keys(size)) for size in sorted(ring_sizes)})
    try:
        slices = partitions or _PARTITIONS_A_CORE * context.defaultParallelism
        counts = _counts(spark, every, seed, rings, slices)
        found = counts.groupBy("scene").agg(*(sf.sum(name).alias(name) for name in COLUMNS)).collect()
    finally:
        rings.destroy()
    return {every[row["scene"]].name: {name: row[name] for name in COLUMNS} for row in found}


def _counts(
    spark: SparkSession,
    every: Sequence[Scene],
    seed: int,
    rings: Broadcast[dict[int, HashRing]],
    partitions: int,
) -> DataFrame:
    """Counts of every slice of the blocks, `COUNTS`. Blocks are numbered through all scenes."""
    ends = np.cumsum([scene.size.blocks for scene in every])
    scenes_of_all = tuple(every)

    def simulated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: dict[int, Counts] = {}
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for number, place in zip(numbers, np.searchsorted(ends, numbers, "right"), strict=True):
                scene = scenes_of_all[place]
                block = int(number - ends[place]) + scene.size.blocks
                ring = rings.value.get(scene.servers)
                gave = simulate_block(scene, block, seed, ring)
                before = sums.get(int(place))
                sums[int(place)] = {name: before[name] + gave[name] for name in COLUMNS} if before else gave
        if sums:
            given = [{"scene": place, **counts} for place, counts in sums.items()]
            yield pa.RecordBatch.from_pylist(given, schema=_ARROW)

    return spark.range(0, int(ends[-1]), 1, partitions).mapInArrow(simulated, COUNTS)
