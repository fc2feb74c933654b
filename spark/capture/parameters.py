"""What the walk and the jobs need to know of each cell's scenario, as a DataFrame."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, IntegerType, LongType

from kcast.spark.capture.schemas import struct
from kcast.spark.findings.cells import Cell

# One row for each cell.
PARAMETERS = struct(
    cell=IntegerType(),
    t0_ns=LongType(),  # when its load began
    epoch_ns=LongType(),  # length of an epoch of its outages
    deadline_ns=LongType(),
    ttl_ns=LongType(),
    publish=IntegerType(),  # the policy: number of a topic's k servers that a message is sent to
    subscribe=IntegerType(),
    k=IntegerType(),
    servers=IntegerType(),  # of the cluster: they are numbered 0 .. servers - 1
    must_meet=BooleanType(),  # publish + subscribe > k: clients with equal views have a server in common
    may_leave=BooleanType(),  # subscribers may leave a server for another
)

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
    )
