"""Tiles: the paths of the specification, and proofs from tiles against those of RFC 9162."""

from itertools import pairwise
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.merkle import HASH_BYTES
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.forms.tiles import ENTRIES_LEVEL, WIDTH, Tile
from tests.support.rfc9162 import LiteralTree

TREE = LiteralTree([b"entry %d" % index for index in range(70_000)])


def file_of(tile: Tile) -> bytes:
    """Returns a tile of the tree, by the definition of its hashes."""
    span = WIDTH**tile.level
    first = tile.number * WIDTH
    return b"".join(TREE.mth((at + 1) * span, at * span) for at in range(first, first + tile.width))


class Server:
    """Serves the tiles of a tree grown to this size; a partial tile is there until the full one is."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[Tile] = []

    def get(self, tile: Tile) -> bytes | None:
        """Returns the file of the tile, or of the full one in its place."""
        self.asked.append(tile)
        there = tiles.tile_at(tile.level, tile.number, self.size)
        return file_of(there if there == tile.full else tile) if there.width >= tile.width else None

    def run(self, hashes: tiles.Hashes) -> list[bytes]:
        answer: bytes | None = None
        try:
            while True:
                answer = self.get(hashes.send(answer))
        except StopIteration as stop:
            return list(stop.value)


# --- Paths ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tile", "at"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(1, 1234067), "tile/1/x001/x234/067"),
        (Tile(0, 999), "tile/0/999"),
        (Tile(0, 1000), "tile/0/x001/000"),
        (Tile(0, 273, 112), "tile/0/273.p/112"),
        (Tile(ENTRIES_LEVEL, 5), "tile/entries/005"),
        (Tile(ENTRIES_LEVEL, 1005, 7), "tile/entries/x001/005.p/7"),
    ],
)
def test_paths(tile: Tile, at: str) -> None:
    assert tile.path == at


def test_the_tiles_of_the_specifications_example() -> None:
    found = tiles.tiles_between(0, 70_000)
    assert len([tile for tile in found if tile.level == 0 and tile.width == 256]) == 273
    assert found[273:] == [Tile(0, 273, 112), Tile(1, 0), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert tiles.tiles_between(0, 256) == [Tile(0, 0), Tile(1, 0, 1)]
    assert tiles.tiles_between(0, 255) == [Tile(0, 0, 255)]


def test_what_is_written_as_a_tree_grows_is_all_that_it_has() -> None:
    chance = Random(6962)
    for _ in range(20):
        sizes = sorted({0, *(chance.randint(1, 70_000) for _ in range(5))})
        grown = {tile for old, new in pairwise(sizes) for tile in tiles.tiles_between(old, new)}
        assert set(tiles.tiles_between(0, sizes[-1])) <= grown
        assert tiles.tiles_between(sizes[-1], sizes[-1]) == []


# --- Proofs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 255, 256, 257, 600, 1025, 65_535, 65_536, 65_537, 70_000])
def test_proofs_from_tiles(size: int) -> None:
    server = Server(size)
    chance = Random(size)
    assert server.run(tiles.prefix_root(size, size)) == [TREE.mth(size)]
    for index in {0, size - 1, *(chance.randrange(size) for _ in range(10))}:
        assert server.run(tiles.inclusion_path(index, size)) == TREE.path(index, size)
    for old_size in {1, size, *(chance.randint(1, size) for _ in range(10))}:
        found = server.run(tiles.consistency_path(old_size, size))
        assert found == TREE.proof(old_size, size)
        assert merkle.extends(old_size, size, found, TREE.mth(old_size), TREE.mth(size))
    assert set(server.asked) <= set(tiles.tiles_between(0, size))


@pytest.mark.parametrize("later", [257, 512, 600, 70_000])
def test_proofs_of_an_older_tree_from_tiles_that_are_full_by_now(later: int) -> None:
    server = Server(later)
    for size in (100, 255, 256):
        assert server.run(tiles.prefix_root(size, size)) == [TREE.mth(size)]
        assert server.run(tiles.consistency_path(77, size)) == TREE.proof(77, size)
        assert server.run(tiles.inclusion_path(77, size)) == TREE.path(77, size)


@pytest.mark.parametrize("size", [2**40 - 1, 2**62 + 12345, 2**63 - 1])
def test_a_proof_in_the_largest_tree_takes_few_tiles(size: int) -> None:
    chance = Random(size)
    for old_size in (1, 2**39 + 1, chance.randint(1, size), size - 1):
        for hashes in (tiles.consistency_path(old_size, size), tiles.inclusion_path(old_size - 1, size)):
            asked = []
            answer: bytes | None = None
            try:
                while True:
                    asked.append(hashes.send(answer))
                    answer = bytes(asked[-1].width * HASH_BYTES)
            except StopIteration as stop:
                assert len(stop.value) <= 64
            assert len(asked) == len(set(asked)) <= 16


# --- Wrong tiles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, b"", bytes(31), bytes(7 * HASH_BYTES - 1)])
def test_a_tile_that_is_missing_or_too_short_is_told(answer: bytes | None) -> None:
    hashes = tiles.consistency_path(3, 7)
    next(hashes)
    with pytest.raises(NoteError, match=r"tile/0/000\.p/7 is missing or too short"):
        hashes.send(answer)


# --- Entries --------------------------------------------------------------------------------------------


def test_entry_bundles() -> None:
    entries = [b"", b"a", bytes(65_535)]
    assert tiles.read_entries(tiles.write_entries(entries)) == entries
    assert tiles.read_entries(b"") == []
    for wrong in (b"\0", b"\0\1", b"\0\0" * 257):
        with pytest.raises(NoteError):
            tiles.read_entries(wrong)
    with pytest.raises(ValueError, match="65535 bytes, not 65536"):
        tiles.write_entries([bytes(65_536)])


def test_any_bytes_are_one_bundle_or_none() -> None:
    chance = Random(3)
    read = 0
    for _ in range(5000):
        whole = tiles.write_entries(
            [chance.randbytes(chance.randrange(4)) for _ in range(chance.randrange(9))]
        )
        data = bytearray(whole + chance.randbytes(chance.choice([0, 0, 1, 2, 5])))
        if data and chance.random() < 0.5:
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            entries = tiles.read_entries(bytes(data))
        except NoteError:
            continue
        assert tiles.write_entries(entries) == bytes(data)
        read += 1
    assert read > 500
