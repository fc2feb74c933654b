"""A log in memory that signs whatever it is told to, also two histories, for tests of witnesses."""

from collections.abc import Iterable

from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint
from kcast.client.trust.forms.merkle import leaf_hash, root_of
from kcast.client.trust.forms.note import Note, SigningKey, sign
from tests.support.lists import LOG as LOG_KEY
from tests.support.rfc9162 import LiteralTree

ORIGIN = LOG_KEY.verifier.name


class HandmadeLog:
    """A log with `size` entries, of which those from `fork_at` on are another history's."""

    def __init__(
        self, size: int, *, fork_at: int | None = None, key: SigningKey = LOG_KEY, origin: str = ORIGIN
    ) -> None:
        self.key = key
        self.origin = origin
        self.entries = [
            b"entry %d%s" % (index, b" forked" if fork_at is not None and index >= fork_at else b"")
            for index in range(size)
        ]

    def checkpoint(self, size: int) -> Checkpoint:
        return Checkpoint(self.origin, size, root_of([leaf_hash(each) for each in self.entries[:size]]))

    def signed(self, size: int, keys: Iterable[SigningKey] | None = None) -> Note:
        return sign(self.checkpoint(size).text, [self.key] if keys is None else keys)

    def path(self, old_size: int, size: int) -> tuple[bytes, ...]:
        return tuple(LiteralTree(self.entries[:size]).proof(old_size)) if 0 < old_size < size else ()

    def body(self, old_size: int, size: int) -> bytes:
        """The body of an add-checkpoint request."""
        return AddCheckpoint(old_size, self.path(old_size, size), self.signed(size)).data
