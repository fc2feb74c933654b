"""The schemas between the jobs. Nothing is inferred: what Spark reads and passes on has these columns.

`cell` numbers the scenarios of all captures that are analysed together, from 0. All rows of one cell have
the same parameters.
"""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from kcast.loadtest.capture.schema import TABLES

_TYPES: dict[str, DataType] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float64": DoubleType(),
    "string": StringType(),
    "list<int32>": ArrayType(IntegerType()),
}


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind, True) for name, kind in fields.items()])


def stored_schema(table: str) -> StructType:
    """The columns of a capture's table, as its Parquet files have them. Raises KeyError."""
    return _struct(**{column.name: _TYPES[column.type] for column in TABLES[table]})


def table_schema(table: str) -> StructType:
    """The same with the cell before them, as the jobs get it. Raises KeyError."""
    return StructType([StructField("cell", IntegerType(), True), *stored_schema(table).fields])


# What the jobs need to know of each cell; a row each.
PARAMETERS = _struct(
    cell=IntegerType(),
    t0_ns=LongType(),  # when its load began
    epoch_ns=LongType(),  # how long an epoch of its outages is
    deadline_ns=LongType(),
    ttl_ns=LongType(),
    publish=IntegerType(),  # the policy: to how many of a topic's k servers a message goes
    subscribe=IntegerType(),
    k=IntegerType(),
    servers=IntegerType(),  # of the cluster: their numbers are 0 .. servers - 1
    must_meet=BooleanType(),  # publish + subscribe > k: who knows the same servers has one in common
    may_leave=BooleanType(),  # subscribers may leave a server for another
    miss=DoubleType(),  # the chance that one sending through a server that is up is lost, by the scenario
)

# One row for each message and subscriber that should have received it.
PAIRS = _struct(
    cell=IntegerType(),
    msg_id=LongType(),
    pub_id=IntegerType(),
    sub_id=IntegerType(),
    topic_id=IntegerType(),
    t_intended_ns=LongType(),
    epoch=IntegerType(),  # of the outages, from 0 when the load began
    cause=ByteType(),  # kcast.loadtest.results.causes.Cause
    latency_ns=LongType(),  # from t_intended_ns to the first copy in time; -1 without one
    copies=IntegerType(),  # that came, late ones with them
    heard=IntegerType(),  # servers that brought one in time
    # Sendings of the message to servers that were up and held a lease of the subscriber, be they lost or not:
    # each is a chance of (1 - loss_in)(1 - loss_out) to get through.
    chances=IntegerType(),
)

# All ways of a message to a subscriber through one server, of delivered pairs too, by what became of them.
PATHS = _struct(cell=IntegerType(), cause=ByteType(), paths=LongType())
