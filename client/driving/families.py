"""The IP versions that this machine can use."""

import socket
from collections.abc import Iterable

from kcast.client.clusters.cluster import Cluster
from kcast.client.session.whereabouts import FAMILIES
from kcast.pubsub.endpoint import Address

ANY_HOSTS = {4: "0.0.0.0", 6: "::"}

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def present_families() -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, for which the system has sockets."""
    return tuple(version for version in FAMILIES if _has_sockets(version))


def usable_families(servers: Iterable[Iterable[Address]]) -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, in which this machine has a route to one of the servers' addresses.

    Where there is no route at all, the network may be down for a moment only: then it returns all versions of
    the addresses for which the system has sockets. It sends nothing.
    """
    hosts: dict[int, list[Address]] = {4: [], 6: []}
    for addresses in servers:
        for address in addresses:
            hosts[6 if ":" in address[0] else 4].append(address)
    present = tuple(version for version, some in hosts.items() if some and _has_sockets(version))
    return tuple(version for version in present if _has_route(version, hosts[version])) or present


def families_for(cluster: Cluster) -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, in which to ask a cluster's servers: those of `usable_families`, and
    all that the system has where servers have names, since nobody knows yet where these lead."""
    if any(server.named for server in cluster.servers):
        return present_families()
    return usable_families(server.addresses for server in cluster.servers)


def _has_sockets(version: int) -> bool:
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as sock:
            sock.bind((ANY_HOSTS[version], 0))
    except OSError:
        return False
    return True


def _has_route(version: int, addresses: Iterable[Address]) -> bool:
    with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as sock:
        for address in addresses:
            try:
                sock.connect(address)  # UDP: this only looks at the routing table
            except OSError:
                continue
            return True
    return False
