"""What the owner of a group keeps, and how the next epoch is made of it. PROTOCOL §9.8.

    $XDG_CONFIG_HOME/kcast/own-groups/NAME.json 0600, beside the folder of keys

It has the members, with their words and roles, and the terms of the epochs that were made. It has no secret:
those of an epoch are drawn for it, wrapped for the members, and forgotten; the owner is a member as others
are. The numbers of epochs only rise, and each is written here before anybody can see its file: so no crash
makes two texts of one epoch.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from secrets import token_bytes
from typing import Any

from kcast.client.clusters import durable
from kcast.client.clusters.contexts import config_folder
from kcast.client.errors import did_you_mean
from kcast.client.messages import base64url
from kcast.client.sealed import group_file
from kcast.client.sealed.dhkem import KEY_BYTES
from kcast.client.sealed.group_file import MEMBERS_MAX, GroupFile, Recipient, Role, Secrets, Term
from kcast.client.sealed.keys import Identity, Member, parse_member
from kcast.client.sealed.membership import GroupError
from kcast.client.trust.forms.note import SigningKey, VerifierKey
from kcast.client.trust.state.locking import LOCK_WAIT_S, locked, require_ours, require_unshared
from kcast.pubsub.errors import KcastError

NOTICE_S = 600  # from when an epoch is made to when it begins
SEEN_S = 120  # by then all running clients have looked at the file, which they do once a minute
LIFE_DAYS, FRESH_DAYS = 90, 7
DAY_S = 86_400

_SUFFIX = ".json"
_FILE_BYTES_MAX = 1 << 20
_TERMS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Membership:
    """A member's word, as `kcast key show` prints it, and what the member may do."""

    word: str
    member: Member
    role: Role = Role.READER
    is_sender: bool = False

    @classmethod
    def of(cls, word: str, role: Role = Role.READER, *, is_sender: bool = False) -> "Membership":
        """Reads a member's word. Raises MemberError."""
        return cls(word, parse_member(word), role, is_sender)

    @property
    def recipient(self) -> Recipient:
        """The member as one for whom secrets are wrapped."""
        return Recipient(self.member.key, self.member.hpke_public, self.role, self.is_sender)


@dataclass(frozen=True)
class OwnGroup:
    """A group of this user's own: `terms` are those of its epochs, the newest last, without any that never
    hold; `file` is where the group file was written last."""

    name: str
    owner: VerifierKey
    members: tuple[Membership, ...]
    terms: tuple[Term, ...] = ()
    life_days: int = LIFE_DAYS
    fresh_days: int = FRESH_DAYS
    file: str = ""

    @property
    def epoch(self) -> int:
        """The number of the newest epoch; 0 before the first."""
        return self.terms[-1].epoch if self.terms else 0

    def member(self, key: bytes) -> Membership | None:
        """Returns the member with this Ed25519 key; None where there is none."""
        return next((each for each in self.members if each.member.key == key), None)

    def with_member(self, new: Membership) -> "OwnGroup":
        """Returns the group with one more member, or with another role of one. Raises GroupError."""
        others = tuple(each for each in self.members if each.member.key != new.member.key)
        if len(others) >= MEMBERS_MAX:
            raise GroupError(
                f"{self.name} has {MEMBERS_MAX:,} members, and cannot have more: make another group"
            )
        return replace(self, members=(*others, new))

    def without_member(self, key: bytes) -> "OwnGroup":
        """Returns the group without a member. Raises GroupError where it is none, or the only one."""
        others = tuple(each for each in self.members if each.member.key != key)
        if len(others) == len(self.members):
            raise GroupError(
                f"{base64url.encode(key)} is no member of {self.name}: 'kcast group show {self.name}' shows "
                "who is"
            )
        if not others:
            raise GroupError(f"{self.name} has no other member: add one before you remove this one")
        return replace(self, members=others)

    def next_term(self, unix_s: float, *, is_now: bool, seen: int = 0) -> Term:
        """Returns the term of the next epoch, which begins in ten minutes, or at once.

        `seen` is the number of the newest epoch that was seen elsewhere: what is kept here may be a backup.
        An epoch that is still to begin, and that members have time to see go, never holds; what it changes
        holds as early as was said.
        """
        settled_unix_s = unix_s if is_now else unix_s + SEEN_S
        begun = [term for term in self.terms if term.from_unix_s <= settled_unix_s]
        after = begun[-1] if begun else None
        from_unix_s = int(unix_s) if is_now else ceil(unix_s) + NOTICE_S
        from_unix_s = min([from_unix_s, *(each.from_unix_s for each in self.terms[len(begun) :])])
        if after is not None:
            from_unix_s = max(from_unix_s, after.from_unix_s + 1)
        until_unix_s = from_unix_s + self.life_days * DAY_S
        # So nothing ends that has not been told to be stale before.
        fresh_until_unix_s = from_unix_s + min(self.fresh_days * DAY_S, self.life_days * DAY_S * 9 // 10)
        epoch = 1 + max(self.epoch, seen)
        return Term(epoch, after.epoch if after else 0, from_unix_s, until_unix_s, fresh_until_unix_s)

    def with_term(self, term: Term) -> "OwnGroup":
        """Returns the group with one more epoch, and without those that never hold because of it."""
        kept = tuple(each for each in self.terms if each.epoch <= term.after)
        return replace(self, terms=(*kept, term)[-_TERMS_KEPT:])


def rekey(group: OwnGroup, key: SigningKey, term: Term) -> tuple[OwnGroup, GroupFile, bytes]:
    """Returns a group with its next epoch, whose secrets are drawn here, and the file of that, signed.

    Raises GroupFileError.
    """
    drawn = Secrets.of(token_bytes(KEY_BYTES), token_bytes(KEY_BYTES))
    recipients = (each.recipient for each in group.members)
    file, data = group_file.make(key, group.name, term, drawn, recipients)
    return group.with_term(term), file, data


def signing_key(group: OwnGroup, identity: Identity) -> SigningKey:
    """Returns the key by which the group's files are signed. Raises GroupError where it is another one."""
    key = identity.note_key_as(group.owner.name)
    if key.verifier != group.owner:
        whose = f"the key {identity.key_text}"
        raise GroupError(f"{group.name} is owned by {group.owner}, and not by {whose}: name its key by --key")
    return key


# --- On disk -----------------------------------------------------------------------------------------


def owned() -> list[str]:
    """Returns the names of this user's own groups, sorted."""
    with suppress(OSError, GroupError):
        return sorted(path.stem for path in _folder().glob(f"*{_SUFFIX}") if group_file.is_name(path.stem))
    return []


def path_of(name: str) -> Path:
    """Returns where a group of one's own is kept, whether or not it is there. Raises GroupError."""
    if not group_file.is_name(name):
        raise GroupError(f"{name!r} cannot be a group's name: give {group_file.NAME_FORM}")
    return _folder() / f"{name}{_SUFFIX}"


@contextmanager
def changing(wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Keeps other commands that change groups out meanwhile. Raises KcastError."""
    folder = _folder()
    try:
        durable.make_folder(folder, mode=0o700)
    except OSError as error:
        raise GroupError(f"{folder}: {error.strerror}: groups of your own have no other place") from None
    require_ours(folder)
    with locked(folder, wait_s):
        for draft in durable.drafts(folder, f"*{_SUFFIX}"):
            draft.unlink(missing_ok=True)
        yield


def load(name: str) -> OwnGroup:
    """Reads a group of one's own. Raises GroupError."""
    path = path_of(name)
    try:
        with path.open("rb") as file:
            require_unshared(path, os.fstat(file.fileno()))
            text = file.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise GroupError(
            f"there is no group {name} of yours{did_you_mean(name, owned())}: 'kcast group new {name}' makes "
            "one; only its owner changes a group"
        ) from None
    except OSError as error:
        raise GroupError(f"{path}: {error.strerror}") from None
    try:
        return _group_of(name, json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError, KcastError):
        raise GroupError(f"{path}: it is damaged: put a copy of it back there that you have kept") from None


def save(group: OwnGroup) -> None:
    """Writes a group of one's own. Raises GroupError."""
    path = path_of(group.name)
    fields = {
        "name": group.name,
        "owner": str(group.owner),
        "life_days": group.life_days,
        "fresh_days": group.fresh_days,
        "file": group.file,
        "epochs": [term._asdict() for term in group.terms],
        "members": [
            {"word": each.word, "role": each.role.value, "is_sender": each.is_sender}
            for each in group.members
        ],
    }
    try:
        durable.write_whole(path, f"{json.dumps(fields, indent=1)}\n".encode(), mode=0o600)
    except OSError as error:
        raise GroupError(f"{path}: {error.strerror}: nothing was changed") from None


def _group_of(name: str, fields: Any) -> OwnGroup:
    members = (
        Membership.of(each["word"], Role(each["role"]), is_sender=bool(each["is_sender"]))
        for each in fields["members"]
    )
    terms = tuple(Term(*(int(each.get(field, 0)) for field in Term._fields)) for each in fields["epochs"])
    if fields["name"] != name:
        raise ValueError(fields["name"])
    owner = VerifierKey.parse(fields["owner"])
    days = int(fields["life_days"]), int(fields.get("fresh_days", FRESH_DAYS))
    return OwnGroup(name, owner, tuple(members), terms, *days, str(fields["file"]))


def _folder() -> Path:
    folder = config_folder()
    if folder is None:
        raise GroupError("there is no place for groups of your own: set HOME or XDG_CONFIG_HOME to a folder")
    return folder / "own-groups"  # not "groups", which state has: both may be below one folder
