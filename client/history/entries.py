"""Entries of a log, as they are stored. PROTOCOL §9.12."""

from typing import NamedTuple


class Row(NamedTuple):
    """An entry. `message` is its author's very message, with the envelope; `sender` the key that has proven
    it. `ordinal` is its place in the order in which entries came to count, 0 until it is stored."""

    entry_id: bytes
    publisher: str
    seq: int
    message: bytes
    sender: str | None = None
    is_orphan: bool = False
    ordinal: int = 0
