"""`kcast group renew`: makes the next epoch for the same members."""

from typing import Unpack

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import own_argument
from kcast.client.cli.groups.owners import ChangeOptions, change, change_options


@click.command("renew")
@own_argument
@change_options
def command(name: str, **options: Unpack[ChangeOptions]) -> None:
    """Make the next epoch of your group for the same members: before the file ends, or now and then.

    A key that is taken from a member's memory opens no epoch but its own. The next epoch begins in ten
    minutes, with --now at once.

    \b
    Example:
      kcast group renew ops
    """
    with errors_as_lines("group renew"):
        from kcast.client.sealed.groups import time_text

        change(
            "group renew",
            name,
            lambda group: group,
            lambda file, begins: (
                f"epoch {file.epoch} begins {begins}; its file ends on {time_text(file.term.until_unix_s)}"
            ),
            options,
        )
