"""client/history/store.py with real files: what is told is on disk; a slow or full disk holds nobody up."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from queue import Queue
from random import Random
from shutil import copy
from time import monotonic
from typing import Any, ClassVar

import pytest

from kcast.client.history import store as stores
from kcast.client.history.entries import Done, Row, StoreError
from kcast.client.history.store import Store, open_store
from kcast.client.history.tables import open_reader
from tests.client.history.test_tables import a_row, an_id
from tests.support.forms import Seeds

TIMEOUT_S = 20.0


class Disk(sqlite3.Connection):
    """A connection that tells of its commits, and waits before them where it is to."""

    free = threading.Event()
    reached = threading.Event()
    log: ClassVar[list[str]]
    writer: ClassVar["Disk"]
    ends: ClassVar[Queue[float]]

    def __exit__(self, *of: Any) -> Any:
        Disk.writer = self
        self.reached.set()
        self.ends.put(monotonic())
        assert self.free.wait(TIMEOUT_S)
        done = super().__exit__(*of)
        ((level,),) = self.execute("pragma synchronous")
        self.log.append(f"commit {level}")
        return done


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> type[Disk]:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Disk))
    Disk.log, Disk.ends = [], Queue()
    Disk.free.set()
    Disk.reached.clear()
    return Disk


class Opened:
    """Stores that are open, and what they have told."""

    def __init__(self) -> None:
        self.woken: Queue[str] = Queue()
        self.stores: list[Store] = []

    def open(self, path: Path, name: bytes = b"t", wake: Callable[[], object] = lambda: None) -> Store:
        def woken() -> None:
            wake()
            self.woken.put(name.decode())

        self.stores.append(open_store(path, name, woken))
        return self.stores[-1]

    def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            self.woken.get(timeout=TIMEOUT_S)

    def take(self, store: Store, count: int) -> list[Done]:
        taken = store.take()
        while len(taken) < count:
            self.woken.get(timeout=TIMEOUT_S)
            taken += store.take()
        return taken


@pytest.fixture
def opened() -> Iterator[Opened]:
    found = Opened()
    yield found
    for store in found.stores:
        if store in store.file.stores:
            store.close()


def ids_of(done: Sequence[Done]) -> list[bytes]:
    return [each.entry_id for each in done if isinstance(each, Row)]


def test_what_is_told_was_committed_before_and_forced_to_the_disk(
    tmp_path: Path, disk: type[Disk], opened: Opened
) -> None:
    store = opened.open(tmp_path / "a.db", wake=lambda: disk.log.append("told"))
    disk.log.clear()
    for number in range(40):
        store.put(a_row(number), at_once=number % 3 == 0)
    assert ids_of(opened.take(store, 40)) == [an_id(each) for each in range(40)]
    store.close()
    assert set(disk.log[::2]) == {"commit 2"} and set(disk.log[1::2]) == {"told"}, disk.log


def test_a_turn_does_not_wait_for_the_disk(tmp_path: Path, disk: type[Disk], opened: Opened) -> None:
    """It ends though a commit does not: reading, writing and taking wait for nothing."""
    store = opened.open(tmp_path / "a.db")
    store.put(a_row(1), at_once=True)
    assert ids_of(opened.take(store, 1)) == [an_id(1)]
    disk.free.clear()
    disk.reached.clear()
    store.put(a_row(2), at_once=True)
    assert disk.reached.wait(TIMEOUT_S)
    try:
        for number in range(3, 50):
            store.put(a_row(number), at_once=True)
            assert ids_of(store.take()) == [] and store.trouble is None
            assert ids_of(store.rows_after(0, 99)) == [an_id(1)]
            assert [each[0] for each in store.load()] == [an_id(1)]
    finally:
        disk.free.set()
    assert ids_of(opened.take(store, 48)) == [an_id(each) for each in range(2, 50)]
    assert len(disk.log) < 9  # and what has waited is written together


def test_logs_of_one_process_share_a_file_and_others_are_refused(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "a.db"
    (tmp_path / "link.db").symlink_to(path)
    one, other = opened.open(path, b"t"), opened.open(tmp_path / "link.db", b"u")
    assert one.file is other.file and one.topic != other.topic
    with pytest.raises(StoreError, match="a log of this process has t open there"):
        open_store(path, b"t", print)
    for number in range(9):
        one.put(a_row(number))
        other.put(a_row(number + 100))
    assert ids_of(opened.take(one, 9)) == [an_id(each) for each in range(9)]
    assert ids_of(opened.take(other, 9)) == [an_id(each) for each in range(100, 109)]
    one.put(a_row(50))
    one.close()
    assert len(open_reader(path, b"t").rows_after(0, 99)) == 10
    beside = "import sys; from pathlib import Path; from kcast.client.history.store import *\n"
    beside += "store = open_store(Path(sys.argv[1]), b't', print)\nprint(len(store.rows_after(0, 99)))"

    def elsewhere() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", beside, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    refused = elsewhere()
    assert f"StoreError: {path}: another process has it open" in refused.stderr
    assert len(open_reader(path, b"u").rows_after(0, 99)) == 9
    other.put(a_row(200))
    other.close()
    assert len(open_reader(path, b"u").rows_after(0, 99)) == 10 and elsewhere().stdout == "10\n"


def test_a_memory_has_no_thread_and_is_written_when_it_is_time() -> None:
    woken: list[int] = []
    store = open_store(None, b"t", lambda: woken.append(1))
    store.put(a_row(1), at_once=True)
    assert not store.rows([an_id(1)]) and not store.take()
    store.file.commit()
    assert woken == [1] and ids_of(store.take()) == [an_id(1)]
    assert ids_of(list(store.rows([an_id(1)]))) == [an_id(1)]
    store.file.stores.clear()
    again = Store(store.file, b"t", lambda: None)  # as after a crash, in a simulation
    assert again.standing().entries == 1
    again.close()


def test_a_trouble_is_told_once_and_what_waits_is_written_later(
    tmp_path: Path, disk: type[Disk], opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, and then has room."""
    monkeypatch.setattr(stores, "TRY_AGAIN_S", 0.1)
    store = opened.open(tmp_path / "a.db")
    ((pages,),) = disk.writer.execute("pragma page_count")
    disk.writer.execute(f"pragma max_page_count = {pages + 3}")
    put = 0
    while store.trouble is None or put < 10_000:
        store.put(a_row(put))
        put += 1
    assert store.trouble == f"{tmp_path / 'a.db'}: the disk is full: make room (database or disk is full)"
    before = ids_of(store.take())
    assert ids_of(store.rows_after(0, 9_999)) == before
    while not opened.woken.empty() or not disk.ends.empty():
        (opened.woken if disk.ends.empty() else disk.ends).get()
    ends = [disk.ends.get(timeout=TIMEOUT_S) for _ in range(4)]
    assert ends[-1] - ends[0] >= 0.3 and opened.woken.empty()
    disk.writer.execute("pragma max_page_count = 9999")
    rest = ids_of(opened.take(store, put - len(before)))
    assert before + rest == [an_id(each) for each in range(put)] and store.trouble is None


def test_changes_wait_for_others_and_are_written_together(
    tmp_path: Path, disk: type[Disk], opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "COMMIT_AFTER_S", 1_000.0)
    store = opened.open(tmp_path / "a.db")
    for number in range(2_050):
        store.put(a_row(number), at_once=number == 2_049)
        if number % 1_000 == 999 or number == 2_049:
            opened.take(store, number % 1_000 + 1)
    assert len(disk.log) == 1 + 3


@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, lambda path: os.truncate(path, 100), lambda path: Path(copy(path, "b.db")).replace(path)],
)
def test_a_file_that_is_deleted_cut_or_replaced_is_a_trouble(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.db"
    store = opened.open(path)
    store.put(a_row(1), at_once=True)
    assert opened.take(store, 1)
    spoil(path)
    store.put(a_row(2), at_once=True)
    opened.until(lambda: store.trouble)
    assert store.trouble == f"{path}: it was moved, deleted or cut: start anew"
    assert not store.take()


WRITER = """
import sys
from pathlib import Path
from queue import Queue
from kcast.client.history.entries import Evict, Row
from kcast.client.history.ids import id_of
from kcast.client.history.store import open_store

woken = Queue()
store = open_store(Path(sys.argv[1]), b"t", lambda: woken.put(None))
number = store.standing().ordinal
print("open", flush=True)
while True:
    for step in range(int(sys.argv[2])):
        number += 1
        row = Row(id_of(1_790_000_000_000_000 + number, b"t", b""), "a", number, b"m" * 200)
        store.put(row, at_once=step % 50 == 0)
    store.put(Evict(b"", 2_000, 10**9))
    woken.get()
    for done in store.take():
        if isinstance(done, Row):
            assert done.ordinal == done.seq
            print(done.ordinal, flush=True)
"""


@pytest.mark.world
def test_no_entry_is_lost_that_was_told_when_its_process_is_killed(tmp_path: Path, seeds: Seeds) -> None:
    path = tmp_path / "a.db"
    told = 0
    for seed in seeds(3, 50):
        rng = Random(seed)
        command = [sys.executable, "-c", WRITER, str(path), str(rng.choice((1, 20, 150)))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "open\n"
            for _ in range(rng.choice((1, 30, 900))):
                told = int(process.stdout.readline())
            process.kill()
            told = max([told, *map(int, process.stdout.read().split("\n")[:-1])])
        reader = open_reader(path, b"t")
        standing, rows = reader.standing(), reader.rows_after(0, 10**6)
        assert standing.ordinal >= told
        ordinals = [row.ordinal for row in rows]
        assert ordinals == list(range(standing.ordinal - len(rows) + 1, standing.ordinal + 1))
        assert standing.entries == len(rows) and all(row.entry_id >= standing.floor for row in rows)
        assert len(rows) >= min(2_000, told)
        assert [each[0] for each in reader.load()] == [row.entry_id for row in rows]
        reader.close()
        with sqlite3.connect(path) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        db.close()
