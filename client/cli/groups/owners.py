"""What the verbs of a group's owner share: options, and how the next epoch is made and written."""

from collections.abc import Callable
from pathlib import Path
from time import sleep, time
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from kcast.client.cli.common import FILE, say, several, tried, value_option
from kcast.client.cli.groups.names import shown_path
from kcast.client.cli.own_key import identity_of as identity_of
from kcast.client.cli.own_key import key_option as key_option
from kcast.client.cli.text import escaped, tell
from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.client.sealed.group_file import GroupFile
    from kcast.client.sealed.group_owner import OwnGroup
    from kcast.client.sealed.keys import Identity

_Command = TypeVar("_Command", bound=Callable[..., Any])


def out_option(default: str) -> Callable[[_Command], _Command]:
    """Adds the option `--out`."""
    return value_option("--out", FILE, f"Where to write the group file. [default: {default}]", unit="FILE")


change_options = several(
    click.option(
        "--now", "is_now", is_flag=True, help="Begin the next epoch at once, and say who will miss what."
    ),
    key_option,
    out_option("where it was written last"),
)
"""Adds the options of `change`: `--now`, `--key` and `--out`."""


class ChangeOptions(TypedDict):
    """What these options have been given."""

    is_now: bool
    key_name: str | None
    out: Path | None


def change(
    verb: str,
    name: str,
    changed: "Callable[[OwnGroup], OwnGroup]",
    told: "Callable[[GroupFile, str], str]",
    options: ChangeOptions,
) -> None:
    """Changes a group of one's own, and makes and writes its next epoch; says who will miss what of one that
    begins at once. `told` says what was done, of the file and when its epoch begins. Raises KcastError."""
    from kcast.client.sealed import group_owner
    from kcast.client.sealed.groups import time_text

    is_now = options["is_now"]
    with group_owner.changing():
        before = group_owner.load(name)
        after = changed(before)
        identity = identity_of(options["key_name"])
        path = options["out"] or Path(before.file or f"{name}.group")
        after, file = write_next(after, identity, path, is_now=is_now)
        _tell_what_waited(before, file)
        if file.epoch > before.epoch + 1:
            say(
                verb,
                f"your list of members is an old one: who was removed is in again: kcast group show {name}",
            )
        if is_now:
            _tell_who_misses(verb, before, after, identity)
    begins = "now" if is_now else f"on {time_text(file.term.from_unix_s)}"
    tell(f"{name}: {told(file, begins)}")
    tell_written(after)


def write_next(
    group: "OwnGroup", identity: "Identity", path: Path, *, is_now: bool
) -> "tuple[OwnGroup, GroupFile]":
    """Makes a group's next epoch, and writes what the owner keeps, what a member keeps, and the group file,
    in this order. Raises KcastError, before anything is written where the file is another's."""
    from dataclasses import replace

    from kcast.client.clusters import durable
    from kcast.client.sealed import group_owner, groups
    from kcast.client.sealed.membership import GroupError

    key = group_owner.signing_key(group, identity)
    now = time()
    term = group.next_term(now, is_now=is_now, seen=_newest_seen(group, path))
    source = groups.place_of(str(path))
    group, file, data = group_owner.rekey(replace(group, file=source), key, term)
    group_owner.save(group)
    groups.take_own(file, data, source, now)
    try:
        durable.write_whole(path, data)
    except OSError as error:
        raise GroupError(
            f"{path}: {error.strerror}: epoch {file.epoch} was made, but not written there: give --out FILE "
            f"to 'kcast group renew {group.name}'"
        ) from None
    if is_now:  # two epochs do not begin in one second: what is typed next finds that it has begun
        sleep(max(file.term.from_unix_s - time(), 0))
    return group, file


def _newest_seen(group: "OwnGroup", path: Path) -> int:
    """Returns the newest epoch that lies anywhere here. Raises GroupError where the file is of another group,
    or cannot be written."""
    from kcast.client.sealed import groups
    from kcast.client.sealed.group_store import GroupStore
    from kcast.client.sealed.membership import GroupError

    store = GroupStore(group.name)
    newest = store.files()[-1].epoch if store.is_joined() and store.owner() == group.owner else 0
    if not path.absolute().parent.is_dir():
        raise GroupError(f"{path}: there is no folder {path.absolute().parent}: make it, or give --out FILE")
    if not path.exists():
        return newest
    try:
        file = groups.read_group_file(str(path))
    except KcastError:
        raise GroupError(
            f"{path}: it is there, and no group file: move it away, or give --out FILE"
        ) from None
    if (file.name, file.owner) != (group.name, group.owner):
        raise GroupError(f"{path}: it is another group's file, {file.name} of {file.owner}: give --out FILE")
    return max(newest, file.epoch)


def _tell_what_waited(before: "OwnGroup", file: "GroupFile") -> None:
    """Says when an epoch holds that was made before, and has not begun: somebody may be removed by it."""
    from kcast.client.sealed.groups import time_text

    waiting = before.terms[-1]
    if waiting.epoch > file.term.after:
        tell(f"{before.name}: what epoch {waiting.epoch} was to change begins with epoch {file.epoch}")
    elif waiting.from_unix_s > time():
        tell(f"{before.name}: epoch {waiting.epoch} begins on {time_text(waiting.from_unix_s)}, as was said")


def _tell_who_misses(verb: str, before: "OwnGroup", after: "OwnGroup", identity: "Identity") -> None:
    there = {each.member.key for each in after.members}
    stay = [each.member for each in before.members if each.member.key in there]
    keys = [member.key_text for member in stay if member.key != identity.signer.key]
    if keys:
        say(
            verb,
            f"epoch {after.epoch} begins at once: until their clients have looked at the new file, which "
            "they do once a minute, these miss what is sealed now, and what they seal themselves is dropped: "
            + tried(keys),
        )


def tell_written(group: "OwnGroup") -> None:
    """Says where the file is, and what members do with it."""
    path = escaped(shown_path(group.file))
    tell(f"wrote {path}: put it where your members' clients look, a file or a URL; who is new there types:")
    tell(f"  kcast group join {path} --owner {escaped(str(group.owner))}")
