"""`kcast group add`: adds a member."""

import sys
from typing import Unpack

import click

from kcast.client.cli.common import EXIT_USAGE, errors_as_lines, fail
from kcast.client.cli.groups.names import KeyCommand, own_argument
from kcast.client.cli.groups.owners import ChangeOptions, change, change_options


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
@change_options
@click.option("--yes", "is_compared", is_flag=True, help="Ask nothing: the key was compared already.")
def command(
    name: str,
    word: str,
    write_only: bool,
    is_sender: bool,
    is_compared: bool,
    **options: Unpack[ChangeOptions],
) -> None:
    """Add a member to your group, by the WORD that 'kcast key show' shows there as 'member'.

    Anybody between you and the member can put a word of theirs in place of it. So it shows the short form of
    the key, which the member's 'kcast key show' shows, too, and asks whether you have compared the two: by a
    call, for instance. Nothing is asked of a member who is there already, who gets the role given here.

    The member comes in with the next epoch, which begins in ten minutes, so that the clients of all have seen
    it by then; with --now it begins at once.

    \b
    Example:
      kcast group add ops "$(ssh laptop kcast key show --json | jq -r .member)"
    """
    with errors_as_lines("group add"):
        from kcast.client.sealed.group_file import Role
        from kcast.client.sealed.group_owner import Membership, load
        from kcast.client.sealed.keys import short_form

        new = Membership.of(word, Role.WRITER if write_only else Role.READER, is_sender=is_sender)
        short = short_form(new.member.key)
        if not is_compared and load(name).member(new.member.key) is None:
            _require_compared(short)
        what = f"{new.role}, and a sender," if is_sender else new.role
        done = f"{new.member.key_text} ({short}) is a {what}"
        change(
            "group add",
            name,
            lambda group: group.with_member(new),
            lambda file, begins: f"{done} in epoch {file.epoch}, which begins {begins}",
            options,
        )


def _require_compared(short: str) -> None:
    """Has the user compare the key with the member's; ends the program where that is not done."""
    if sys.stdin is None or not sys.stdin.isatty():
        text = f"compare {short} with the line 'short' of the member's 'kcast key show', and then give --yes"
        fail("group add", text, EXIT_USAGE)
    if not click.confirm(f"Does the member's 'kcast key show' say {short}, too?", err=True):
        fail("group add", "nobody was added: have the member send the word again")
