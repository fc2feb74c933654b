"""`kcast group add`: adds a member."""

from pathlib import Path

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import KeyCommand, own_argument
from kcast.client.cli.groups.owners import change, key_option, last_out_option, now_option, tell_written
from kcast.client.cli.text import tell


@click.command("add", cls=KeyCommand)
@own_argument
@click.argument("word")
@click.option("--write-only", is_flag=True, help="The member may write, and cannot read.")
@click.option(
    "--sender",
    "is_sender",
    is_flag=True,
    help="Readers take signed messages of this member. Once a group has senders, they take no others.",
)
@now_option
@key_option
@last_out_option
def command(
    name: str,
    word: str,
    write_only: bool,
    is_sender: bool,
    is_now: bool,
    key_name: str | None,
    out: Path | None,
) -> None:
    """Add a member to your group, by the WORD that 'kcast key show' shows there as 'member'.

    The member comes in with the next epoch, which begins in ten minutes, so that the clients of all have seen
    it by then; with --now it begins at once. A member who is there already gets the role that is given here.

    \b
    Example:
      kcast group add ops "$(ssh laptop kcast key show --json | jq -r .member)"
    """
    with errors_as_lines("group add"):
        from kcast.client.sealed.group_file import Role
        from kcast.client.sealed.group_owner import Membership
        from kcast.client.sealed.groups import time_text

        new = Membership.of(word, Role.WRITER if write_only else Role.READER, is_sender=is_sender)
        group, file = change(
            "group add", name, key_name, out, lambda group: group.with_member(new), is_now=is_now
        )
        what = f"{new.role}, and a sender," if is_sender else new.role
        begins = "now" if is_now else f"on {time_text(file.term.from_unix_s)}"
        tell(f"{name}: {new.member.key_text} is a {what} in epoch {file.epoch}, which begins {begins}")
        tell_written(group)
