"""A log's tree as files of a web server: tiles of 256 hashes, and bundles of 256 entries. Sans-IO.

PROTOCOL §10.6, C2SP tlog-tiles. Tile N of level L has the hashes of the subtrees of 256^L leaves from
256 N on. The last tile of a level is partial. Tiles only grow, so whoever reads them while the log is written
to never finds them torn.

What a proof needs is a few hashes of complete subtrees, each of which lies within one tile. So a proof is a
generator: it asks for tiles, and is sent their bytes.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from kcast.client.trust.forms.merkle import HASH_BYTES, node_hash, root_of
from kcast.client.trust.forms.note import NoteError

WIDTH = 256
LEVEL_BITS = 8
ENTRY_BYTES_MAX = 65_535
_LENGTH_BYTES = 2


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile's place, and how many hashes of it the tree has; level -1 is that of entry bundles."""

    level: int
    number: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """Its path below a log's prefix."""
        digits = f"{self.number:03d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        number = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
        level = "entries" if self.level == ENTRIES_LEVEL else str(self.level)
        return f"tile/{level}/{number}" + (f".p/{self.width}" if self.width < WIDTH else "")

    @property
    def full(self) -> "Tile":
        """The same tile once it is full, which may be there in place of a partial one."""
        return Tile(self.level, self.number)

    @property
    def size_bytes_max(self) -> int:
        """How long its file can be."""
        if self.level == ENTRIES_LEVEL:
            return self.width * (_LENGTH_BYTES + ENTRY_BYTES_MAX)
        return self.width * HASH_BYTES


ENTRIES_LEVEL = -1

Hashes = Generator[Tile, bytes | None, "list[bytes]"]
"""Yields tiles to read; each is answered with the file of the tile or of `tile.full`, or None where there is
neither. Returns hashes, or entries. Raises NoteError where a tile is missing or too short."""


def answered(wanted: Hashes, get: Callable[[str, int], bytes | None]) -> list[bytes]:
    """Returns what is wanted, of tiles that `get` returns as for `read_tile`. Raises NoteError."""
    answer: bytes | None = None
    try:
        while True:
            answer = read_tile(wanted.send(answer), get)
    except StopIteration as end:
        found: list[bytes] = end.value
        return found


def read_tile(tile: Tile, get: Callable[[str, int], bytes | None]) -> bytes | None:
    """Returns the file of a tile, which may be there in its full form only; None where there is neither.

    `get` returns a file by its path, or its beginning, which is longer than the number of bytes given.
    """
    data = get(tile.path, tile.size_bytes_max)
    return data if data is not None or tile == tile.full else get(tile.full.path, tile.full.size_bytes_max)


def tile_at(level: int, number: int, size: int) -> Tile:
    """Returns a tile of a tree of `size` leaves, as wide as it is there."""
    count = size >> (LEVEL_BITS * max(level, 0))
    return Tile(level, number, min(WIDTH, count - number * WIDTH))


def tiles_between(old_size: int, size: int) -> list[Tile]:
    """Returns the tiles of hashes that a tree of `size` leaves has, and one of `old_size` had not."""
    found = []
    level = 0
    while (count := size >> (LEVEL_BITS * level)) > 0:
        first = (old_size >> (LEVEL_BITS * level)) // WIDTH
        for number in range(first, -(-count // WIDTH)):
            tile = tile_at(level, number, size)
            if tile != tile_at(level, number, old_size):
                found.append(tile)
        level += 1
    return found


# --- Which hashes a proof has --------------------------------------------------------------------------

Subtree = tuple[int, int]  # height, and which one of this height: it has the leaves from number * 2^height on


def _largest_power_below(count: int) -> int:
    return 1 << ((count - 1).bit_length() - 1)


def _complete(start: int, end: int) -> list[Subtree]:
    """Returns the complete subtrees of which the tree over these leaves is made, left to right."""
    found = []
    while start < end:
        height = (end - start).bit_length() - 1
        found.append((height, start >> height))
        start += 1 << height
    return found


def _inclusion(index: int, size: int) -> list[list[Subtree]]:
    """Returns, for each hash of the proof of RFC 9162 2.1.3.1, the complete subtrees that it is made of."""
    found = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _largest_power_below(end - start)
        if index < middle:
            found.append(_complete(middle, end))
            end = middle
        else:
            found.append(_complete(start, middle))
            start = middle
    return found[::-1]


def _consistency(old_size: int, size: int) -> list[list[Subtree]]:
    """Returns the same for the proof of RFC 9162 2.1.4.1."""
    found = []
    start, end, is_whole = 0, size, True
    while old_size < end:
        middle = start + _largest_power_below(end - start)
        if old_size <= middle:
            found.append(_complete(middle, end))
            end = middle
        else:
            found.append(_complete(start, middle))
            start, is_whole = middle, False
    if not is_whole:
        found.append(_complete(start, end))
    return found[::-1]


# --- From tiles ------------------------------------------------------------------------------------------


def _read(subtrees: Iterable[Sequence[Subtree]], size: int) -> Hashes:
    """Returns a hash for each row of complete subtrees of a tree of `size` leaves."""
    tiles: dict[Tile, bytes] = {}
    hashes = []
    for row in subtrees:
        parts = []
        for height, number in row:
            level, rest = divmod(height, LEVEL_BITS)
            first, count = number << rest, 1 << rest
            tile = tile_at(level, first // WIDTH, size)
            if tile not in tiles:
                data = yield tile
                if data is None or len(data) < tile.width * HASH_BYTES:
                    raise NoteError(f"{tile.path} is missing or too short")
                tiles[tile] = data
            at = first % WIDTH * HASH_BYTES
            found = tiles[tile][at : at + count * HASH_BYTES]
            parts.append(root_of([found[i : i + HASH_BYTES] for i in range(0, len(found), HASH_BYTES)]))
        hashes.append(_joined(parts))
    return hashes


def _joined(parts: Sequence[bytes]) -> bytes:
    """Returns the root above complete subtrees of falling height."""
    root = parts[-1]
    for part in parts[-2::-1]:
        root = node_hash(part, root)
    return root


def inclusion_path(index: int, size: int) -> Hashes:
    """Returns the proof that the tree of `size` leaves has a leaf at `index`."""
    return _read(_inclusion(index, size), size)


def consistency_path(old_size: int, size: int) -> Hashes:
    """Returns the proof that the tree of `size` leaves extends that of `old_size`, which is not empty."""
    return _read(_consistency(old_size, size), size)


def prefix_root(old_size: int, size: int) -> Hashes:
    """Returns the root of the first `old_size` leaves of a tree of `size` leaves, alone in a list."""
    return _read([_complete(0, old_size)], size)


# --- Entry bundles ---------------------------------------------------------------------------------------


def write_entries(entries: Iterable[bytes]) -> bytes:
    """Returns an entry bundle. Raises ValueError where an entry is too long."""
    parts = []
    for entry in entries:
        if len(entry) > ENTRY_BYTES_MAX:
            raise ValueError(f"an entry of a log has at most {ENTRY_BYTES_MAX} bytes, not {len(entry)}")
        parts += [len(entry).to_bytes(_LENGTH_BYTES, "big"), entry]
    return b"".join(parts)


def entries(first: int, size: int) -> Hashes:
    """Returns the entries of a tree of `size` leaves from index `first` on, as bundles have them."""
    found: list[bytes] = []
    for number in range(first // WIDTH, -(-size // WIDTH)) if first < size else ():
        tile = tile_at(ENTRIES_LEVEL, number, size)
        data = yield tile
        try:
            there = read_entries(data or b"")[: tile.width]
        except NoteError as error:
            raise NoteError(f"{tile.path}: {error}") from None
        if len(there) < tile.width:
            raise NoteError(f"{tile.path} is missing or too short")
        found += there[max(0, first - number * WIDTH) :]
    return found


def read_entries(data: bytes) -> list[bytes]:
    """Reads an entry bundle, of at most 256 entries. Raises NoteError."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(data[at:start], "big")
        if end > len(data) or len(entries) == WIDTH:
            raise NoteError("expected a bundle of at most 256 entries, each after its length")
        entries.append(data[start:end])
        at = end
    return entries
