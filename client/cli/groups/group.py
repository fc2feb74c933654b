"""The group `kcast group`: one verb a module, each imported only when it is called."""

import click

from kcast.client.cli.commands import Commands

_HERE = "kcast.client.cli.groups"

# Verbs of the owner of a group, then of all members.
VERBS = {
    "new": (f"{_HERE}.new", "make a group, with you as its owner and first member"),
    "add": (f"{_HERE}.add", "add a member, or change what one may do"),
    "remove": (f"{_HERE}.remove", "remove a member: the next epoch has new secrets"),
    "renew": (f"{_HERE}.renew", "make the next epoch for the same members, before the file ends"),
    "show": (f"{_HERE}.show", "print a group: its owner, its epochs, its members"),
    "join": (f"{_HERE}.join", "join a group that somebody has added you to"),
}


@click.group("group", cls=Commands, members=VERBS)
def command() -> None:
    """Make groups that read and write sealed messages, and join them.

    A group has an owner, and a file that the owner signs. In that file are the secrets of one epoch, wrapped
    for each member, so that it may lie where anybody can read it. Whoever comes or goes does so with the next
    epoch, which has new secrets. Clients that run look at the file, or at its URL, once a minute.

    docs/sealed.md is the page to follow, from the first key to a member who is removed.
    """
