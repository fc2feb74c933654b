"""Cluster files, as programs import them. They live in `client/clusters/cluster.py`."""

from kcast.client.clusters.cluster import (
    FILE_BYTES_MAX,
    HEADER,
    Cluster,
    ClusterError,
    ListFacts,
    ServerEntry,
    decode,
    facts_of,
    format_cluster,
    host_key,
    hosts_of,
    is_host_name,
    is_list_name,
    lab,
    load,
    parse,
    parse_address,
)

__all__ = [
    "FILE_BYTES_MAX", "HEADER", "Cluster", "ClusterError", "ListFacts", "ServerEntry", "decode",
    "facts_of", "format_cluster", "host_key", "hosts_of", "is_host_name", "is_list_name", "lab", "load",
    "parse", "parse_address",
]  # fmt: skip
