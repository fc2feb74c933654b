"""Entries of a log, as they are stored, what is done to them, and how the log stands. PROTOCOL §9.12."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kcast.client.history.ids import clock_of, to_text
from kcast.client.messages.envelope import SEAL, parse_envelope
from kcast.client.messages.guard_and_writer import Proven
from kcast.pubsub.errors import KcastError


class StoreError(KcastError, RuntimeError):
    """A store cannot be used: its file is full, damaged, another's or in use. The text names it, and says
    what to do."""


class Row(NamedTuple):
    """An entry. `message` is its author's very message, with the envelope; `sender` the key that has proven
    it. `ordinal` is its place in the order in which entries came to count, 0 until it is stored. It stays
    below the floor where it `is_pinned`."""

    entry_id: bytes
    publisher: str
    seq: int
    message: bytes
    sender: str | None = None
    is_orphan: bool = False
    ordinal: int = 0
    parents: Sequence[bytes] = ()
    is_pinned: bool = False


class Pin(NamedTuple):
    """Entries are to stay when the floor rises over them; or no longer, and then those below it leave."""

    ids: Sequence[bytes]
    is_pinned: bool = True


class Evict(NamedTuple):
    """The oldest entries are to leave: those below a bound, and more until there are at most so many, with so
    many bytes of messages."""

    below: bytes
    entries_max: int
    size_bytes_max: int


class Left(NamedTuple):
    """These have left, and the floor is at this bound. `is_more`: others are still to leave."""

    ids: Sequence[bytes]
    floor: bytes
    is_more: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a log, as programs see it.

    `id` is 32 characters, which sort as entries do. `at_s` is its clock, in seconds since 1970, and `parents`
    are the ids of those entries that its author had seen last. `orphan` tells that one of them was waited for
    in vain. `sender` is the key that signed it, where that is proven, and `group` the one for which it was
    sealed. `publisher` and `seq` are as in `Delivery`.
    """

    id: str
    payload: bytes
    publisher: str
    seq: int
    at_s: float
    parents: tuple[str, ...] = ()
    orphan: bool = False
    sender: str | None = None
    group: str | None = None


class NotKept(KcastError, TimeoutError):
    """An entry stands, but in time it was not on disk, or fewer others have said that they keep it than
    wanted. `entry_id` is its id, `kept` how many have."""

    def __init__(self, entry_id: str, kept: int, wanted: int) -> None:
        some = f"{kept} of {wanted} others have said that they keep it: the entry stands, and goes on"
        super().__init__(some if wanted else "the disk is slow: the entry leaves once it is written")
        self.entry_id, self.kept = entry_id, kept


def entry_of(row: Row, opened: Proven | None = None) -> Entry | None:
    """Returns an entry as programs see it; None where it is sealed, and nobody has opened it."""
    envelope = parse_envelope(row.message)
    if opened is None and envelope is not None and SEAL in envelope.attributes:
        return None
    found = opened or envelope
    return Entry(
        id=to_text(row.entry_id),
        payload=b"" if found is None else found.payload,
        publisher=row.publisher,
        seq=row.seq,
        at_s=clock_of(row.entry_id) / 1e6,
        parents=tuple(map(to_text, row.parents)),
        orphan=row.is_orphan,
        sender=row.sender if opened is None else opened.sender,
        group=opened and opened.group,
    )


Change = Row | Pin | Evict
Done = Row | Left  # a row whose ordinal is 0 was not stored: it is below the floor, or was there already


class Synced(NamedTuple):
    """What a log has found out: how many others hold it, how many entries it has got of them, and whether it
    has all that they have."""

    holders: int
    got: int
    complete: bool


class Status(NamedTuple):
    """How a log stands. Ids are text. `digest` is the same in logs with the same entries and floor.

    `committed` is the newest id that three others have, with all before it; `trouble` why nothing is stored;
    `on_the_way` how many own entries no server has taken yet.
    """

    entries: int
    heads: Sequence[str]
    floor: str
    digest: str
    holders: int
    committed: str | None
    waiting: int
    trouble: str | None
    on_the_way: int = 0
