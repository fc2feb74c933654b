"""`kcast group remove`: removes a member."""

from typing import Unpack

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import KeyCommand, own_argument
from kcast.client.cli.groups.owners import ChangeOptions, change, change_options


@click.command("remove", cls=KeyCommand)
@own_argument
@click.argument("key")
@change_options
def command(name: str, key: str, **options: Unpack[ChangeOptions]) -> None:
    """Remove a member from your group, by its KEY, 43 characters, which 'kcast group show' shows.

    The member reads and writes until the next epoch begins, which is in ten minutes, so that the clients of
    all others have its secrets by then; with --now it begins at once. What was sealed before stays readable
    to whoever was a member then.

    \b
    Example:
      kcast group remove ops 6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw
    """
    with errors_as_lines("group remove"):
        from kcast.client.clusters.facts import shown
        from kcast.client.sealed.membership import GroupError
        from kcast.client.sealed.signing import parse_key

        gone = parse_key(key.partition(".")[0])  # a member's word begins with the key
        if gone is None:
            raise GroupError(
                f"{shown(key)} is no key, which has 43 characters: 'kcast group show {name}' shows them"
            )
        done = f"{key.partition('.')[0]} is out of epoch"
        meanwhile = "" if options["is_now"] else "; until then it reads and writes"
        change(
            "group remove",
            name,
            lambda group: group.without_member(gone),
            lambda file, begins: f"{done} {file.epoch}, which begins {begins}{meanwhile}",
            options,
        )
