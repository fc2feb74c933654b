"""The publisher's log: its entries in a database, its tiles, and its checkpoints. PROTOCOL §10.6.

pymerkle keeps the entries, in a table that can only grow, and computes roots and proofs of inclusion. The
same comes a second time from the tiles (`tiles`, `merkle`), which are what people fetch. Before a checkpoint
is signed both must agree. pymerkle's proofs of consistency are not those of RFC 9162, so each side makes its
own, and its own verifier takes it.

The checkpoint that was signed last lies beside the log's key, and not beside the log: a log that comes from a
backup is older than it, and must not sign, since that would show two histories of one log.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from kcast.client.clusters.durable import write_into, write_whole
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.note import Note, NoteError, SigningKey, sign, verify
from kcast.client.trust.forms.paths import CHECKPOINT
from kcast.client.trust.forms.tiles import ENTRIES_LEVEL, WIDTH, Hashes, Tile, tile_at
from kcast.pubsub.errors import KcastError

try:
    from pymerkle import InvalidProof, SqliteTree, verify_consistency, verify_inclusion
except ImportError:
    raise MissingExtra("the log of a list", "list-log") from None

ALGORITHM = "sha256"


class LogError(KcastError, RuntimeError):
    """A log that cannot be used, or must not sign. The message says what to do."""


class Log:
    """The log in a database, its tiles in a folder. `state` is the file of the last checkpoint signed."""

    def __init__(self, database: Path, folder: Path, key: SigningKey, state: Path) -> None:
        """Opens it, and makes it where there is none. What the folder has and the database has not is taken
        from there. Raises LogError."""
        self._database = database
        self._folder = folder
        self._key = key
        self._state = state
        self._new: dict[str, bytes] = {}  # tiles that are not in the folder yet, by path
        try:
            self._tree: Any = SqliteTree(str(database), ALGORITHM)
            self._tree.con.execute("CREATE INDEX IF NOT EXISTS leaf_hash ON leaf(hash)")
            self._rebuild()
            self._check_is_newest()
        except (sqlite3.Error, ValueError) as error:
            raise self._damaged(error) from None

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tree.close()
        if isinstance(error, sqlite3.Error | InvalidProof):
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> LogError:
        return LogError(
            f"{self._database}: it is damaged, or cannot be written ({error}): make room, or move it away, "
            f"and the next 'kcast servers publish' makes it anew from {self._folder}"
        )

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self._tree.get_size())

    @property
    def published_size(self) -> int:
        """The number of entries that the folder shows."""
        checkpoint = self._published()
        return checkpoint.size if checkpoint else 0

    def find(self, entry: bytes) -> int | None:
        """Returns the index, from 0, of an entry; None where the log has it not."""
        self._tree.cur.execute("SELECT MIN(id) FROM leaf WHERE hash = ?", (merkle.leaf_hash(entry),))
        found = self._tree.cur.fetchone()
        return None if found is None else int(found) - 1

    def beginning_with(self, head: bytes) -> list[bytes]:
        """Returns the entries that begin with `head`."""
        query = "SELECT entry FROM leaf WHERE substr(entry, 1, ?) = ?"
        return list(map(bytes, self._tree.con.execute(query, (len(head), head))))

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Appends those entries that it has not yet; returns the index of each."""
        missing = [entry for entry in entries if self.find(entry) is None]
        if missing:
            self._tree.append_entries(missing)
        return [index for entry in entries if (index := self.find(entry)) is not None]

    def inclusion(self, index: int) -> tuple[bytes, ...]:
        """Returns the proof that the log has the entry at an index, from 0."""
        return tuple(self._run(tiles.inclusion_path(index, self.size)))

    def consistency(self, old_size: int) -> tuple[bytes, ...]:
        """Returns the proof that the log extends what it was at `old_size`."""
        if old_size in (0, self.size):
            return ()
        return tuple(self._run(tiles.consistency_path(old_size, self.size)))

    def sign(self, indices: Iterable[int]) -> Note:
        """Returns the signed checkpoint of all entries, once both implementations agree on it, on the entries
        at `indices` and on its history. The tiles, and then the checkpoint beside the key, are on the disk
        first. Raises LogError and OSError."""
        self._make_tiles()
        size, root = self.size, bytes(self._tree.get_root())
        if self._run(tiles.prefix_root(size, size)) != [root]:
            raise LogError(
                f"{self._folder}: its tiles have another root than {self._database}; nothing was signed"
            )
        for index in indices:
            self._check_inclusion(index, root)
        write_into(self._folder, self._new)
        former, public = self._signed(), self._key.verifier
        if former is not None:
            if former.size == size and verify(kept := Note.parse(self._state.read_bytes()), [public]):
                return kept
            self._check_consistency(former, root)
        note = sign(Checkpoint(public.name, size, root).text, [self._key])
        write_whole(self._state, note.data, mode=0o600)
        return note

    # --- Agreement -----------------------------------------------------------------------------------------

    def _check_inclusion(self, index: int, root: bytes) -> None:
        leaf = bytes(self._tree.get_leaf(index + 1))  # pymerkle counts from 1
        size = self.size
        proof = self._tree.prove_inclusion(index + 1, size)
        path = self.inclusion(index)
        verify_inclusion(leaf, root, proof, index=index + 1, size=size, algorithm=ALGORITHM)
        if not merkle.includes(index, size, leaf, path, root) or tuple(map(bytes, proof.path[1:])) != path:
            raise LogError(f"{self._folder}: the proof of entry {index} fails; nothing was signed")

    def _check_consistency(self, former: Checkpoint, root: bytes) -> None:
        size = self.size
        if former.size == size and former.root != root:
            raise LogError(f"{self._folder}: it is another log than was signed; nothing was signed")
        if former.size in (0, size):
            return
        proof = self._tree.prove_consistency(former.size, size)
        verify_consistency(
            former.root, root, proof, prior_size=former.size, later_size=size, algorithm=ALGORITHM
        )
        if not merkle.extends(former.size, size, self.consistency(former.size), former.root, root):
            raise LogError(f"{self._folder}: it does not extend what was signed before; nothing was signed")

    def _check_is_newest(self) -> None:
        """Raises LogError where the log is not the one whose checkpoint was signed last."""
        former = self._signed()
        if former is None:
            if self.published_size:
                raise LogError(
                    f"{self._state}: the checkpoint that was signed last is missing, and must lie beside the "
                    f"log's key: if nothing was signed after {self._folder / 'checkpoint'}, copy that there"
                )
            return
        if former.size > self.size:
            raise LogError(
                f"{self._database}: it has {self.size} entries, and a log of {former.size} was signed: it "
                f"comes from a backup, or another folder has the log: put the newest {self._folder.name}/ "
                "there"
            )
        if former.size and bytes(self._tree.get_root(former.size)) != former.root:
            raise LogError(
                f"{self._database}: it is another log than the one that was signed as {former.origin}: "
                "nothing can be signed, since that would show two histories"
            )

    def _signed(self) -> Checkpoint | None:
        try:
            return Checkpoint.read(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except NoteError as error:
            raise LogError(
                f"{self._state}: it is damaged ({error}): if nothing was signed after "
                f"{self._folder / 'checkpoint'}, copy that there"
            ) from None

    def _published(self) -> Checkpoint | None:
        path = self._folder / CHECKPOINT
        try:
            return Checkpoint.read(path.read_bytes())
        except FileNotFoundError:
            return None
        except NoteError as error:
            raise LogError(f"{path}: {error}") from None

    # --- Tiles ---------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Takes the entries that the folder shows and the database lost: also those that were signed, and
        that no quorum of witnesses made public."""
        published, signed = self._published(), self._signed()
        if signed is not None and signed.size > self.size:
            with suppress(LogError):  # then it comes from a backup, which is refused
                self._take(signed)
        if published is not None and published.size > self.size:
            self._take(published)

    def _take(self, checkpoint: Checkpoint) -> None:
        """Appends the entries of a checkpoint's tree from the folder. Raises LogError and ValueError."""
        entries = self._run(tiles.entries(0, checkpoint.size))
        for index in range(self.size):
            if bytes(self._tree.get_entry(index + 1)) != entries[index]:
                raise ValueError(f"entry {index} is not the one in {self._folder}")
        if merkle.root_of(list(map(merkle.leaf_hash, entries))) != checkpoint.root:
            raise LogError(f"{self._folder}: its entries are not those of its checkpoint")
        self._tree.append_entries(entries[self.size :])

    def _make_tiles(self) -> None:
        size, old_size = self.size, self.published_size
        for tile in tiles.tiles_between(old_size, size):
            if tile.path not in self._new:
                self._new[tile.path] = b"".join(self._hashes_of(tile))
        for number in range(old_size // WIDTH, -(-size // WIDTH)):
            tile = tile_at(ENTRIES_LEVEL, number, size)
            if tile.path not in self._new and tile != tile_at(ENTRIES_LEVEL, number, old_size):
                first = number * WIDTH + 1
                query = "SELECT entry FROM leaf WHERE id BETWEEN ? AND ? ORDER BY id"
                self._tree.cur.execute(query, (first, first + tile.width - 1))
                entries = list(map(bytes, self._tree.cur.fetchall()))
                if list(map(merkle.leaf_hash, entries)) != self._hashes_of(Tile(0, number, tile.width)):
                    raise self._damaged(ValueError("an entry does not have its hash"))
                self._new[tile.path] = tiles.write_entries(entries)

    def _hashes_of(self, tile: Tile) -> list[bytes]:
        if tile.level == 0:
            first = tile.number * WIDTH + 1
            query = "SELECT hash FROM leaf WHERE id BETWEEN ? AND ? ORDER BY id"
            self._tree.cur.execute(query, (first, first + tile.width - 1))
            return list(map(bytes, self._tree.cur.fetchall()))
        below = (self._need(Tile(tile.level - 1, tile.number * WIDTH + at)) for at in range(tile.width))
        at_each = range(0, WIDTH * merkle.HASH_BYTES, merkle.HASH_BYTES)
        return [merkle.root_of([data[at : at + merkle.HASH_BYTES] for at in at_each]) for data in below]

    def _need(self, tile: Tile) -> bytes:
        data = tiles.read_tile(tile, self._file)
        if data is None:
            raise LogError(f"{self._folder / tile.path}: there is no such file; bring it back from a backup")
        return data

    def _file(self, path: str, _: int) -> bytes | None:
        if path in self._new:
            return self._new[path]
        with suppress(FileNotFoundError):
            return (self._folder / path).read_bytes()
        return None

    def _run(self, hashes: Hashes) -> list[bytes]:
        try:
            return tiles.answered(hashes, self._file)
        except NoteError as error:
            raise LogError(f"{self._folder}: {error}") from None
