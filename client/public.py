"""What a user of either driver meets: `kcast.client.aio` and `kcast.client.blocking` export all of this."""

from kcast.client.cluster import Cluster, ClusterError
from kcast.client.engine import PublishOptions
from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge
from kcast.client.events import (
    Delivery,
    Drop,
    Event,
    FamilyMissing,
    Gap,
    GapFilled,
    LeaseRefused,
    LeasesChanged,
    Outcome,
    Published,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)  # fmt: skip
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError

__all__ = [
    "Backlog", "ClientClosed", "Cluster", "ClusterError", "Delivery", "Drop", "Event", "FamilyMissing", "Gap",
    "GapFilled", "KcastError", "LeaseRefused", "LeasesChanged", "MessageTooLarge", "Outcome",
    "PublishOptions", "Published", "ServerDraining", "ServerForgot", "ServerLost", "ServerReturned",
    "TopicError",
]  # fmt: skip
