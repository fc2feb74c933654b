"""What the jobs need to know of each cell, as a DataFrame."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from kcast.spark.capture.schemas import PARAMETERS
from kcast.spark.findings.cells import Cell

_S = 1_000_000_000


def parameters(spark: SparkSession, cells: Sequence[Cell]) -> DataFrame:
    """A row for each cell, `PARAMETERS`."""
    return spark.createDataFrame([_row(cell) for cell in cells], PARAMETERS)


def _row(cell: Cell) -> tuple[object, ...]:
    scenario, policy = cell.scenario, cell.scenario.policy
    return (
        cell.number,
        cell.t0_ns,
        max(1, round(scenario.epoch_s * _S)),
        round(scenario.deadline_s * _S),
        scenario.ttl_s * _S,
        policy.publish,
        policy.subscribe,
        policy.k,
        scenario.servers,
        policy.publish + policy.subscribe > policy.k,
        scenario.avoid_dead and policy.subscribe < policy.k,
        1 - (1 - scenario.loss_in) * (1 - scenario.loss_out),
    )
