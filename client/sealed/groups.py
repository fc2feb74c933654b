"""Groups that this user has joined: joining, loading, and looking for a newer file. PROTOCOL §9.8.

A group is named by its name, once it was joined, or by a file of it, which then is the place to look at. Only
`join` pins an owner: a file of a group that was not joined is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import gmtime, monotonic, strftime, time
from typing import NoReturn

from kcast.client.events import GroupTrouble
from kcast.client.sealed import group_file, key_names
from kcast.client.sealed.group_file import FILE_BYTES_MAX, NAME_FORM, GroupFile, GroupFileError, Head
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.key_names import joined
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import TWO_TEXTS, GroupFault, follow, group_of, living
from kcast.client.sealed.membership import Group as Group  # what `load` returns, for those who call it
from kcast.client.sealed.membership import GroupError as GroupError
from kcast.client.sealed.topics import beacon_of
from kcast.client.trust.forms.note import VerifierKey
from kcast.client.trust.reach.sources import SourceError, fetch, read_file

LOOK_INTERVAL_S = 60.0
FETCH_S = 10.0  # a command that names a group by its URL waits no longer

_BEARABLE = frozenset(  # in a file that is named
    {GroupFault.NOT_MEMBER, GroupFault.STALE, GroupFault.UNSTORED}
)

Read = Callable[[str], bytes]


def load(what: str, identity: Identity | None = None, *, unix_s: float | None = None) -> Group:
    """Returns a group to read or write in now: one that was joined, by its name, or by a file of it.

    What contains `/` or `.` is a file. Looks for a newer file; what is wrong with that is in the
    group's `troubles`. `identity` is by default the user's default key. Raises KcastError, whose message says
    what to do; also where the user is no member, the group has ended, or its epoch has not begun.
    """
    me = identity or Identity.load()
    now = time() if unix_s is None else unix_s
    if key_names.is_file(what):
        data = read(what)
        store = _store_of_file(what, data)
        found = look(store, me, now, place_of(what), reading=lambda _: data)
        for trouble in found.troubles:
            if trouble.fault not in _BEARABLE:
                raise GroupError(trouble.text, GroupFault(trouble.fault))
    else:
        if not group_file.is_name(what):
            raise GroupError(f"{what!r} cannot be a group's name: give {NAME_FORM}, or the path of a file")
        store = GroupStore(what)
        store.owner()
        found = look(store, me, now, store.source, is_forced=False)
    require_usable(store, found.group, me, now)
    return replace(found.group, troubles=found.troubles)


def show_owner(what: str) -> NoReturn:
    """Raises a GroupError which names the owner of a file or URL, and says how to join it."""
    file = read_group_file(what)
    raise GroupError(
        f"{what} is of the group {file.name}, and says that its owner is {file.owner}: ask the owner, by "
        f"another way than the file's, for the line 'vkey' of 'kcast key show', and then type: kcast group "
        f"join {what} --owner VKEY",
        GroupFault.WRONG_OWNER,
    )


def join(
    what: str,
    owner: VerifierKey,
    identity: Identity,
    name: str | None = None,
    *,
    unix_s: float | None = None,
) -> tuple[GroupFile, bool]:
    """Joins a group by a file or URL, and pins its owner; where that is done, takes it as a newer file.

    `name` is what the group is called here, by default its own name. Returns the file, and whether the group
    is a new one here. Raises KcastError.
    """
    now = time() if unix_s is None else unix_s
    data = read(what)
    file = _parsed(what, data)
    if file.owner != owner:
        raise GroupError(
            f"{what}: its owner is {file.owner}, and not {owner}: nothing was joined; ask the owner by "
            "another way than the file's which key is theirs",
            GroupFault.WRONG_OWNER,
        )
    _require_lasting(what, file, now)
    _require_member(what, file, identity)
    if name is not None and not group_file.is_name(name):
        raise GroupError(f"{name!r} cannot be a group's name: give {NAME_FORM}")
    store = GroupStore(name) if name else store_of(file)
    if not store.is_joined():
        try:
            store.begin(file, data, place_of(what))
        except OSError as error:
            raise GroupError(
                f"{error.filename or store.folder}: {error.strerror}: nothing was joined"
            ) from None
        return file, True
    if store.owner() != owner:
        raise GroupError(
            f"{what} is of the owner {owner}, and {store.name} was joined here already, of the owner "
            f"{store.owner()}: to have both, give --as NAME, which the new one is called by here"
        )
    with store.locked():
        _take(store, data, now, what)
        try:
            store.look_at(place_of(what))
        except OSError as error:
            raise GroupError(f"{store.folder}: {error.strerror}: the new place was not kept") from None
    return file, False


def store_of(file: GroupFile) -> GroupStore:
    """Returns the state of a file's group, whatever it is called here; where it was not joined, that of its
    name. Raises KcastError."""
    stores = map(GroupStore, (file.name, *joined()))
    return next((store for store in stores if store.is_of(file)), GroupStore(file.name))


def take_own(file: GroupFile, data: bytes, source: str, unix_s: float) -> None:
    """Takes a file that this user, who owns the group, has made just now. Raises KcastError."""
    store = GroupStore(file.name)
    try:
        if not store.is_joined():
            store.begin(file, data, source)
            return
        with store.locked():
            _take(store, data, unix_s, store.name)
            store.look_at(source)
    except OSError as error:
        raise GroupError(
            f"{error.filename or store.folder}: {error.strerror}: join the new file there"
        ) from None


# --- Looking for a newer file ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """What a look has found: the group as it is now, what is wrong, and why nothing could be read, if so."""

    group: Group
    troubles: tuple[GroupTrouble, ...] = ()
    failure: str = ""


def look(
    store: GroupStore,
    me: Identity,
    unix_s: float,
    source: str,
    *,
    reading: Read | None = None,
    is_forced: bool = True,
    forget_unix_s: float = -inf,
    other: Head | None = None,
) -> Look:
    """Reads file or URL, stores it if it is a newer epoch, and forgets epochs whose time has passed.

    A URL is left alone where the last look was less than a minute ago, unless this one `is_forced`. From the
    disk goes what has passed at `forget_unix_s`, of which the caller is sure: one look at a clock may be
    wrong. `other` is a head that a member says. Raises KcastError only where the state itself cannot
    be used.
    """
    troubles, failure, data = [], "", None
    if source and (is_forced or not _is_url(source) or _is_due(store, unix_s)):
        try:
            data = (reading or read)(source)
        except (GroupError, SourceError) as error:
            failure = str(error)
    with store.locked():
        if data is not None:
            try:
                _take(store, data, unix_s, source)
            except GroupError as error:
                if error.fault is None:
                    raise
                troubles.append(_trouble(store, error.fault, str(error)))
        files = store.files()
        if other is not None and other.term.epoch == files[-1].epoch and other != files[-1].head:
            text = f"another member says: {TWO_TEXTS}{store.keep_evidence(other)}"
            troubles.append(_trouble(store, GroupFault.TWO_TEXTS, text))
        try:
            store.keep_only(living(files, forget_unix_s))
        except OSError as error:
            text = f"{store.folder}: {error.strerror}: what has ended could not be removed from there"
            troubles.append(_trouble(store, GroupFault.UNSTORED, text))
        files = living(files, unix_s)
        group = group_of(files, me, source)
        topics = {epoch.number: beacon_of(epoch.topic_secret) for epoch in group.epochs}
        beacons = store.beacons(files, topics, unix_s)
    newest = files[-1]
    begins = f"from {time_text(newest.term.from_unix_s)} on, its epoch {newest.epoch}, you"
    last = group.epochs[-1] if group.epochs else None
    if last is None or last.number != newest.epoch:
        troubles.append(_trouble(store, GroupFault.NOT_MEMBER, f"{begins} are no member"))
    elif last.private is None and any(epoch.private for epoch in group.epochs):
        text = f"{begins} may write, but not read: ask its owner to add you as a reader"
        troubles.append(_trouble(store, GroupFault.NOT_READER, text))
    until = time_text(newest.term.until_unix_s)
    renew = f"its owner makes the next epoch by 'kcast group renew {newest.name}'"
    if unix_s >= newest.term.until_unix_s:
        troubles.append(_trouble(store, GroupFault.EXPIRED, f"it ended on {until}: {renew}"))
    elif unix_s >= newest.term.fresh_until_unix_s:
        fresh_until = time_text(newest.term.fresh_until_unix_s)
        text = (
            f"its epoch {newest.epoch} was to be renewed by {fresh_until}, and ends on {until}: either "
            f"{renew} too seldom, or {source or 'who has sent the file'} hands out an old one: ask the owner "
            "which is the newest"
        )
        troubles.append(_trouble(store, GroupFault.STALE, text))
    return Look(replace(group, name=store.name, beacons=beacons), tuple(troubles), failure)


def _take(store: GroupStore, data: bytes, unix_s: float, what: str) -> None:
    """Stores a file where it is a newer epoch. The lock must be held. Raises GroupError."""
    file = _parsed(what, data)
    held = store.files()
    try:
        followed = follow(held, file)
    except GroupError as error:
        kept = store.keep_evidence(file.head) if error.fault is GroupFault.TWO_TEXTS else ""
        raise GroupError(f"{what}: {error}{kept}", error.fault) from None
    if followed is None:
        if not store.is_unstored(file):
            return
        followed = held  # the disk may take it now
    _require_lasting(what, file, unix_s)
    try:
        store.keep(file, data)
        store.keep_only(followed)
    except OSError as error:
        raise GroupError(
            f"{error.filename or store.folder}: {error.strerror}: epoch {file.epoch} is in use, but after a "
            "restart an older file would not be noticed",
            GroupFault.UNSTORED,
        ) from None


def _trouble(store: GroupStore, fault: GroupFault, text: str) -> GroupTrouble:
    return GroupTrouble(store.name, fault.value, text)


def _is_due(store: GroupStore, unix_s: float) -> bool:
    with store.locked():
        return store.begin_look(unix_s, LOOK_INTERVAL_S)


# --- Files and URLs ----------------------------------------------------------------------------------


def read(what: str) -> bytes:
    """Returns what a file or a URL holds, at most a byte more than a group file may. Raises GroupError and
    SourceError."""
    if _is_url(what):
        data = fetch(what, FILE_BYTES_MAX, deadline=monotonic() + FETCH_S, silence_s=FETCH_S)
    else:
        data = read_file(Path(what), what, FILE_BYTES_MAX)
    if data is None:
        raise GroupError(f"{what}: there is no such file: get it from the group's owner")
    return data


def read_group_file(what: str) -> GroupFile:
    """Returns what a file or a URL holds. Raises GroupError and SourceError."""
    return _parsed(what, read(what))


def place_of(what: str) -> str:
    """Returns a file's absolute path, or the URL."""
    return what if _is_url(what) else str(Path(what).absolute())


def _is_url(what: str) -> bool:
    return what.startswith(("http://", "https://"))


def _parsed(what: str, data: bytes) -> GroupFile:
    try:
        return group_file.parse(data)
    except GroupFileError as error:
        raise GroupError(f"{what}: not a group file: {error}", GroupFault.MALFORMED) from None


def _store_of_file(what: str, data: bytes) -> GroupStore:
    file = _parsed(what, data)
    store = store_of(file)
    if not store.is_joined():
        raise GroupError(
            f"{what}: the owner of this group {file.name} is not known here: 'kcast group join {what}' shows "
            "the key, and how to join",
            GroupFault.WRONG_OWNER,
        )
    return store


# --- What is required --------------------------------------------------------------------------------


def require_usable(store: GroupStore, group: Group, identity: Identity, unix_s: float) -> None:
    """Sees that a group can be used now. Raises GroupError."""
    if group.writing(unix_s) is not None:
        return
    newest = store.files()[-1]
    name = f"the group {store.name}"
    _require_lasting(name, newest, unix_s)
    _require_member(name, newest, identity)
    begin = time_text(newest.term.from_unix_s)
    raise GroupError(
        f"{name}: its epoch {newest.epoch} begins on {begin}, and you have no earlier one: wait until then, "
        f"or have its owner run: kcast group renew {store.name} --now"
    )


def _require_lasting(what: str, file: GroupFile, unix_s: float) -> None:
    if unix_s >= file.term.until_unix_s:
        raise GroupError(
            f"{what}: it ended on {time_text(file.term.until_unix_s)}: get a newer file from the owner, who "
            f"makes one by 'kcast group renew {file.name}'",
            GroupFault.EXPIRED,
        )


def _require_member(what: str, file: GroupFile, identity: Identity) -> None:
    try:
        is_member = file.open(identity) is not None
    except GroupFileError:
        is_member = False
    if not is_member:
        raise GroupError(
            f"{what}: you are no member (epoch {file.epoch}): its owner must run: "
            f"kcast group add {file.name} {identity.member_word}",
            GroupFault.NOT_MEMBER,
        )


def time_text(unix_s: float) -> str:
    """Returns a time as people read it, in UTC."""
    return strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(unix_s))
