"""Edits of a list before it is signed: servers added and removed, versions, times. Sans-IO. PROTOCOL §10."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kcast.client.clusters.cluster import (
    Cluster,
    ListFacts,
    ServerEntry,
    facts_of,
    host_key,
    hosts_of,
    parse_address,
)
from kcast.pubsub.endpoint import format_address
from kcast.pubsub.errors import KcastError

DAY_S = 86_400
FRESH_S = 7 * DAY_S
VALID_S = 90 * DAY_S


class EditError(KcastError, ValueError):
    """An edit that cannot be made; the message says what to do instead."""


class ArgumentError(EditError):
    """What was typed is no server, key, name or URL."""

    is_misuse = True


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The time for which a list is good, from when it holds: until clients should have a newer one, and until
    it has expired."""

    fresh_s: int = FRESH_S
    valid_s: int = VALID_S

    def __post_init__(self) -> None:
        if not 0 < self.fresh_s <= self.valid_s:
            raise EditError(
                "a list must be valid for at least as long as it is fresh: raise --valid-days, or lower "
                "--fresh-days"
            )


def lifetime(facts: ListFacts) -> Lifetime:
    """Returns for how long a list was made to be good."""
    return Lifetime(facts.fresh_until_s - facts.valid_after_s, facts.valid_until_s - facts.valid_after_s)


def entry(text: str, *, is_lab: bool) -> ServerEntry:
    """Reads a server: `IP:PORT`, or `IP:PORT,[IPv6]:PORT`. Raises ArgumentError."""
    try:
        addresses = tuple(map(parse_address, text.split(",")))
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    return ServerEntry(addresses, format_address(addresses[0]) if is_lab else host_key(addresses[0]))


def entries(texts: Iterable[str]) -> tuple[tuple[ServerEntry, ...], bool]:
    """Reads the servers of a new list; tells also whether it is a lab: several servers on one host, and no
    other host. Raises EditError."""
    servers = tuple(entry(text, is_lab=False) for text in texts)
    is_lab = len(servers) > 1 and len(hosts_of(servers)) == 1
    if is_lab:
        servers = tuple(server._replace(key=format_address(server.addresses[0])) for server in servers)
    _refuse_twice(servers)
    return servers, is_lab


def with_servers(cluster: Cluster, texts: Sequence[str]) -> Cluster:
    """Returns the list with further servers. Raises EditError, also for one that it has already."""
    new = tuple(entry(text, is_lab=cluster.is_lab) for text in texts)
    there = {server.name for server in cluster.servers}
    for server in new:
        if server.name in there:
            raise EditError(f"{server.name} is in the list already")
    servers = (*cluster.servers, *new)
    _refuse_twice(servers)
    return replace(cluster, servers=servers)


def without_servers(cluster: Cluster, names: Sequence[str]) -> Cluster:
    """Returns the list without some of its servers; each is named by any of its addresses. Raises
    EditError."""
    gone: set[ServerEntry] = set()
    known = {format_address(address): server for server in cluster.servers for address in server.addresses}
    for name in names:
        try:
            gone.add(known[format_address(parse_address(name))])
        except KeyError:
            raise EditError(f"{name} is not in the list") from None
        except ValueError as error:
            raise ArgumentError(str(error)) from None
    left = tuple(server for server in cluster.servers if server not in gone)
    if not left:
        raise EditError("the list would be empty: add another server first")
    return replace(cluster, servers=left)


def renewed(
    cluster: Cluster, version: int, trust: int, valid_after_s: int, life: Lifetime | None = None
) -> Cluster:
    """Returns the list as another version, which holds from `valid_after_s` (unix seconds) on, for as long
    as the list did unless `life` says otherwise.

    It must have two thirds of its hosts, so that nobody can leave most of them out.
    """
    facts = facts_of(cluster)
    life = life or lifetime(facts)
    return replace(
        cluster,
        signed=replace(
            facts,
            version=version,
            trust=trust,
            valid_after_s=valid_after_s,
            fresh_until_s=valid_after_s + life.fresh_s,
            valid_until_s=valid_after_s + life.valid_s,
            min_servers=min_servers(cluster.servers),
        ),
        signatures=(),
    )


def next_draft(cluster: Cluster, *, is_signed: bool) -> Cluster:
    """Returns a work file's list as it is after an edit: without signatures, and a version on where it had
    some. Its times are set when it is published."""
    facts = facts_of(cluster)
    version = facts.version + 1 if is_signed else facts.version
    return replace(cluster, signed=replace(facts, version=version), signatures=())


def min_servers(servers: Iterable[ServerEntry]) -> int:
    """Returns the number of hosts that a list should say it has at least: two thirds of them."""
    return -(-2 * len(hosts_of(servers)) // 3)


def _refuse_twice(servers: Sequence[ServerEntry]) -> None:
    """Raises EditError where two servers have an address, or a host and a port, in common."""
    names: dict[object, str] = {}
    for server in servers:
        for place in {*server.addresses, (server.key, server.port)}:
            if place in names:
                other = names[place]
                raise EditError(
                    f"{server.name} stands there twice"
                    if other == server.name
                    else f"{server.name} and {other} have an address, or a host and a port, in common"
                )
            names[place] = server.name
