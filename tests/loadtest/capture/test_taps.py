from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from kcast.loadtest.capture.folder import CaptureError, ScenarioFolder
from kcast.loadtest.capture.schema import EVICTED, EXPIRED, NONE, OPENED, STANDING
from kcast.loadtest.capture.taps import (
    Converted,
    MessageIds,
    PortOwner,
    convert,
    msg_ids_by_digest,
    owners_by_port,
)
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.scenario import topic_name
from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.tap import TapWriter, read_clock, read_clock_id
from kcast.pubsub.tap_format import Clock, Encoder, Lost
from tests.support.capture_rows import new_scenario

HOUR_NS = 3_600_000_000_000
PUBLISHER: Address = ("198.51.100.1", 1000)
SUBSCRIBER: Address = ("198.51.100.2", 2000)
MEMBERS = {1000: PortOwner(3, NONE), 2000: PortOwner(NONE, 4)}
BOOT = 0x0102030405060708


def lines(*msg_ids: int) -> list[bytes]:
    return [b"load/000009 %016x" % msg_id for msg_id in msg_ids]


def ids(*msg_ids: int) -> MessageIds:
    digests = np.array([xxh3_64_intdigest(line) for line in lines(*msg_ids)], np.uint64).view(np.int64)
    return MessageIds(digests, np.array(msg_ids, np.int64))


def tap(path: Path, boot_id: int = BOOT, **options: Any) -> TapWriter:
    return TapWriter(path, boot_id=boot_id.to_bytes(8, "big", signed=True), addresses=(), **options)


class Conversion:
    """Converts into a capture of its own, and reads that."""

    def __init__(self, place: ScenarioFolder) -> None:
        self.place = place
        self.writer = CaptureWriter(place.path, "taps")

    def convert(self, *paths: Path, of: MessageIds | None = None, **options: Any) -> Converted:
        between = {"t_from_ns": 0, "t_to_ns": 1 << 62} | options
        return convert(paths, 7, MEMBERS, ids(1, 2, 3) if of is None else of, self.writer, **between)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        self.writer.close()
        return [tuple(row.values()) for row in self.place.read(table).to_pylist()]


@pytest.fixture
def conversion(tmp_path: Path) -> Iterator[Conversion]:
    conversion = Conversion(new_scenario(tmp_path))
    yield conversion
    conversion.writer.close()


def test_a_line_is_a_row_with_its_message_and_its_publisher(conversion: Conversion, tmp_path: Path) -> None:
    with tap(tmp_path / "tap") as taps:
        taps.burst(1.5, PUBLISHER, topic_name(9), lines(1, 2))
        taps.burst(2.5, ("203.0.113.9", 9), b"weather/oslo", [b"weather/oslo -3"])
    assert conversion.convert(tmp_path / "tap") == Converted(1, 2, 1, 0)
    assert conversion.rows("server_rx") == [
        (7, BOOT, 1, 3, 9, 1_500_000_000),
        (7, BOOT, 2, 3, 9, 1_500_000_000),
        (7, BOOT, NONE, NONE, NONE, 2_500_000_000),
    ]


def test_digests_are_those_that_the_recorder_writes(conversion: Conversion, tmp_path: Path) -> None:
    with tap(tmp_path / "tap") as taps:
        taps.burst(1.5, PUBLISHER, topic_name(9), lines(*range(50)))
    published = conversion.place.read("publish")
    assert len(msg_ids_by_digest(published)) == 0
    digests = [xxh3_64_intdigest(line) for line in lines(*range(50))]
    assert any(digest >> 63 for digest in digests), "none that is below zero as a signed number"
    count = 51
    conversion.writer.append(
        "publish",
        dict.fromkeys(("pub_id", "topic_id", "t_intended_ns", "t_send_ns", "size_bytes"), [0] * count)
        | {"msg_id": range(count), "digest": np.array([*digests, 0], np.uint64).view(np.int64)},
    )
    conversion.writer.close()
    found = msg_ids_by_digest(conversion.place.read("publish", ["msg_id", "digest"]))
    assert len(found) == 50  # one never left
    again = Conversion(conversion.place)
    assert again.convert(tmp_path / "tap", of=found) == Converted(1, 50, 0, 0)
    assert [row[2] for row in again.rows("server_rx")] == list(range(50))


def test_each_change_of_a_lease_is_a_row(conversion: Conversion, tmp_path: Path) -> None:
    with tap(tmp_path / "tap") as taps:
        taps.lease(1.0, LeaseChange.OPENED, topic_name(9), SUBSCRIBER)
        taps.lease(2.0, LeaseChange.EXPIRED, topic_name(9), SUBSCRIBER)
        taps.lease(3.0, LeaseChange.OPENED, b"weather/oslo", ("203.0.113.9", 9))
        taps.lease(4.0, LeaseChange.EVICTED, b"weather/oslo", ("203.0.113.9", 9))
    conversion.convert(tmp_path / "tap")
    assert conversion.rows("lease") == [
        (7, BOOT, 4, 9, 1_000_000_000, OPENED),
        (7, BOOT, 4, 9, 2_000_000_000, EXPIRED),
        (7, BOOT, NONE, NONE, 3_000_000_000, OPENED),
        (7, BOOT, NONE, NONE, 4_000_000_000, EVICTED),
    ]


def test_leases_that_stand_when_a_file_begins_are_told(conversion: Conversion, tmp_path: Path) -> None:
    with tap(tmp_path / "tap", size_bytes_max=1024 * 1024) as taps:
        taps.lease(1.0, LeaseChange.OPENED, topic_name(9), SUBSCRIBER)
        for number in range(30):
            taps.burst(2.0 + number, PUBLISHER, topic_name(9), lines(1) * 500)
    assert (tmp_path / "tap.1").exists()
    assert conversion.convert(tmp_path / "tap") == Converted(1, 15_000, 0, 0)
    rows = conversion.rows("lease")
    assert rows[0] == (7, BOOT, 4, 9, 1_000_000_000, OPENED)
    assert [(row[1], row[2], row[3], row[5]) for row in rows[1:]] == [(BOOT, 4, 9, STANDING)]
    assert len(conversion.rows("server_rx")) == 15_000


def test_lines_outside_the_times_are_left_out_and_early_leases_are_not(
    conversion: Conversion, tmp_path: Path
) -> None:
    with tap(tmp_path / "tap") as taps:
        for second in range(6):
            taps.lease(float(second), LeaseChange.OPENED, topic_name(second), SUBSCRIBER)
            taps.burst(float(second), PUBLISHER, topic_name(9), lines(second))
    of = ids(*range(6))
    conversion.convert(tmp_path / "tap", of=of, t_from_ns=2_000_000_000, t_to_ns=4_000_000_000)
    assert [row[2] for row in conversion.rows("server_rx")] == [2, 3]
    assert [row[3] for row in conversion.rows("lease")] == [0, 1, 2, 3]


def test_each_life_is_a_row_whether_in_one_base_file_or_in_several(
    conversion: Conversion, tmp_path: Path
) -> None:
    clock = Clock(HOUR_NS, 2 * HOUR_NS)
    with tap(tmp_path / "tap", boot_id=-1, read_clock=lambda: clock) as taps:
        taps.burst(3601.0, PUBLISHER, topic_name(9), lines(1))
    data = (tmp_path / "tap").read_bytes()
    with tap(
        tmp_path / "tap", boot_id=2, read_clock=lambda: clock._replace(monotonic_ns=2 * HOUR_NS)
    ) as taps:
        taps.lease(7201.0, LeaseChange.OPENED, topic_name(9), SUBSCRIBER)
    (tmp_path / "other").write_bytes(data[:-36])  # without its End: it was killed
    paths = tmp_path / "tap", tmp_path / "none", tmp_path / "other"
    assert conversion.convert(*paths[:2]) == Converted(2, 1, 0, 0)
    assert conversion.convert(paths[2]).lives == 1
    assert conversion.rows("server_life") == [
        (7, -1, HOUR_NS, HOUR_NS + 1_000_000_000, 0, 1),
        (7, 2, 2 * HOUR_NS, 2 * HOUR_NS + 1_000_000_000, 0, 1),
        (7, -1, HOUR_NS, HOUR_NS + 1_000_000_000, 0, 0),
    ]


def test_times_that_no_clock_has_are_told(conversion: Conversion, tmp_path: Path) -> None:
    encoder = Encoder(boot_id=bytes(8), addresses=(), clock_id="of another machine", standing_bytes_max=1000)
    encoder.begin_file(Clock(-(1 << 63), (1 << 63) - 1))
    encoder.lease(9e9, LeaseChange.OPENED, topic_name(9), SUBSCRIBER)
    (tmp_path / "tap").write_bytes(encoder.take())
    with pytest.raises(CaptureError, match="tap: times that no clock has"):
        conversion.convert(tmp_path / "tap", t_to_ns=1 << 80)


def test_what_a_tap_has_lost_is_told(conversion: Conversion, tmp_path: Path) -> None:
    encoder = Encoder(
        boot_id=BOOT.to_bytes(8), addresses=(), clock_id=read_clock_id(), standing_bytes_max=1000
    )
    encoder.begin_file(Clock(0, HOUR_NS))
    encoder.burst(1.0, PUBLISHER, topic_name(9), lines(1))
    encoder.lost(Lost(2_000_000_000, 3_000_000_000, 5, 40))
    encoder.lost(Lost(4_000_000_000, 5_000_000_000, 1, 2))
    encoder.end(Clock(6_000_000_000, HOUR_NS), 6)
    (tmp_path / "tap").write_bytes(encoder.take())
    assert conversion.convert(tmp_path / "tap") == Converted(1, 1, 0, 42)
    assert conversion.rows("server_life") == [(7, BOOT, 0, 6_000_000_000, 42, 1)]


def test_damage_counts_as_lost(conversion: Conversion, tmp_path: Path) -> None:
    with tap(tmp_path / "tap") as taps:
        taps.burst(1.0, PUBLISHER, topic_name(9), lines(1))
        taps.burst(2.0, PUBLISHER, topic_name(9), lines(2))
    data = (tmp_path / "tap").read_bytes()
    (tmp_path / "tap").write_bytes(data[:-52] + bytes(52))
    assert conversion.convert(tmp_path / "tap").lost_lines == 1


def test_a_tap_of_another_machine_is_brought_to_this_clock(conversion: Conversion, tmp_path: Path) -> None:
    here = read_clock()
    there = Clock(77 * HOUR_NS, here.wall_ns)
    with tap(tmp_path / "tap", clock_id="of another machine", read_clock=lambda: there) as taps:
        taps.burst(77 * 3600.0 + 1, PUBLISHER, topic_name(9), lines(1))
    conversion.convert(tmp_path / "tap", offset_ns=5_000_000_000)
    ((*_, t_rx_ns),) = conversion.rows("server_rx")
    assert abs(t_rx_ns - here.monotonic_ns - 6_000_000_000) < 1_000_000


def test_what_is_no_tap_is_named(conversion: Conversion, tmp_path: Path) -> None:
    (tmp_path / "tap").write_text("hello, world")
    with pytest.raises(CaptureError, match=r"tap: not a tap file"):
        conversion.convert(tmp_path / "tap")


def test_a_server_without_any_life_is_no_row(conversion: Conversion, tmp_path: Path) -> None:
    assert conversion.convert(tmp_path / "tap") == Converted(0, 0, 0, 0)
    assert conversion.rows("server_life") == []


def test_a_digest_of_no_message_is_nobodys() -> None:
    assert ids(1, 2).of(np.array([0, 1 << 62, -(1 << 63)], np.int64)).tolist() == [NONE] * 3
    assert ids().of(np.array([0], np.int64)).tolist() == [NONE]


def test_of_members_that_had_one_port_the_last_one_counts(conversion: Conversion) -> None:
    conversion.writer.append(
        "member",
        {
            "client_id": [0, 1, 2],
            "pub_id": [0, 1, NONE],
            "sub_id": [NONE, NONE, 5],
            "port": [1000, 1000, 2000],
            "publisher": ["a", "b", ""],
            "process": ["w"] * 3,
            "t_ns": [20, 10, 0],
            "servers": [[1], [2, 3], []],
        },
    )
    conversion.writer.close()
    assert owners_by_port(conversion.place.read("member")) == {
        1000: PortOwner(0, NONE),
        2000: PortOwner(NONE, 5),
    }
