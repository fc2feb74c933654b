"""`kcast group new`: makes a group."""

from pathlib import Path

import click

from kcast.client.cli.common import errors_as_lines, value_option
from kcast.client.cli.groups.owners import key_option, out_option, tell_written, write_next
from kcast.client.cli.own_key import identity_or_new
from kcast.client.cli.text import tell


@click.command("new")
@click.argument("name")
@key_option
@out_option("NAME.group")
@value_option(
    "--days", click.IntRange(1, 3650), "How long a group file may be used, from when its epoch begins.", 90
)
@value_option(
    "--fresh",
    click.IntRange(1, 3650),
    "After how many days members are told that there should be a newer epoch. Renew twice as often.",
    7,
    unit="DAYS",
)
def command(name: str, key_name: str | None, out: Path | None, days: int, fresh: int) -> None:
    """Make a group, with you as its owner and its first reader. Its first epoch holds at once.

    NAME is 1 to 64 of a-z, 0-9, '-' and '_'. The group file is signed with your key, and only that key makes
    further epochs. Where no key is named and there is none, it is made. Who the members are is kept in
    kcast/own-groups of $XDG_CONFIG_HOME, by default ~/.config: make a copy of it, as of your key.

    \b
    Example:
      kcast group new ops
    """
    with errors_as_lines("group new"):
        from kcast.client.sealed import group_owner
        from kcast.client.sealed.group_owner import Membership, OwnGroup
        from kcast.client.sealed.group_store import GroupStore
        from kcast.client.sealed.groups import time_text
        from kcast.client.sealed.membership import GroupError

        with group_owner.changing():
            kept = group_owner.path_of(name)
            if kept.exists():
                raise GroupError(
                    f"there is a group {name} of yours already ({kept}): give another name, or have its file "
                    f"written anew by 'kcast group renew {name}'"
                )
            if GroupStore(name).is_joined():
                raise GroupError(f"you have joined a group {name} of somebody else: give another name")
            path = out or Path(f"{name}.group")
            if path.exists():
                raise GroupError(f"{path}: it is there already: move it away, or give --out FILE")
            identity = identity_or_new("group new", key_name)
            owner = identity.note_key.verifier
            group = OwnGroup(name, owner, (Membership.of(identity.member_word),), (), days, fresh)
            group, file = write_next(group, identity, path, is_now=True)
        tell(f"{name}: epoch 1 holds now; the file ends on {time_text(file.term.until_unix_s)}")
        tell_written(group)
