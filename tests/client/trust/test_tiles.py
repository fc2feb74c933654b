"""Tiles: the paths of the specification, and proofs from tiles against those of RFC 9162."""

from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust import merkle, tiles
from kcast.client.trust.note import NoteError
from kcast.client.trust.tiles import ENTRIES_LEVEL, Tile
from tests.client.trust.test_merkle import mth, path, proof


class Leaves:
    """A tree whose tiles are made when they are asked for."""

    def __init__(self, size: int) -> None:
        self.entries = [b"entry %d" % index for index in range(size)]
        self.asked: list[Tile] = []

    def tile(self, tile: Tile) -> bytes:
        self.asked.append(tile)
        span = 256**tile.level
        first = tile.number * 256
        return b"".join(
            mth(self.entries[at * span : (at + 1) * span]) for at in range(first, first + tile.width)
        )

    def run(self, hashes: tiles.Hashes) -> list[bytes]:
        try:
            tile = next(hashes)
            while True:
                tile = hashes.send(self.tile(tile))
        except StopIteration as stop:
            return list(stop.value)


@pytest.mark.parametrize(
    ("tile", "at"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(1, 1234067), "tile/1/x001/x234/067"),
        (Tile(0, 273, 112), "tile/0/273.p/112"),
        (Tile(ENTRIES_LEVEL, 5), "tile/entries/005"),
    ],
)
def test_paths(tile: Tile, at: str) -> None:
    assert tile.path == at


def test_the_tiles_of_the_specifications_example() -> None:
    found = tiles.tiles_between(0, 70_000)
    assert len([tile for tile in found if tile.level == 0 and tile.width == 256]) == 273
    assert found[273:] == [Tile(0, 273, 112), Tile(1, 0), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert tiles.tiles_between(0, 256) == [Tile(0, 0), Tile(1, 0, 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 255, 256, 257, 600, 1025])
def test_proofs_from_tiles(size: int) -> None:
    tree = Leaves(size)
    rng = Random(size)
    assert tree.run(tiles.root(size)) == [mth(tree.entries)]
    for index in {0, size - 1, *(rng.randrange(size) for _ in range(10))}:
        assert tree.run(tiles.inclusion_path(index, size)) == path(index, tree.entries)
    for old_size in {1, size, *(rng.randint(1, size) for _ in range(10))}:
        found = tree.run(tiles.consistency_path(old_size, size))
        assert found == proof(old_size, tree.entries)
        assert merkle.extends(old_size, size, found, mth(tree.entries[:old_size]), mth(tree.entries))
    assert set(tree.asked) <= set(tiles.tiles_between(0, size))


@pytest.mark.parametrize("answer", [None, b"", bytes(31)])
def test_a_tile_that_is_missing_or_too_short_is_told(answer: bytes | None) -> None:
    hashes = tiles.consistency_path(3, 7)
    next(hashes)
    with pytest.raises(NoteError, match=r"tile/0/000\.p/7 is missing or too short"):
        hashes.send(answer)


def test_entry_bundles() -> None:
    entries = [b"", b"a", bytes(65_535)]
    assert tiles.read_entries(tiles.write_entries(entries)) == entries
    for wrong in (b"\0", b"\0\1", b"\0\0" * 257):
        with pytest.raises(NoteError):
            tiles.read_entries(wrong)
    with pytest.raises(ValueError, match="65535 bytes, not 65536"):
        tiles.write_entries([bytes(65_536)])
