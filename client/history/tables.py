"""The tables of a store: the entries of topics, and their floors, in an SQLite file. No threads, no clock.

What is written is on disk when `Tables.commit` returns. A `Reader` has a connection of its own, which never
waits for that.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from kcast.client.history.entries import Change, Done, Evict, Left, Pin, Row, StoreError
from kcast.client.history.ids import ID_BYTES
from kcast.client.history.index import LOWEST, after
from kcast.client.history.runs import Place, Runs, RunsOf, has

APPLICATION_ID = 0x6B636C67  # "kclg"
VERSION = 1
BUSY_S = 1.0  # how long another program may have the file locked before that is a trouble
LOOK_ROWS_MAX = 1_500  # that a question looks at by number: some 2 ms
LOOK_UP_ROWS = 10  # what it costs to find the first of a run
RUN_ROWS_MAX = 100
SCAN_ROWS_MAX = 1_500  # that it looks at by id: the same
EVICT_ROWS_MAX = 200  # that leave in one commit: some 5 ms
LOAD_ROWS = 4_096

# A row has up to 1,400 bytes: in pages of 4,096 each such row would take a page more.
_SCHEMA = f"""
    pragma page_size = 8192;
    pragma journal_mode = wal;
    begin;
    create table topics (topic integer primary key, name blob not null unique,
        floor blob not null, entries integer not null, size_bytes integer not null, ordinal integer not null);
    create table entries (topic integer, id blob, publisher text not null, seq integer not null,
        parents blob not null, sender text, is_orphan integer not null, is_pinned integer not null,
        ordinal integer not null, message blob not null, primary key (topic, id)) without rowid;
    create index by_place on entries (topic, publisher, seq);
    create index by_ordinal on entries (topic, ordinal);
    pragma application_id = {APPLICATION_ID};
    pragma user_version = {VERSION};
    commit;
"""
_PRAGMAS = "select * from pragma_application_id, pragma_user_version, (select count(*) from sqlite_master)"
_COLUMNS = "id, publisher, seq, message, sender, is_orphan, ordinal, parents, is_pinned"
_INSERT = f"insert into entries (topic, {_COLUMNS}) values (?{', ?' * 9}) on conflict do nothing"
_PROVEN = "update entries set (sender, ordinal) = (?, ?) where topic = ? and id = ? and sender is not ?"
_STANDING = "floor, entries, size_bytes, ordinal"
_UPDATE = f"update topics set ({_STANDING}) = (?, ?, ?, ?) where topic = ? and (floor, ordinal) <> (?, ?)"
_ID = re.compile(rb".{%d}" % ID_BYTES, re.DOTALL)
_WHAT_TO_DO = {
    sqlite3.SQLITE_BUSY: "another program has locked it: end that",
    sqlite3.SQLITE_CANTOPEN: "there is no such file, or its folder cannot be written: give another",
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, and what others hold comes again",
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_NOTADB: "it is no store: give another file",
    sqlite3.SQLITE_READONLY: "it cannot be written: change its rights, or those of its folder",
}


@dataclass(slots=True)
class Standing:
    """A topic's floor, its entries from there on and the bytes of their messages, and the last ordinal."""

    floor: bytes
    entries: int
    size_bytes: int
    ordinal: int


def open_file(path: Path | None, is_writing: bool = True) -> sqlite3.Connection:
    """Opens a file, and makes its tables where it is new; None is one in memory. Raises StoreError."""
    name = ":memory:" if path is None else f"{path.absolute().as_uri()}?mode={'rwc' if is_writing else 'ro'}"
    with _named(path), ExitStack() as undo:
        db = sqlite3.connect(name, BUSY_S, isolation_level=None, check_same_thread=False, uri=True)
        undo.callback(db.close)
        application, version, tables = db.execute(_PRAGMAS).fetchone()
        if application != APPLICATION_ID and (application or version or tables or not is_writing):
            raise StoreError(f"{path}: {_WHAT_TO_DO[sqlite3.SQLITE_NOTADB]}")
        if version > VERSION:
            raise StoreError(f"{path}: a newer kcast has written it: use that, or give another file")
        if is_writing:
            db.executescript("" if application else _SCHEMA)
            db.executescript("pragma synchronous = full; begin immediate; commit")  # can it be written?
        undo.pop_all()
    return db


@contextmanager
def _named(path: Path | None) -> Iterator[None]:
    """Lets an error of SQLite say which file it is, and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what makes it more precise
        what = _WHAT_TO_DO.get(code, "it cannot be used: give another file")
        raise StoreError(f"{path}: {what} ({error})") from None


def open_reader(path: Path, name: bytes) -> "Reader":
    """Opens what a file has of a topic, to be read while any process may write it. Raises StoreError."""
    db = open_file(path, is_writing=False)
    with _named(path):
        found = db.execute("select topic from topics where name = ?", (name,)).fetchone()
    if found is None:
        db.close()
        raise StoreError(f"{path}: it has nothing of {name.decode()}: give a topic that it has")
    return Reader(db, path, found[0])


class Reader:
    """What a file has of one topic. All raise StoreError where the file cannot be read."""

    def __init__(self, db: sqlite3.Connection, path: Path | None, topic: int) -> None:
        self._db, self._path, self.topic = db, path, topic

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()

    def name(self, senders: Collection[str]) -> None:
        """Reads from now on only entries that one of these keys has signed."""
        keys = ", ".join("'{}'".format(str(each).replace("'", "''")) for each in senders)
        with _named(self._path):
            view = "create temp view entries as select * from main.entries where sender in"
            self._db.execute(f"{view} ({keys})")

    def standing(self) -> Standing:
        """Returns the floor, and how much there is."""
        with _named(self._path):
            return _standing(self._db, self.topic)

    def load(self) -> Iterator[tuple[bytes, str, int, bytes]]:
        """Yields id, publisher, number and parents (`cut`) of all entries, in the order of ids. Those below
        the floor are pinned."""
        page = [(b"", "", 0, b"")]
        sql = "select id, publisher, seq, parents from entries where topic = ? and id > ?"
        while page := self._all(f"{sql} order by id limit ?", page[-1][0], LOAD_ROWS):
            yield from page

    def rows(self, ids: Sequence[bytes]) -> list[Row]:
        """Returns those of up to 900 ids that are there, in the order of ids."""
        return self._rows(f"id in ({', '.join('?' * len(ids))}) order by id", *ids)

    def rows_after(self, ordinal: int, rows_max: int) -> list[Row]:
        """Returns the next rows in the order in which they came to count."""
        return self._rows("ordinal > ? order by ordinal limit ?", ordinal, rows_max)

    def rows_from(self, lo: bytes, ordinal: int, rows_max: int) -> list[Row]:
        """Returns the next rows in the order of ids, of those up to an ordinal."""
        return self._rows("id >= ? and ordinal <= ? order by id limit ?", lo, ordinal, rows_max)

    def last_ids(self, ids_max: int) -> list[bytes]:
        """Returns that many of the ids, or all where there are fewer, the largest first."""
        sql = "select id from entries where topic = ? order by id desc limit ?"
        return [each for (each,) in self._all(sql, ids_max)]

    def lacking(
        self, own: Runs, lo: bytes, hi: bytes, start: Place, stop: Place, runs: RunsOf, lines_max: int
    ) -> tuple[list[Row], bytes]:
        """Returns the first rows of [lo, hi) whose place is in [start, stop), and that are not in the runs,
        and the bound before which there are no others: `hi` where nothing is left. `own` is what is held.

        It looks at a bounded number of rows: by number, or by id where that would be too many. Of one
        publisher ids rise with numbers. Where one lies, rows may be left out; fingerprints find them.
        """
        ids, looked, bound = list[bytes](), 0, hi if runs else lo
        sql = "select id from entries where topic = ? and publisher = ? and seq between ? and ?"
        for run in own.beyond(runs, lo, start, stop) if runs else ():
            some = [each for (each,) in self._all(f"{sql} order by seq, id limit ?", *run, RUN_ROWS_MAX)]
            looked += LOOK_UP_ROWS + len(some)
            if looked > LOOK_ROWS_MAX:
                bound = lo
                break
            if len(some) == RUN_ROWS_MAX:
                bound = min(bound, after(some[-1]))
            ids += some
        if bound > lo:
            ids = sorted(each for each in ids if lo <= each < bound)
            return self.rows(ids[:lines_max]), (ids[lines_max:] or [bound])[0]
        ids, bound = [], hi
        sql = "select id, publisher, seq from entries where topic = ? and id >= ? and id < ? order by id"
        with _named(self._path), closing(self._db.execute(sql, (self.topic, lo, hi))) as rows:
            for number, (entry_id, *place) in enumerate(rows, 1):
                if start <= tuple(place) < stop and not has(runs, *place):
                    ids.append(entry_id)
                if len(ids) == lines_max or number == SCAN_ROWS_MAX:
                    bound = after(entry_id)
                    break
        return self.rows(ids), bound

    def _rows(self, which: str, *values: object) -> list[Row]:
        sql = f"select {_COLUMNS} from entries where topic = ? and {which}"
        return [_row(each) for each in self._all(sql, *values)]

    def _all(self, sql: str, *values: object) -> list[Any]:
        with _named(self._path):
            return self._db.execute(sql, (self.topic, *values)).fetchall()


def _standing(db: sqlite3.Connection, topic: int) -> Standing:
    return Standing(*db.execute(f"select {_STANDING} from topics where topic = ?", (topic,)).fetchone())


def _row(found: tuple[Any, ...]) -> Row:
    entry_id, publisher, seq, message, sender, is_orphan, ordinal, parents, is_pinned = found
    ids = cut(parents)
    return Row(entry_id, publisher, seq, message, sender, bool(is_orphan), ordinal, ids, bool(is_pinned))


def cut(ids: bytes) -> tuple[bytes, ...]:
    """Returns ids that come end to end."""
    return tuple(_ID.findall(ids))


class Tables:
    """A file as it is written, by one thread at a time: others wait."""

    def __init__(self, db: sqlite3.Connection, path: Path | None) -> None:
        self._db, self._path = db, path
        self._lock = threading.Lock()
        self._inode, self._size_bytes = self._look()

    def reading(self) -> sqlite3.Connection:
        """Returns a connection to read by: one of its own, except in memory. Raises StoreError."""
        return self._db if self._path is None else open_file(self._path, is_writing=False)

    def topic(self, name: bytes) -> int:
        """Returns the number of a topic in this file. Raises StoreError."""
        with self._writing():
            self._db.execute("insert or ignore into topics values (null, ?, ?, 0, 0, 0)", (name, LOWEST))
            ((topic,),) = self._db.execute("select topic from topics where name = ?", (name,))
        return int(topic)

    def commit(self, changes: Sequence[tuple[int, Change]]) -> list[Done]:
        """Makes changes, each of a topic, in one transaction; returns what came of each. It is on disk then.

        Raises StoreError, and then none is made.
        """
        with self._writing():
            standings = {topic: _standing(self._db, topic) for topic in {topic for topic, _ in changes}}
            done = [self._make(topic, standings[topic], change) for topic, change in changes]
            for topic, each in standings.items():
                self._db.execute(_UPDATE, (*astuple(each), topic, each.floor, each.ordinal))
        return done

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, _named(self._path):
            inode, size_bytes = self._look()
            # SQLite would write on, to nobody's file.
            if inode != self._inode or size_bytes < self._size_bytes:
                raise StoreError(f"{self._path}: it was moved, deleted or cut: start anew")
            self._size_bytes = size_bytes
            with self._db:  # commits, or rolls back
                self._db.execute("begin immediate")
                yield

    def _look(self) -> tuple[int, int]:
        try:
            found = (self._path or Path(os.devnull)).stat()
            return found.st_ino, found.st_size
        except OSError:
            return 0, 0

    def _make(self, topic: int, standing: Standing, change: Change) -> Done:
        is_more = False
        match change:
            case Row():
                return self._add(topic, standing, change)
            case Pin(ids, is_pinned):
                sql = "update entries set is_pinned = ? where topic = ? and id = ?"
                self._db.executemany(sql, [(is_pinned, topic, each) for each in ids])
            case Evict():
                is_more = self._rise(topic, standing, change)
        which = "from entries where topic = ? and id < ? and not is_pinned"
        left = self._db.execute(f"select id {which}", (topic, standing.floor)).fetchall()
        self._db.execute(f"delete {which}", (topic, standing.floor))
        return Left([each for (each,) in left], standing.floor, is_more)

    def _add(self, topic: int, standing: Standing, row: Row) -> Row:
        is_below = row.entry_id < standing.floor
        values = (*row[:6], standing.ordinal + 1, b"".join(row.parents), row.is_pinned)
        if is_below and not row.is_pinned:
            return row
        is_new = self._db.execute(_INSERT, (topic, *values)).rowcount
        proven = row.sender, standing.ordinal + 1, topic, row.entry_id, row.sender
        if not is_new and not self._db.execute(_PROVEN, proven).rowcount:
            return row
        standing.ordinal += 1
        if is_new and not is_below:
            standing.entries += 1
            standing.size_bytes += len(row.message)
        return row._replace(ordinal=standing.ordinal)

    def _rise(self, topic: int, standing: Standing, evict: Evict) -> bool:
        """Lets the floor rise over entries that are to leave; returns whether it is to rise further."""
        sql = "select id, length(message) from entries where topic = ? and id >= ? order by id limit ?"
        found = self._db.execute(sql, (topic, standing.floor, EVICT_ROWS_MAX)).fetchall()
        for entry_id, size_bytes in found:
            is_too_much = standing.entries > evict.entries_max or standing.size_bytes > evict.size_bytes_max
            if entry_id >= evict.below and not is_too_much:
                break
            standing.floor = after(entry_id)
            standing.entries -= 1
            standing.size_bytes -= size_bytes
        else:
            if len(found) == EVICT_ROWS_MAX:
                return True
        standing.floor = max(standing.floor, evict.below)
        return False
