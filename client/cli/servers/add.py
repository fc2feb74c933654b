"""`kcast servers add`: adds servers to a work file."""

from pathlib import Path

import click

from kcast.client.cli.common import count_of, errors_as_lines
from kcast.client.cli.servers.edits import edit, file_argument


@click.command("add")
@file_argument
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.option(
    "--pending", "is_pending", is_flag=True, help="Announce them for the next epoch, without using them yet."
)
def command(file: Path, addresses: tuple[str, ...], is_pending: bool) -> None:
    """Add servers to the list that FILE is to become. 'kcast servers publish' publishes it.

    An ADDRESS is IP:PORT or [IPv6]:PORT, or both with a comma between them for a server that has both.

    \b
    Example:
      kcast servers add lab.cluster 192.0.2.10:7400
    """
    with errors_as_lines("servers add"):
        from kcast.client.trust.publisher.editing import with_pending, with_servers

        change = with_pending if is_pending else with_servers
        what = "announced" if is_pending else "added"
        edit(file, lambda list_: change(list_, addresses), f"{count_of(len(addresses), 'server')} {what}")
