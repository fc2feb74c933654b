"""client/history/tables.py beside plain dictionaries; and files that are none, or not ours."""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from kcast.client.history import tables
from kcast.client.history.cursor import Cursor, bound_of_last
from kcast.client.history.entries import Evict, Left, Pin, Row, StoreError
from kcast.client.history.ids import id_of
from kcast.client.history.index import HIGHEST, LOWEST
from kcast.client.history.runs import FIRST, LAST, Place, Run, Runs, parse_runs
from kcast.client.history.tables import Reader, Tables, open_file, open_reader

BASE = 1_790_000_000_000_000


class Asked(NamedTuple):
    lo: bytes
    hi: bytes
    start: Place
    stop: Place
    runs: Mapping[str, Sequence[Run]]
    lines_max: int


def an_id(number: int) -> bytes:
    return id_of(BASE + number, b"t", b"%d" % number)


def a_row(number: int, publisher: str = "a", **more: Any) -> Row:
    return Row(an_id(number), publisher, number, b"m" * (1 + number % 7), **more)._replace(seq=number + 1)


def opened(path: Path | None, name: bytes = b"t") -> tuple[Tables, Reader, int]:
    db = open_file(path)
    written = Tables(db, path)
    topic = written.topic(name)
    return written, Reader(written.reading(), path, topic), topic


def test_rows_come_back_in_the_order_of_ids_and_in_that_in_which_they_came(tmp_path: Path) -> None:
    for path in (None, tmp_path / "a.db"):
        written, reader, topic = opened(path)
        rng, plain, ordinal = Random(1), dict[bytes, Row](), 0
        for _ in range(40):
            batch = [
                a_row(
                    rng.randrange(300),
                    rng.choice("abc"),
                    parents=tuple(map(an_id, range(rng.randrange(5)))),
                    sender=rng.choice((None, "k" * 43)),
                    is_orphan=rng.random() < 0.1,
                )
                for _ in range(rng.randrange(20))
            ]
            for row, done in zip(batch, written.commit([(topic, each) for each in batch]), strict=True):
                old = plain.get(row.entry_id)
                ordinal += (is_new := old is None or old.sender != row.sender)
                assert done == row._replace(ordinal=ordinal if is_new else 0)
                if is_new:
                    plain[row.entry_id] = (old or row)._replace(sender=row.sender, ordinal=ordinal)
        by_id = [plain[each] for each in sorted(plain)]
        by_ordinal = sorted(plain.values(), key=lambda row: row.ordinal)
        bytes_ = sum(len(row.message) for row in by_id)
        assert reader.standing() == tables.Standing(LOWEST, len(plain), bytes_, ordinal)
        assert list(reader.load()) == [(*row[:3], b"".join(row.parents)) for row in by_id]
        assert reader.rows([each.entry_id for each in by_id] + [an_id(999)]) == by_id
        assert reader.rows_after(7, 20) == [row for row in by_ordinal if row.ordinal > 7][:20]
        early = [row for row in by_id[9:] if row.ordinal <= 50]
        assert reader.rows_from(by_id[9].entry_id, 50, 9) == early[:9]
        assert reader.rows_from(bound_of_last([reader], 11), ordinal, 99) == by_id[-11:]
        assert bound_of_last([reader], 999) == LOWEST
        other = written.topic(b"u")
        assert other != topic == written.topic(b"t")
        again = [by_id[0]._replace(ordinal=1), by_id[0]]
        assert written.commit([(other, by_id[0]), (topic, by_id[0])]) == again
        if path is not None:
            reader.name(["it's none", "k" * 43])
            by_id = [row for row in by_id if row.sender]
            assert reader.rows_after(0, 999) == [row for row in by_ordinal if row.sender]
            assert [each[0] for each in reader.load()] == [row.entry_id for row in by_id]
            assert reader.lacking(Runs(), LOWEST, HIGHEST, FIRST, LAST, {}, 9)[0] == by_id[:9]


def test_a_cursor_tells_what_is_there_and_then_what_comes_from_its_bound_on() -> None:
    def seq_of(row: Row) -> Any:
        return row.seq

    written, reader, topic = opened(None)
    written.commit([(topic, a_row(number)) for number in (2, 3, 4)])
    cursors = [Cursor(reader, an_id(3), last, entry_of=seq_of) for last in (None, 0)]
    told: list[Any] = [cursors[0].take()]
    written.commit([(topic, a_row(number)) for number in (1, 5)])
    assert told + [each.take() for each in cursors] == [[4, 5], [6], [6]]


def test_the_oldest_leave_and_the_floor_only_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "EVICT_ROWS_MAX", 3)
    rng = Random(2)
    for _ in range(30):
        written, reader, topic = opened(None)
        plain, floor, pinned = dict[bytes, Row](), LOWEST, set[bytes]()
        for _ in range(60):
            number = rng.randrange(60)
            match rng.randrange(6):
                case 0:
                    evict = Evict(an_id(rng.randrange(60)), rng.choice((5, 99)), rng.choice((20, 999)))
                    while True:
                        (left,) = written.commit([(topic, evict)])
                        assert isinstance(left, Left) and floor <= left.floor and len(left.ids) <= 3
                        floor = left.floor
                        for each in left.ids:
                            del plain[each]
                        if not left.is_more:
                            break
                    assert floor >= evict.below
                case 1:
                    is_pinned = rng.random() < 0.6
                    (left,) = written.commit([(topic, Pin([an_id(number)], is_pinned))])
                    if is_pinned:
                        pinned |= {an_id(number)} & set(plain)
                    else:
                        pinned.discard(an_id(number))
                    assert isinstance(left, Left) and left.floor == floor
                    for each in left.ids:
                        del plain[each]
                case _:
                    row = a_row(number, is_pinned=rng.random() < 0.2)
                    is_taken = row.entry_id not in plain and (row.is_pinned or row.entry_id >= floor)
                    (done,) = written.commit([(topic, row)])
                    assert isinstance(done, Row) and bool(done.ordinal) == is_taken
                    if is_taken:
                        plain[row.entry_id] = row
                        pinned |= {row.entry_id} if row.is_pinned else set()
            there = sorted(each for each in plain if each >= floor)
            below = {each for each in plain if each < floor}
            assert below <= pinned
            standing = reader.standing()
            assert (standing.floor, standing.entries) == (floor, len(there))
            assert standing.size_bytes == sum(len(plain[each].message) for each in there)
            assert [each[0] for each in reader.load()] == sorted(plain)
        for bound, most, size_bytes in ((LOWEST, 4, 999), (LOWEST, 99, 9), (an_id(50), 99, 999)):
            while isinstance(left := written.commit([(topic, Evict(bound, most, size_bytes))])[0], Left):
                if not left.is_more:
                    break
            standing = reader.standing()
            assert standing.entries <= most and standing.size_bytes <= size_bytes and standing.floor >= bound


def test_what_is_lacking_is_found_by_number_or_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(3)
    for looked, of_a_run in ((0, 9), (60, 3), (3_000, 100)):  # by id; by either; by number
        monkeypatch.setattr(tables, "LOOK_ROWS_MAX", looked)
        monkeypatch.setattr(tables, "RUN_ROWS_MAX", of_a_run)
        monkeypatch.setattr(tables, "SCAN_ROWS_MAX", 40)
        for publishers in (1, 5, 60):
            written, reader, topic = opened(None)
            rows = [a_row(number, f"P{rng.randrange(publishers)}") for number in range(200)]
            written.commit([(topic, row) for row in rows])
            own = runs_of(rows)
            for share in (0.0, 0.5, 0.97, 1.0):
                kept = [row for row in rows if rng.random() < share]
                lo, hi = sorted(an_id(rng.randrange(-9, 220)) for _ in range(2))
                places = [FIRST, LAST, *((row.publisher, row.seq) for row in rows)]
                for start, stop in (sorted(rng.sample(places, 2)), (FIRST, LAST)):
                    ask = Asked(lo, hi, start, stop, held(kept), rng.choice((1, 7, 64)))
                    ids = {row.entry_id for row in rows} - {row.entry_id for row in kept}
                    check(reader, own, ask, sorted(ids))


def runs_of(rows: list[Row]) -> Runs:
    runs = Runs()
    for row in rows:
        runs.add(row.publisher, row.seq, row.entry_id)
    return runs


def held(rows: list[Row]) -> dict[str, list[Run]]:
    (told,) = runs_of(rows).slices(LOWEST, 10**6)
    runs = parse_runs(told.text)
    assert runs is not None
    return runs


def check(reader: Reader, own: Runs, ask: Asked, lacked: list[bytes]) -> None:
    places = {row.entry_id: (row.publisher, row.seq) for row in reader.rows(lacked)}
    wanted = [each for each in lacked if ask.lo <= each < ask.hi and ask.start <= places[each] < ask.stop]
    got = list[bytes]()
    while ask.lo < ask.hi:
        found, bound = reader.lacking(own, *ask)
        assert len(found) <= ask.lines_max and ask.lo < bound <= ask.hi
        got += (each.entry_id for each in found)
        assert got == [each for each in wanted if each < bound]
        ask = ask._replace(lo=bound)
    assert got == wanted


def test_no_run_is_unrolled_and_equal_numbers_do_not_hold_a_question_up() -> None:
    written, reader, topic = opened(None)
    rows = [a_row(number)._replace(seq=7) for number in range(tables.SCAN_ROWS_MAX + 99)]
    written.commit([(topic, row) for row in rows])
    ask = Asked(LOWEST, HIGHEST, FIRST, LAST, {}, 500)
    runs: dict[str, list[Run]]
    for runs in ({"a": [(8, 10**18 - 1)]}, {"a": [(1, 6)], "b": [(1, 10**18 - 1)]}):
        check(reader, runs_of(rows), ask._replace(runs=runs), sorted(row.entry_id for row in rows))
    check(reader, runs_of(rows), ask._replace(runs={"a": [(1, 10**18 - 1)]}), [])


def test_a_question_looks_at_a_bounded_number_of_runs() -> None:
    db = open_file(None)
    topic = Tables(db, None).topic(b"t")
    own = runs_of([a_row(2 * number) for number in range(tables.LOOK_ROWS_MAX)])
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    runs = {"b": [(1, 2)]}
    assert Reader(db, None, topic).lacking(own, LOWEST, HIGHEST, FIRST, LAST, runs, 9) == ([], HIGHEST)
    assert len(asked) <= tables.LOOK_ROWS_MAX / tables.LOOK_UP_ROWS + 3


def test_a_file_is_opened_again_and_read_beside_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "a?%20#.db"
    written, _, topic = opened(path)
    written.commit([(topic, a_row(1)), (topic, Evict(an_id(1), 9, 99))])
    reader = open_reader(path, b"t")
    assert [each.entry_id for each in reader.rows_after(0, 9)] == [an_id(1)]
    written.commit([(topic, a_row(2))])
    assert [each.entry_id for each in reader.rows_after(0, 9)] == [an_id(1), an_id(2)]
    again, reader, same = opened(path)
    assert same == topic and reader.standing() == tables.Standing(an_id(1), 2, 5, 2)
    assert again.commit([(topic, a_row(0))]) == [a_row(0)]
    with pytest.raises(StoreError, match="it has nothing of u: give a topic"):
        open_reader(path, b"u")


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def from_later(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:  # it writes the file when it is closed
        db.execute("pragma user_version = 2")


def to_a_program(path: Path, *lines: str) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        for line in lines:
            db.execute(line)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(b"no file of SQLite's, but a text\n" * 100), "give another file"),
        (lambda path: to_a_program(path, "create table other (a)"), "give another file"),
        (lambda path: to_a_program(path, "pragma user_version = 1"), "give another file"),
        (lambda path: to_a_program(path, f"pragma application_id = {0x46464646}"), "give another file"),
        (from_later, "a newer kcast has"),
        (lambda path: (path.unlink(), path.mkdir()), "give a"),
        (cut, "move it away"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "a.db"
    db = open_file(path)
    Tables(db, path).topic(b"t")
    db.close()
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    for is_writing in (False, True):
        with pytest.raises(StoreError, match=said) as raised:
            open_file(path, is_writing)
        assert str(path) in str(raised.value)
    assert not path.is_file() or path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none" / "a.db"
    with pytest.raises(StoreError, match="its folder cannot be written"):
        open_file(path)
    with pytest.raises(StoreError, match="there is no such file"):
        open_reader(tmp_path / "a.db", b"t")
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "b.db"
    open_file(path).close()
    path.chmod(0o400)
    with pytest.raises(StoreError, match="change its rights"):
        open_file(path)
