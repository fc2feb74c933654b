"""The columns of `pairs` and `misses`: what became of each message and subscriber. Plain data.

They are no tables of the findings, since they have a row for each pair: Spark keeps them.
"""

from kcast.spark.findings.tables import Column

PAIR_COLUMNS = (
    Column("run", "str", "id of the run"),
    Column("scenario", "str", "name of the scenario"),
    Column("msg_id", "int", "the message: publisher * 2^32 + its number"),
    Column("publisher", "int", "number of the publisher, `pub_id` in the capture"),
    Column("number", "int", "number of the message among those of its publisher, from 0"),
    Column("topic", "int", "number of the topic, `topic_id` in the capture"),
    Column("subscriber", "int", "number of the subscriber, `sub_id` in the capture"),
    Column("due_s", "float", "when the message was due, in seconds since the load began"),
    Column("t_intended_ns", "int", "the same by the capture's clock, in ns"),
    Column("epoch", "int", "the epoch of outages at that time, from 0"),
    Column("cause", "str", "why it was missed, a label of kcast.loadtest.results.causes.Cause; or delivered"),
    Column("latency_ns", "int", "from when the message was due to its first copy in time; null: missed"),
    Column("copies", "int", "copies that came, late ones too"),
    Column("heard", "int", "servers that brought a copy in time"),
    Column("chances", "int", "sendings to servers that were up and held a lease of the subscriber"),
)
