"""What group files mean for a member: which epochs are held, and which file may follow which. Sans-IO.
PROTOCOL §9.8.

An epoch holds from its T to the next one's. What was sealed near its end may still be on its way then: so it
is held, to read, for 150 s more (a clock 30 s off, and 120 s that a message may be old), and then forgotten.
Files are kept by their number alone: what goes from the disk by a clock goes in `groups.look`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from kcast.client.events import GroupTrouble
from kcast.client.sealed.group_file import GroupFile, GroupFileError
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.sealing import Epoch
from kcast.client.trust.forms.note import VerifierKey
from kcast.pubsub.errors import KcastError

LINGER_S = 150.0
HELD_MAX = 8  # files of epochs one after the other
TWO_TEXTS = (
    "there are two texts of an epoch that is held: its owner's key tells different members different things. "
    "Ask its owner for the next epoch, and who else has the key; the heads of both are in "
)


class GroupFault(StrEnum):
    """What can be wrong with a group, or with a newer file of it.

    - `unreachable`: the file, or what the URL leads to, could not be read, three times in a row.
    - `malformed`: it is no group file, or a damaged one, or its owner has not signed it.
    - `wrong-name`: it is another group's.
    - `wrong-owner`: it is of another owner than the one who was pinned.
    - `rollback`: its epoch is older than the one held.
    - `two-texts`: it has another head than the one held, of the same epoch. Only its owner can make two.
    - `too-early`: it begins before the epoch that it follows.
    - `behind`: other members have a newer epoch, and what is looked at has not. Told each minute.
    - `flooded`: much is said where members tell each other of newer epochs, and its owner has not signed it.
    - `not-member`: it has no line for this member.
    - `not-reader`: this member reads an epoch that is held, and may only write in the newest one.
    - `stale`: its owner meant to have made another epoch by now: an old file may be handed out.
    - `expired`: it has ended.
    - `unstored`: the disk takes nothing: after a restart an older file would not be noticed.
    """

    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"
    WRONG_NAME = "wrong-name"
    WRONG_OWNER = "wrong-owner"
    ROLLBACK = "rollback"
    TWO_TEXTS = "two-texts"
    TOO_EARLY = "too-early"
    BEHIND = "behind"
    FLOODED = "flooded"
    NOT_MEMBER = "not-member"
    NOT_READER = "not-reader"
    STALE = "stale"
    EXPIRED = "expired"
    UNSTORED = "unstored"


class GroupError(KcastError):
    """A group cannot be used. The message is one line that says what to do; `fault` its kind, if it has
    one."""

    def __init__(self, text: str, fault: GroupFault | None = None) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True)
class Group:
    """A group as a member has it. `epochs` are those held whose secrets it has, in their order.

    `newest` is the number of the newest epoch, whose secrets it may lack, and `until_unix_s` when the file of
    that one ends. `source` is the file or URL that a running client looks at; `troubles` is what was wrong
    when the group was loaded. Times are seconds since 1970.

    `head` is what the owner has signed of the newest epoch, and `beacons` are the topics on which members
    tell each other of it.
    """

    name: str
    owner: VerifierKey
    epochs: tuple[Epoch, ...]
    until_unix_s: int
    newest: int = 0
    source: str = ""
    troubles: tuple[GroupTrouble, ...] = field(default=(), compare=False)
    head: bytes = field(default=b"", repr=False)
    beacons: tuple[bytes, ...] = field(default=(), repr=False)

    def writing(self, unix_s: float) -> Epoch | None:
        """Returns the epoch to seal in; None where none is in force, or the group has ended."""
        if unix_s >= self.until_unix_s:
            return None
        in_force = (each for each in self.epochs if each.from_unix_s <= unix_s < each.next_from_unix_s)
        return next(in_force, None)

    def held(self, unix_s: float, lead_s: float = 0.0) -> tuple[Epoch, ...]:
        """Returns the epochs to listen in: each from `lead_s` before its T to 150 s after its end."""
        return tuple(
            epoch
            for epoch in self.epochs
            if epoch.from_unix_s - lead_s <= unix_s < self.end_of(epoch) + LINGER_S
        )

    def next_change(self, unix_s: float) -> float:
        """Returns when an epoch is to be forgotten next; infinite where none is."""
        ends = (self.end_of(epoch) + LINGER_S for epoch in self.epochs)
        return min((end for end in ends if end > unix_s), default=inf)

    def without_past(self, unix_s: float) -> "Group":
        """Returns the group without the epochs that are to be forgotten."""
        kept = tuple(epoch for epoch in self.epochs if unix_s < self.end_of(epoch) + LINGER_S)
        return self if len(kept) == len(self.epochs) else replace(self, epochs=kept)

    def end_of(self, epoch: Epoch) -> float:
        """Returns when an epoch of it ends."""
        return min(epoch.next_from_unix_s, self.until_unix_s)


def chain(files: Iterable[GroupFile]) -> tuple[GroupFile, ...]:
    """Returns the newest file, after the one that it follows, and so on, as far as they are there; 8 at most.

    What is between two of them never holds. What is before a missing one has been followed by one that this
    member has never seen, so that its time has passed already.
    """
    by_epoch = {file.epoch: file for file in files}
    found: list[GroupFile] = []
    at = max(by_epoch, default=0)
    while (file := by_epoch.get(at)) is not None and len(found) < HELD_MAX:
        found.append(file)
        at = file.term.after
    return tuple(reversed(found))


def living(files: Sequence[GroupFile], unix_s: float) -> tuple[GroupFile, ...]:
    """Returns the files of a chain without those whose epochs are to be forgotten. The newest one stays."""
    ends = [*(file.term.from_unix_s for file in files[1:]), inf]
    return tuple(file for file, end in zip(files, ends, strict=True) if unix_s < end + LINGER_S)


def follow(held: Sequence[GroupFile], new: GroupFile) -> tuple[GroupFile, ...] | None:
    """Returns the chain with a newer file; None where it is the newest one held. Raises GroupError."""
    newest = held[-1]
    _require_same_group(newest, new)
    same = next((file for file in held if file.epoch == new.epoch), None)
    if same is not None and same.head != new.head:
        raise GroupError(TWO_TEXTS, GroupFault.TWO_TEXTS)
    if new.epoch < newest.epoch:
        raise GroupError(
            f"it is epoch {new.epoch}, older than epoch {newest.epoch}, which is held: get the newer file "
            "from its owner",
            GroupFault.ROLLBACK,
        )
    if same is not None:
        return None
    followed = next((file for file in held if file.epoch == new.term.after), None)
    if followed is not None and new.term.from_unix_s <= followed.term.from_unix_s:
        raise GroupError(
            f"its epoch {new.epoch} does not begin after epoch {followed.epoch}, which it follows: ask its "
            "owner for another epoch",
            GroupFault.TOO_EARLY,
        )
    return chain((*held, new))


def _require_same_group(held: GroupFile, new: GroupFile) -> None:
    if new.name != held.name:
        raise GroupError(f"it is the group {new.name}, and not {held.name}", GroupFault.WRONG_NAME)
    require_owner(new, held.owner)


def require_owner(file: GroupFile, owner: VerifierKey) -> None:
    """Sees that a file is of this owner. Raises GroupError."""
    if file.owner != owner:
        raise GroupError(
            f"its owner is {file.owner}, and not {owner}: ask the owner you know, by another way than the "
            "file's, which key is theirs",
            GroupFault.WRONG_OWNER,
        )


def group_of(files: Sequence[GroupFile], me: Identity, source: str = "") -> Group:
    """Returns the group that a chain of files gives to a member, who may have secrets of all or of none."""
    newest = files[-1]
    ends = [*(float(file.term.from_unix_s) for file in files[1:]), inf]
    epochs = (_epoch_of(file, end, me) for file, end in zip(files, ends, strict=True))
    found = tuple(epoch for epoch in epochs if epoch is not None)
    return Group(
        newest.name,
        newest.owner,
        found,
        newest.term.until_unix_s,
        newest.epoch,
        source,
        head=newest.head.data,
    )


def _epoch_of(file: GroupFile, end_unix_s: float, me: Identity) -> Epoch | None:
    try:
        opened = file.open(me)
    except GroupFileError:  # it is told as that of one who is no member: the owner must add them anew
        return None
    if opened is None:
        return None
    return Epoch(
        group=file.name,
        number=file.epoch,
        from_unix_s=file.term.from_unix_s,
        public=opened.secrets.public,
        topic_secret=opened.secrets.topic_secret,
        private=opened.secrets.private,
        next_from_unix_s=end_unix_s,
        owner=file.owner.public,
        senders=opened.senders,
    )
