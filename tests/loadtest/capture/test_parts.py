from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kcast.loadtest.capture.parts import CaptureError, arrow_schema, contents, read_part, to_rows, write_part
from kcast.loadtest.capture.schema import SCHEMA_VERSION, TABLES
from tests.support.capture_rows import rows

PARTITIONS = {"run", "scenario", "table"}


def as_table(table: str, count: int = 5) -> pa.Table:
    return pa.Table.from_batches([to_rows(table, rows(table, count))])


def test_each_table_comes_back_as_it_went_and_explains_itself(tmp_path: Path) -> None:
    for table, columns in TABLES.items():
        path = tmp_path / table / "table=x" / "a.parquet"
        assert write_part(path, as_table(table))
        assert read_part(path, table).to_pydict() == rows(table, 5)
        assert read_part(path, table).schema.equals(arrow_schema(table), check_metadata=True)
        schema = pq.read_schema(path)
        assert schema.metadata[b"kcast.table"] == table.encode()
        assert schema.metadata[b"kcast.schema_version"] == str(SCHEMA_VERSION).encode()
        for name, kind, meaning in columns:
            assert schema.field(name).metadata[b"meaning"] == meaning.encode()
            told = str(schema.field(name).type).replace("element: ", "").replace(" not null", "")
            assert told in (kind, {"float64": "double"}.get(kind))
            assert not schema.field(name).nullable


def test_no_column_has_the_name_of_a_partition() -> None:
    assert {column.name for columns in TABLES.values() for column in columns} & PARTITIONS == set()


def test_times_and_ids_are_written_as_differences_and_all_else_with_dictionaries(tmp_path: Path) -> None:
    write_part(tmp_path / "a.parquet", as_table("deliver"))
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    for index in range(group.num_columns):
        column = group.column(index)
        is_long = column.physical_type == "INT64"
        assert ("DELTA_BINARY_PACKED" in column.encodings) == is_long
        assert column.has_dictionary_page != is_long
        assert column.compression == "ZSTD"


def test_arrays_are_taken_as_they_are() -> None:
    columns = {name: np.arange(3) for name in ("sub_id", "msg_id", "server_id", "t_kernel_ns", "t_user_ns")}
    made = to_rows("deliver", columns | {"injected": np.zeros(3, np.int8)})
    assert made.column("msg_id").to_pylist() == [0, 1, 2]
    assert made.schema.field("sub_id").type == pa.int32()


def test_a_callers_mistake_is_told() -> None:
    cases: list[Any] = [
        ({"server_id": [1], "t_ns": [1]}, "missing or unknown: cpu_ns, kernel_drops, queue_bytes, rss_bytes"),
        (rows("server_stat", 1) | {"more": [1]}, "missing or unknown: more"),
        (rows("server_stat", 2) | {"t_ns": [1]}, "t_ns.*must have a value in each row"),
        (rows("server_stat", 1) | {"t_ns": [None]}, "t_ns.*none of them null"),
        (rows("server_stat", 1) | {"t_ns": ["now"]}, "column t_ns of table server_stat"),
        (rows("server_stat", 1) | {"server_id": [2**31]}, "column server_id"),
        (rows("server_stat", 1) | {"server_id": np.array([2**31])}, "column server_id"),
        (rows("server_stat", 1) | {"t_ns": [0.5]}, "column t_ns.*whole numbers"),
        (rows("server_stat", 1) | {"t_ns": np.array([1.0])}, "column t_ns.*whole numbers"),
    ]
    for columns, complaint in cases:
        with pytest.raises(ValueError, match=complaint):
            to_rows("server_stat", columns)


def test_an_unknown_table_is_told() -> None:
    with pytest.raises(ValueError, match=r"no table delivered, only .*deliver"):
        to_rows("delivered", {})


def test_a_part_that_may_not_appear_leaves_nothing(tmp_path: Path) -> None:
    assert not write_part(tmp_path / "a.parquet", as_table("clock"), may_appear=lambda: False)
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_hidden_until_it_is_whole(tmp_path: Path) -> None:
    seen: list[str] = []

    def look() -> bool:
        seen.extend(path.name for path in tmp_path.iterdir())
        return True

    write_part(tmp_path / "a.parquet", as_table("clock"), may_appear=look)
    assert seen == [".a.parquet.unfinished"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_up(_: object, path: Path, **options: object) -> None:
        path.write_bytes(b"PAR1 and then")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fill_up)
    with pytest.raises(OSError, match="No space left"):
        write_part(tmp_path / "a.parquet", as_table("clock"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_part_is_named(kept: float, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_part(path, as_table("deliver", 1000))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(CaptureError, match=r"a\.parquet: not a whole Parquet file") as raised:
        read_part(path, "deliver")
    assert "\n" not in str(raised.value)


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_part(path, as_table("deliver", 1000))
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    with pytest.raises(CaptureError, match=r"a\.parquet: not a whole Parquet file"):
        read_part(path, "deliver")


def test_a_bit_that_flipped_in_a_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_part(path, as_table("deliver", 1000))
    data = path.read_bytes()
    metadata = pq.read_metadata(path).row_group(0)
    column = metadata.column(metadata.num_columns - 1)
    at = column.data_page_offset + column.total_compressed_size // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(CaptureError, match=r"a\.parquet: not a whole Parquet file: .*(CRC|checksum)"):
        read_part(path, "deliver")


@pytest.mark.long
def test_any_bit_that_flipped_is_found_where_the_hash_is_known(tmp_path: Path) -> None:
    """Without it, 302 of 400 were read as if nothing were wrong."""
    path, random = tmp_path / "a.parquet", Random(1)
    write_part(path, as_table("deliver", 1000))
    data, known = path.read_bytes(), contents(path)
    assert read_part(path, "deliver", expected_hash=known.hash).num_rows == known.rows == 1000
    for _ in range(60):
        at = random.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :])
        with pytest.raises(CaptureError, match=r"a\.parquet: "):
            read_part(path, "deliver", expected_hash=known.hash)


@pytest.mark.long
def test_a_footer_with_a_bit_that_flipped_is_named(tmp_path: Path) -> None:
    """Not all that Arrow raises then are errors of its own."""
    path, kinds = tmp_path / "a.parquet", Counter[str]()
    write_part(path, as_table("deliver", 1000))
    data, known = path.read_bytes(), contents(path)
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    for at in range(len(data) - footer_bytes, len(data), 20):
        for bit in (5, 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(CaptureError, match=r"a\.parquet: ") as raised:
                read_part(path, "deliver", expected_hash=known.hash)
            kinds["utf-8" if "utf-8" in str(raised.value) else "others"] += 1
    assert kinds["utf-8"] and kinds["others"]


def test_a_part_of_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = as_table("clock")
    metadata = table.schema.metadata | {b"kcast.schema_version": b"99"}
    write_part(tmp_path / "a.parquet", table.replace_schema_metadata(metadata))
    with pytest.raises(
        CaptureError, match=rf"a\.parquet: its schema version is 99, .* reads {SCHEMA_VERSION}"
    ):
        read_part(tmp_path / "a.parquet", "clock")


def test_what_is_no_part_of_the_table_is_named(tmp_path: Path) -> None:
    write_part(tmp_path / "a.parquet", as_table("clock"))
    with pytest.raises(CaptureError, match="not a part of table deliver"):
        read_part(tmp_path / "a.parquet", "deliver")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(CaptureError, match=r"b\.parquet: its schema version is none"):
        read_part(tmp_path / "b.parquet", "deliver")


def test_columns_come_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    write_part(tmp_path / "a.parquet", as_table("deliver"))
    assert read_part(tmp_path / "a.parquet", "deliver", ["server_id", "sub_id"]).column_names == [
        "server_id",
        "sub_id",
    ]
