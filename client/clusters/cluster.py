"""The cluster file: which servers there are, and the policy that all clients must share. PROTOCOL §10.

It is text, one fact a line; `#` begins a comment. `client/clusters/reader.py` is the only reader of it, and
this module the only writer.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kcast.client.clusters.facts import (
    Cluster,
    ClusterError,
    ListFacts,
    ServerEntry,
    facts_of,
    host_key,
    hosts_of,
    is_host_name,
    is_list_name,
    own_key,
    parse_address,
)
from kcast.client.clusters.reader import HEADER, read
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, format_address

__all__ = [
    "FILE_BYTES_MAX", "HEADER", "Cluster", "ClusterError", "ListFacts", "ServerEntry", "decode",
    "facts_of", "format_cluster", "host_key", "hosts_of", "is_host_name", "is_list_name", "lab", "load",
    "parse", "parse_address",
]  # fmt: skip

FILE_BYTES_MAX = 16 * 1024 * 1024
_BYTE_ORDER_MARK = "\ufeff"


def load(path: str | Path, name: str = "") -> Cluster:
    """Reads a cluster file; complaints name it by its path, or as `name`.

    Raises ClusterError, also where the file cannot be read.
    """
    path = Path(path)
    name = name or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)  # it may be a pipe, or a device without an end
    except OSError as error:
        hint = ": give a file that lists servers, not an address" if _is_address(name) else ""
        raise ClusterError(f"{name}: {error.strerror or error}{hint}") from None
    text = decode(data, name)
    cluster = parse(text.removeprefix(_BYTE_ORDER_MARK), name)  # some editors begin a file with one
    if cluster.is_signed and text.startswith(_BYTE_ORDER_MARK):
        raise ClusterError(f"{name}:1: expected no U+FEFF at the start of a signed list")
    return replace(cluster, path=path)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def decode(data: bytes, name: str) -> str:
    """Returns the text of a cluster file's bytes, for `parse`. Raises ClusterError."""
    if len(data) > FILE_BYTES_MAX:
        raise ClusterError(f"{name}: longer than {FILE_BYTES_MAX} bytes; is it a cluster file?")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise ClusterError(f"{name}:{number}: not UTF-8 text; is it a cluster file?") from None


def parse(text: str, source: str = "cluster") -> Cluster:
    """Reads a cluster file's text; `source` stands in error messages. Raises ClusterError."""
    return read(text, source)


def format_cluster(cluster: Cluster) -> str:
    """Returns the text that `parse` reads back as the same cluster, but for signatures."""
    lines = [HEADER]
    if cluster.name:
        lines.append(f"name   {cluster.name}")
    lines.append(f"policy {_format_policy(cluster.policy)}")
    if cluster.salt:
        lines.append(f"salt   {cluster.salt.hex()}")
    if cluster.signed:
        lines += _format_facts(cluster.signed)
    if cluster.is_lab:
        lines.append("lab")
    if cluster.has_names:
        lines.append("names")
    lines += [_format_server(server, cluster.is_lab) for server in cluster.servers]
    return "\n".join(lines) + "\n"


def lab(addresses: Iterable[Address], policy: Policy | None = None, name: str = "lab") -> Cluster:
    """Returns a cluster of servers on this machine, each a host of its own on the ring. No file is needed:

    Client(lab([("127.0.0.1", 7401)], Policy(1, 1, 1)))
    """
    servers = tuple(ServerEntry((address,), format_address(address)) for address in addresses)
    return Cluster(servers, policy or Policy(), name, salt=b"kcast", is_lab=True)


def _format_policy(policy: Policy) -> str:
    if policy.scheme in ("S", "R"):
        return f"scheme={policy.scheme}" + (
            f" publish={policy.publish} subscribe={policy.subscribe}" if policy.scheme == "R" else ""
        )
    return f"k={policy.k} publish={policy.publish} subscribe={policy.subscribe}"


def _format_facts(facts: ListFacts) -> list[str]:
    return [
        f"version {facts.version}",
        f"trust {facts.trust}",
        f"valid-after {facts.valid_after_s}",
        f"fresh-until {facts.fresh_until_s}",
        f"valid-until {facts.valid_until_s}",
        f"min-servers {facts.min_servers}",
    ]


def _format_server(server: ServerEntry, is_lab: bool) -> str:
    where = server.name if server.named else ",".join(map(format_address, server.addresses))
    is_keyed = server.key != own_key(server.addresses, is_lab)
    return f"server {where}" + (f" key={server.key}" if is_keyed else "")
