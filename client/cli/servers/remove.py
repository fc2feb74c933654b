"""`kcast servers remove`: removes servers from a work file."""

from pathlib import Path

import click

from kcast.client.cli.common import count_of, errors_as_lines
from kcast.client.cli.servers.edits import edit, file_argument
from kcast.client.trust.publisher.editing import without_servers


@click.command("remove")
@file_argument
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
def command(file: Path, addresses: tuple[str, ...]) -> None:
    """Remove servers from the list that FILE is to become. 'kcast servers publish' publishes it.

    A server is named by any of its addresses.

    \b
    Example:
      kcast servers remove lab.cluster 192.0.2.8:7400
    """
    with errors_as_lines("servers remove"):
        edit(
            file,
            lambda list_: without_servers(list_, addresses),
            f"{count_of(len(addresses), 'server')} removed",
        )
