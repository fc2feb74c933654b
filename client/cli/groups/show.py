"""`kcast group show`: prints a group."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.groups.names import complete_joined
from kcast.client.cli.text import escaped, tell, to_json
from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.client.sealed.group_file import GroupFile


@click.command("show")
@click.argument("what", metavar="NAME|FILE", shell_complete=complete_joined)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str, as_json: bool) -> None:
    """Print a group: its owner, its epochs, its members. NAME is a group that you have joined.

    The file's signature is checked. Its owner sees all members, a member the keys of those whose messages
    count, and anybody how many there are.

    With --json the keys are name, owner, source (where clients look), is_pinned (whether this owner was named
    when the group was joined here), epochs (epoch, after, from, fresh_until and until, in seconds since
    1970), and, of the newest one, readers and writers (how many), senders (keys, or null) and members (key
    and role of each, or null).

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
        fields = _fields(files, source, is_pinned=is_pinned)
        for line in (to_json(fields),) if as_json else _text(fields):
            tell(line)


def _fields(files: "Sequence[GroupFile]", source: str, *, is_pinned: bool) -> dict[str, Any]:
    newest = files[-1]
    roles = [role.value for role, _ in newest.members]
    return {
        "name": newest.name,
        "owner": str(newest.owner),
        "source": source or None,
        "is_pinned": is_pinned,
        "epochs": [
            {name.removesuffix("_unix_s"): value for name, value in file.term._asdict().items()}
            for file in files
        ],
        "readers": roles.count("reader"),
        "writers": roles.count("writer"),
        "senders": _senders(newest),
        "members": _members(newest),
    }


def _text(fields: dict[str, Any]) -> Iterator[str]:
    from kcast.client.sealed.groups import time_text

    newest = fields["epochs"][-1]
    yield f"name     {fields['name']}"
    yield f"owner    {escaped(fields['owner'])}{'' if fields['is_pinned'] else ', which was not pinned here'}"
    for each in fields["epochs"]:
        yield f"epoch    {each['epoch']}, from {time_text(each['from'])} on"
    yield f"fresh    until {time_text(newest['fresh_until'])}"
    yield f"until    {time_text(newest['until'])}"
    if fields["source"]:
        yield f"source   {escaped(fields['source'])}"
    yield f"readers  {fields['readers']}"
    yield f"writers  {fields['writers']}"
    for key in fields["senders"] or ():
        yield f"sender   {key}"
    for each in fields["members"] or ():
        yield f"{each['role']}   {each['key']}"


def _senders(file: "GroupFile") -> list[str] | None:
    """Returns the keys of those whose messages count; None where the user's key does not open the file."""
    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.signing import key_text

    with suppress(KcastError):
        if opened := file.open(Identity.load()):
            return sorted(map(key_text, opened.senders))
    return None


def _members(file: "GroupFile") -> list[dict[str, str]] | None:
    """Returns the members of a group of this user's own; None of any other."""
    from kcast.client.sealed import group_owner

    with suppress(KcastError):
        group = group_owner.load(file.name)
        if (group.owner, group.epoch) == (file.owner, file.epoch):
            return [{"key": each.member.key_text, "role": each.role.value} for each in group.members]
    return None
