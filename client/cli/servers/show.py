"""`kcast servers show`: prints a list of servers."""

from collections.abc import Iterator
from pathlib import Path
from time import localtime, strftime

import click

from kcast.client.cli.common import count_of, errors_as_lines
from kcast.client.cli.servers.names import complete_names, stored
from kcast.client.cli.text import escaped, tell, to_json
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster
from kcast.client.trust.state.places import StateError


@click.command("show")
@click.argument("what", metavar="@NAME|FILE", shell_complete=complete_names)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str, as_json: bool) -> None:
    """Print a list of servers. Nothing is checked: 'kcast servers verify' does that.

    @NAME is the newest list that is stored here. A trust document in FILE is printed as it stands there.

    With --json the keys are name, policy, hosts (their number) and servers. Signed lists have also version,
    trust (the version of its trust document), valid_after, fresh_until and valid_until (unix seconds),
    min_servers, and signers (the names of keys; whether they fit is not checked).

    \b
    Examples:
      kcast servers show @example.org/lab
      kcast servers show lab.cluster
    """
    with errors_as_lines("servers show"):
        if not as_json and (document := _trust_document(what)) is not None:
            for line in document.splitlines():
                tell(escaped(line))
            return
        cluster = read_list(what)
        for line in (to_json(_as_fields(cluster)),) if as_json else _as_text(cluster):
            tell(line)


def read_list(what: str) -> Cluster:
    """Returns the newest list that is stored of @NAME, or the one in a file. Raises KcastError."""
    if not what.startswith("@"):
        return clusters.load(Path(what))
    held = stored(what)[1]
    if held.list is None:
        raise StateError(f"{what}: no list has been seen yet: 'kcast servers verify {what}' fetches it")
    return clusters.parse(held.list.decode(), what)


def _trust_document(what: str) -> str | None:
    """Returns the text of a trust document in a file; None where it is none."""
    if what.startswith("@"):
        return None
    with Path(what).open("rb") as file:
        data = file.read(clusters.FILE_BYTES_MAX)
    return data.decode(errors="replace") if data.startswith(b"kcast-trust ") else None


def _as_fields(cluster: Cluster) -> dict[str, object]:
    fields: dict[str, object] = {
        "name": cluster.name or None,
        "policy": str(cluster.policy),
        "hosts": len(cluster.hosts),
        "servers": [server.name for server in cluster.servers],
    }
    if (facts := cluster.signed) is not None:
        fields |= {
            "version": facts.version,
            "trust": facts.trust,
            "valid_after": facts.valid_after_s,
            "fresh_until": facts.fresh_until_s,
            "valid_until": facts.valid_until_s,
            "min_servers": facts.min_servers,
            "signers": _signers(cluster),
        }
    return fields


def _signers(cluster: Cluster) -> list[str]:
    return [line.split(" ")[1] for line in cluster.signatures]


def _as_text(cluster: Cluster) -> Iterator[str]:
    if cluster.name:
        yield f"name     {escaped(cluster.name)}"
    facts = cluster.signed
    if facts is not None:
        yield f"version  {facts.version}, under version {facts.trust} of the trust document"
        yield f"holds    from {time_text(facts.valid_after_s)}"
        yield f"fresh    until {time_text(facts.fresh_until_s)}, valid until {time_text(facts.valid_until_s)}"
        yield f"signed   {escaped(', '.join(_signers(cluster))) or 'by nobody yet'}"
    yield f"policy   {cluster.policy}"
    hosts = len(cluster.hosts)
    yield f"hosts    {count_of(hosts, 'host')}, {count_of(len(cluster.servers), 'server')}"
    for number, server in enumerate(cluster.servers):
        yield f"{'' if number else 'servers':<9}{server.name}"


def time_text(unix_s: int) -> str:
    """Returns a time of a list, in this machine's zone."""
    try:
        return strftime("%Y-%m-%d %H:%M", localtime(unix_s))
    except (OverflowError, OSError, ValueError):  # a list may say any time
        return f"{unix_s} s after 1970"
