"""The simulation on Spark: the blocks of all scenes in one job, added up to a row for each scene."""

from collections.abc import Callable, Sequence

import numpy as np
from pyspark.sql import SparkSession

from kcast.hashring.ring import HashRing
from kcast.spark.findings.findings import Row
from kcast.spark.simulation.counts import Counts
from kcast.spark.simulation.kernel import simulate_block
from kcast.spark.simulation.placement import server_keys
from kcast.spark.simulation.results import judge, rows
from kcast.spark.simulation.scenes import NoteSettings, Scene, scenes

_PARTITIONS_A_CORE = 16  # small enough for cores to end together and for progress to show


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
    context = spark.sparkContext
    ring_sizes = {scene.servers for scene in every if scene.ring == "real" and scene.scheme != "S"}
    rings = context.broadcast({size: HashRing(server_keys(size)) for size in sorted(ring_sizes)})
    ends = np.cumsum([scene.size.blocks for scene in every])  # blocks are numbered through all scenes

    def simulated(number: int) -> tuple[str, Counts]:
        place = int(np.searchsorted(ends, number, "right"))
        scene = every[place]
        block = number - int(ends[place]) + scene.size.blocks
        return scene.name, simulate_block(scene, block, seed, rings.value.get(scene.servers))

    def added(one: Counts, other: Counts) -> Counts:
        return {name: one[name] + other[name] for name in one}

    try:
        blocks = context.parallelize(
            range(int(ends[-1])), partitions or _PARTITIONS_A_CORE * context.defaultParallelism
        )
        return dict(blocks.map(simulated).reduceByKey(added, 1).collect())
    finally:
        rings.destroy()
