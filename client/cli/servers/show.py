"""`kcast servers show`: prints a list of servers."""

from collections.abc import Iterator
from pathlib import Path

import click

from kcast.client import cluster as clusters
from kcast.client.cli.common import count_of, errors_as_lines, escaped, to_json
from kcast.client.cluster import Cluster


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(file: Path, as_json: bool) -> None:
    """Print a list of servers. Nothing is checked: 'kcast servers verify' does that.

    With --json the keys are name, policy, hosts (their number) and servers.

    \b
    Example:
      kcast servers show lab.cluster
    """
    with errors_as_lines("servers show"):
        cluster = clusters.load(file)
        if as_json:
            click.echo(to_json(_as_fields(cluster)))
            return
        for line in _as_text(cluster):
            click.echo(line)


def _as_fields(cluster: Cluster) -> dict[str, object]:
    return {
        "name": cluster.name or None,
        "policy": str(cluster.policy),
        "hosts": len({server.key for server in cluster.servers}),
        "servers": [server.name for server in cluster.servers],
    }


def _as_text(cluster: Cluster) -> Iterator[str]:
    if cluster.name:
        yield f"name     {escaped(cluster.name)}"
    yield f"policy   {cluster.policy}"
    hosts = len({server.key for server in cluster.servers})
    yield f"hosts    {count_of(hosts, 'host')}, {count_of(len(cluster.servers), 'server')}"
    for number, server in enumerate(cluster.servers):
        yield f"{'' if number else 'servers':<9}{server.name}"
