"""`kcast servers add`: adds servers to a work file."""

from pathlib import Path

import click

from kcast.client.cli.common import count_of, errors_as_lines
from kcast.client.cli.servers.edits import edit, file_argument
from kcast.client.trust.publisher.editing import with_servers


@click.command("add")
@file_argument
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
def command(file: Path, addresses: tuple[str, ...]) -> None:
    """Add servers to the list that FILE is to become. 'kcast servers publish' publishes it.

    An ADDRESS is IP:PORT or [IPv6]:PORT, or both with a comma between them for a server that has both.

    \b
    Example:
      kcast servers add lab.cluster 192.0.2.10:7400
    """
    with errors_as_lines("servers add"):
        edit(
            file, lambda list_: with_servers(list_, addresses), f"{count_of(len(addresses), 'server')} added"
        )
