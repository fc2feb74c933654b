"""`kcast group show`: prints a group."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import complete_joined
from kcast.client.cli.text import escaped, tell, to_json

if TYPE_CHECKING:
    from kcast.client.sealed.group_file import GroupFile


@click.command("show")
@click.argument("what", metavar="NAME|FILE", shell_complete=complete_joined)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str, as_json: bool) -> None:
    """Print a group: its owner, its epochs, its members. NAME is a group that you have joined.

    The file's signature is checked. No key of yours is needed.

    With --json the keys are name, owner, source (where clients look), is_pinned (whether this owner was named
    when the group was joined here), epochs (epoch, after, from and until, in seconds since 1970), senders,
    readers and writers (keys), of the newest epoch.

    \b
    Examples:
      kcast group show ops
      kcast group show ./ops.group --json
    """
    with errors_as_lines("group show"):
        from kcast.client.sealed import group_file, groups, key_names
        from kcast.client.sealed.group_store import GroupStore
        from kcast.client.sealed.membership import GroupError

        if key_names.is_file(what):
            files: Sequence[GroupFile] = (groups.read_group_file(what),)
            store = groups.store_of(files[0])
            source = ""
        elif not group_file.is_name(what):
            raise GroupError(f"{what!r} cannot be a group's name: give {group_file.NAME_FORM}, or a file")
        else:
            store = GroupStore(what)
            files, source = store.files(), store.source
        is_pinned = store.is_joined() and store.owner() == files[-1].owner
        for line in (
            (to_json(_as_fields(files, source, is_pinned=is_pinned)),)
            if as_json
            else _as_text(files, source, is_pinned=is_pinned)
        ):
            tell(line)


def _as_fields(files: "Sequence[GroupFile]", source: str, *, is_pinned: bool) -> dict[str, object]:
    from kcast.client.sealed.group_file import Role

    newest = files[-1]
    return {
        "name": newest.name,
        "owner": str(newest.owner),
        "source": source or None,
        "is_pinned": is_pinned,
        "epochs": [
            {
                "epoch": file.epoch,
                "after": file.term.after,
                "from": file.term.from_unix_s,
                "until": file.term.until_unix_s,
            }
            for file in files
        ],
        "senders": _keys(newest.senders),
        "readers": _keys(each.key for each in newest.members if each.role is Role.READER),
        "writers": _keys(each.key for each in newest.members if each.role is Role.WRITER),
    }


def _as_text(files: "Sequence[GroupFile]", source: str, *, is_pinned: bool) -> Iterator[str]:
    from kcast.client.sealed.groups import time_text

    newest = files[-1]
    yield f"name    {escaped(newest.name)}"
    yield f"owner   {escaped(str(newest.owner))}{'' if is_pinned else ', which was not pinned here'}"
    for file in files:
        yield f"epoch   {file.epoch}, from {time_text(file.term.from_unix_s)} on"
    yield f"until   {time_text(newest.term.until_unix_s)}"
    if source:
        yield f"source  {escaped(source)}"
    for key in _keys(newest.senders):
        yield f"sender  {key}"
    for each in newest.members:
        yield f"{each.role}  {_keys((each.key,))[0]}"


def _keys(keys: "Iterator[bytes] | Sequence[bytes]") -> list[str]:
    from kcast.client.sealed.signing import key_text

    return [key_text(key) for key in keys]
