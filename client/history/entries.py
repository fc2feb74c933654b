"""Entries of a log, as they are stored, and what is done to them. PROTOCOL §9.12."""

from collections.abc import Sequence
from typing import NamedTuple

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


Change = Row | Pin | Evict
Done = Row | Left  # a row whose ordinal is 0 was not stored: it is below the floor, or was there already
