"""What a cluster file says, as programs import it. It lives in `client/clusters/facts.py`."""

from kcast.client.clusters.facts import (
    Cluster,
    ClusterError,
    ListFacts,
    ServerEntry,
    host_key,
    is_host_name,
    is_list_name,
    parse_address,
)

__all__ = [
    "Cluster", "ClusterError", "ListFacts", "ServerEntry", "host_key", "is_host_name", "is_list_name",
    "parse_address",
]  # fmt: skip
