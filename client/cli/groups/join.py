"""`kcast group join`: joins a group, and pins its owner."""

import click

from kcast.client.cli.common import errors_as_lines, value_option
from kcast.client.cli.groups.owners import identity_of, key_option
from kcast.client.cli.text import escaped, tell


@click.command("join")
@click.argument("source", metavar="FILE|URL", type=click.Path())
@value_option(
    "--owner",
    str,
    "The key of the group's owner, as the owner has told you by another way than the file's.",
    unit="VKEY",
)
@value_option("--as local_name", str, "Call the group so here, where another one has its name.", unit="NAME")
@key_option
def command(source: str, owner: str | None, local_name: str | None, key_name: str | None) -> None:
    """Join a group that somebody has added you to. Clients look at FILE or URL once a minute from then on.

    The group file may come from anywhere, so it matters who has signed it: only files of this owner will
    count as the group's. Without --owner the key is shown, and nothing is joined. Where the group was joined
    already, the file is taken if it is newer, and is the place to look at from now on. Where another owner's
    group of the same name was joined, give --as NAME.

    \b
    Example:
      kcast group join ops.group --owner ops-key+1f3a77c2+AdhLj4...
    """
    with errors_as_lines("group join"):
        from kcast.client.sealed import groups
        from kcast.client.sealed.groups import time_text
        from kcast.client.sealed.membership import GroupError
        from kcast.client.trust.forms.note import NoteError, VerifierKey

        if owner is None:
            groups.show_owner(source)
        try:
            key = VerifierKey.parse(owner)
        except NoteError as error:
            raise GroupError(
                f"--owner: {error}: ask the group's owner for the line 'vkey' of 'kcast key show'"
            ) from None
        file, is_new = groups.join(source, key, identity_of(key_name), local_name)
        term = file.term
        done = "joined" if is_new else "held already, and up to date"
        begins = f"epoch {term.epoch} is from {time_text(term.from_unix_s)} on"
        until = time_text(term.until_unix_s)
        tell(f"{escaped(local_name or file.name)}: {done}; {begins}, and the file ends on {until}")
