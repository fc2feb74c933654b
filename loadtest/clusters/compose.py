"""The cluster files of compose.yaml's two sides: this machine, and containers on the servers' network.

    python -m kcast.loadtest.clusters.compose print host         prints that side's cluster file
    python -m kcast.loadtest.clusters.compose kcast ping         runs `kcast ping` in a container

The two sides reach a server at different addresses, but know it by the same key, `server-1` and so on: so a
topic lies on the same servers for both. The addresses are in compose.yaml only, which passes them on in
environment variables.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from kcast.client.cli import main as kcast
from kcast.client.cli.common import errors_as_lines
from kcast.client.cluster import Cluster, ClusterError, ServerEntry, format_cluster, parse_address
from kcast.client.source import CLUSTER_VARIABLE
from kcast.hashring.policy import Policy

# Side -> the environment variable with its servers' addresses, in order, separated by spaces.
SIDES = {"host": "KCAST_HOST_SIDE", "containers": "KCAST_CONTAINERS_SIDE"}


def cluster(side: str, environment: Mapping[str, str]) -> Cluster:
    """Returns a side's cluster. Raises ClusterError if the environment lacks its addresses."""
    variable = SIDES[side]
    try:
        addresses = [parse_address(text) for text in environment.get(variable, "").split()]
    except ValueError as error:
        raise ClusterError(f"{variable}: {error}") from None
    if not addresses:
        raise ClusterError(f"{variable} is not set: compose.yaml sets it, for its services of profile client")
    servers = tuple(
        ServerEntry((address,), f"server-{number}") for number, address in enumerate(addresses, start=1)
    )
    return Cluster(servers, Policy(), name="containers", salt=b"kcast", is_lab=True)


@click.group()
def main() -> None:
    """Cluster files for the servers of compose.yaml."""


@main.command("print")
@click.argument("side", type=click.Choice(list(SIDES)))
def print_file(side: str) -> None:
    """Print the cluster file of a side: this machine's (host), or the containers'."""
    with errors_as_lines("cluster-file"):
        click.echo(format_cluster(cluster(side, os.environ)), nl=False)


# All that follows is passed to kcast, even `--help` and `--`.
_AS_IT_STANDS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@main.command("kcast", add_help_option=False, context_settings=_AS_IT_STANDS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_kcast(arguments: tuple[str, ...]) -> None:
    """Run a kcast command on the containers' side; its cluster file is written to KCAST_CLUSTER."""
    with errors_as_lines("client"):
        text = format_cluster(cluster("containers", os.environ))
        Path(os.environ.get(CLUSTER_VARIABLE, "")).write_text(text)
    kcast(arguments, prog_name="kcast")


if __name__ == "__main__":
    main()
