"""`kcast group renew`: makes the next epoch for the same members."""

from pathlib import Path

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import own_argument
from kcast.client.cli.groups.owners import change, key_option, last_out_option, now_option, tell_written
from kcast.client.cli.text import tell


@click.command("renew")
@own_argument
@now_option
@key_option
@last_out_option
def command(name: str, is_now: bool, key_name: str | None, out: Path | None) -> None:
    """Make the next epoch of your group for the same members: before the file ends, or now and then.

    A key that is taken from a member's memory opens no epoch but its own. The next epoch begins in ten
    minutes, with --now at once.

    \b
    Example:
      kcast group renew ops
    """
    with errors_as_lines("group renew"):
        from kcast.client.sealed.groups import time_text

        group, file = change("group renew", name, key_name, out, lambda group: group, is_now=is_now)
        begins = "now" if is_now else f"on {time_text(file.term.from_unix_s)}"
        until = time_text(file.term.until_unix_s)
        tell(f"{name}: epoch {file.epoch} begins {begins}; its file ends on {until}")
        tell_written(group)
