"""client/trust/publisher/log.py: the publisher's log, in two implementations that must agree."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.note import Note, SigningKey, verify
from kcast.client.trust.publisher.log import Log, LogError

KEY = SigningKey.from_seed("example.org/lab/log", bytes(range(32)))


class Place:
    """A log with its folder, in which all that is new is put after each checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "lab.log.db"
        self.served = folder / "lab.log"
        self.state = folder / "keys" / "log.checkpoint"
        self.served.mkdir()
        self.state.parent.mkdir()

    def open(self) -> Log:
        return Log(self.database, self.served, KEY, self.state)

    def publish(self, *entries: bytes) -> Note:
        with self.open() as log:
            note = log.sign(log.append(entries))
        (self.served / "checkpoint").write_bytes(note.data)
        return note


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def entry(number: int) -> bytes:
    return f"entry {number}".encode()


def test_what_is_signed_is_the_tree_of_all_entries_and_its_proofs_hold(place: Place) -> None:
    sizes = [1, 2, 3, 7, 255, 256, 257, 300, 513]
    former: Checkpoint | None = None
    for size in sizes:
        begin = former.size if former else 0
        note = place.publish(*map(entry, range(begin, size)))
        assert verify(note, [KEY.verifier]) == (KEY.verifier,)
        checkpoint = Checkpoint.parse(note.text)
        leaves = [merkle.leaf_hash(entry(number)) for number in range(size)]
        assert checkpoint == Checkpoint("example.org/lab/log", size, merkle.root_of(leaves))
        with place.open() as log:
            for index in {0, size // 2, size - 1}:
                assert merkle.includes(index, size, leaves[index], log.inclusion(index), checkpoint.root)
            if former:
                path = log.consistency(former.size)
                assert merkle.extends(former.size, size, path, former.root, checkpoint.root)
        former = checkpoint
    bundles = [tiles.tile_at(tiles.ENTRIES_LEVEL, number, 513).path for number in range(3)]
    found = [each for path in bundles for each in tiles.read_entries((place.served / path).read_bytes())]
    assert found == [entry(number) for number in range(513)]


def test_a_lost_database_is_made_anew_from_the_folder(place: Place) -> None:
    place.publish(*map(entry, range(260)))
    place.database.unlink()
    note = place.publish(b"more")
    assert Checkpoint.parse(note.text).size == 261


def test_a_log_from_a_backup_refuses_to_sign(place: Place, tmp_path: Path) -> None:
    place.publish(b"a")
    backup = tmp_path / "backup"
    shutil.copytree(place.served, backup / "served")
    shutil.copy(place.database, backup / "database")
    place.publish(b"b")
    shutil.rmtree(place.served)
    shutil.copytree(backup / "served", place.served)
    shutil.copy(backup / "database", place.database)
    with pytest.raises(
        LogError, match=r"it has 1 entries, and a log of 2 was signed: it comes from a backup"
    ):
        place.publish(b"c")


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"no database" * 100, lambda data: data[: len(data) // 2] + b"\xff" * (len(data) // 2)],
)
def test_a_damaged_database_is_one_line(place: Place, damage: Callable[[bytes], bytes]) -> None:
    place.publish(*map(entry, range(40)))
    place.database.write_bytes(damage(place.database.read_bytes()))
    with pytest.raises(
        LogError, match=r"lab\.log\.db: it is damaged, or cannot be written .*: make room, or move"
    ):
        place.publish(b"more")


def test_a_full_disk_is_one_line_and_the_log_goes_on(place: Place) -> None:
    place.publish(b"a")
    before = place.state.read_bytes()
    with pytest.raises(LogError, match=r"lab\.log\.db: .*database or disk is full"), place.open() as log:
        log._tree.con.execute("PRAGMA max_page_count = 1")
        log.append([bytes(100_000)])
    assert place.state.read_bytes() == before
    assert Checkpoint.parse(place.publish(b"b").text).size == 2


def test_a_changed_entry_is_noticed_before_anything_is_signed(place: Place) -> None:
    place.publish(*map(entry, range(10)))
    with sqlite3.connect(place.database) as connection:
        connection.execute("DROP TRIGGER leaf_no_update")
        connection.execute("UPDATE leaf SET hash = ? WHERE id = 4", (merkle.leaf_hash(b"other"),))
    with pytest.raises(LogError, match="another log than the one that was signed"):
        place.publish(b"more")


def test_a_changed_tile_is_noticed_before_anything_is_signed(place: Place) -> None:
    place.publish(*map(entry, range(256)))
    path = place.served / "tile/1/000.p/1"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    before = place.state.read_bytes()
    with pytest.raises(LogError, match=r"nothing was signed"):
        place.publish(b"more")
    assert place.state.read_bytes() == before
