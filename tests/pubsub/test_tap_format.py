"""pubsub/tap_format.py: golden bytes, both ways, and whatever else a file may hold. docs/tap.md."""

import io
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from kcast.pubsub import tap_format
from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.tap_format import (
    CLOSING_ROOM_BYTES,
    LINES_PER_RECORD_MAX,
    MAGIC,
    RECORD_ROOM_BYTES,
    SERVER_ADDRESSES_MAX,
    Clock,
    Continued,
    Cut,
    Encoder,
    End,
    FileHead,
    Lost,
    Record,
    Standing,
    TapBurst,
    TapError,
    TapLease,
    decode,
)
from tests.support.tap_records import (
    BOOT_ID,
    CLOCK,
    GOLDEN,
    GOLDEN_FILE,
    GOLDEN_RECORDS,
    HEAD,
    NONE_STAND,
    PREAMBLE,
    SERVERS,
    A,
    B,
)


def new_encoder(standing_bytes_max: int = 1000, addresses: Sequence[Address] = SERVERS) -> Encoder:
    return Encoder(
        boot_id=BOOT_ID, addresses=addresses, clock_id="boot", standing_bytes_max=standing_bytes_max
    )


def read_back(data: bytes | bytearray) -> list[Record]:
    return list(decode(io.BytesIO(data)))


def ends(record: Record) -> bool:
    return isinstance(record, (Continued, End, Cut))


# --- Golden bytes ------------------------------------------------------------------------------------


def test_golden_bytes_both_ways() -> None:
    encoder = new_encoder()
    for work, text, _ in GOLDEN:
        work(encoder)
        assert encoder.take().hex() == text.replace(" ", "")
    assert encoder.file_bytes == len(GOLDEN_FILE)
    assert read_back(GOLDEN_FILE) == GOLDEN_RECORDS


# --- Round trip --------------------------------------------------------------------------------------

TOPICS = st.binary(min_size=1, max_size=300) | st.sampled_from((b"a", b"b"))
HOSTS = st.ip_addresses().map(str) | st.just("::1")
ADDRESSES = st.tuples(HOSTS, st.integers(0, 65535))
TIMES_NS = st.integers(0, 2**40).map(lambda number: number * 1_000_000)
BURSTS = st.builds(
    TapBurst, TIMES_NS, ADDRESSES, TOPICS, st.lists(st.binary(max_size=40), max_size=5).map(tuple)
)
LEASES = st.builds(TapLease, TIMES_NS, st.sampled_from(LeaseChange), TOPICS, ADDRESSES)
CLOCKS = st.builds(Clock, st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
COUNTS = st.integers(0, 2**64 - 1)
LOSSES = st.builds(Lost, TIMES_NS, TIMES_NS, COUNTS, COUNTS)


def put(encoder: Encoder, record: Record) -> Record:
    """Encodes it, a burst's `digests` being its lines; what it should be read as."""
    match record:
        case TapBurst(time_ns, source, topic, lines):
            encoder.burst(time_ns / 1e9, source, topic, lines)
            time_ns = int(time_ns / 1e9 * 1e9)
            return TapBurst(time_ns, source, topic, tuple(map(xxh3_64_digest, lines)))
        case TapLease(time_ns, change, topic, address):
            encoder.lease(time_ns / 1e9, change, topic, address)
            return record._replace(time_ns=int(time_ns / 1e9 * 1e9))
        case Lost():
            encoder.lost(record)
        case Clock():
            encoder.clock(record)
    return record


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(BURSTS | LEASES | LOSSES | CLOCKS, max_size=30), st.integers(1, 4))
def test_what_is_put_in_is_read_back(records: list[Record], numbers_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tap_format, "NUMBERS_MAX", numbers_max)  # numbering starts afresh often
        encoder = new_encoder()
        encoder.begin_file(CLOCK)
        expected = [put(encoder, record) for record in records]
        encoder.end(CLOCK, 0)
        head, standing, *found, end = read_back(encoder.take())
    assert (type(head), type(standing)) == (FileHead, Standing)
    assert found == expected
    bursts_and_leases = sum(isinstance(record, (TapBurst, TapLease)) for record in records)
    assert end == End(CLOCK, bursts_and_leases, 0)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(LEASES, max_size=40), st.sampled_from((0, 50, 200, 10_000)), st.data())
def test_standing_leases_are_those_opened_and_not_ended(
    changes: list[TapLease], standing_bytes_max: int, data: st.DataObject
) -> None:
    encoder = new_encoder(standing_bytes_max)
    expected: dict[tuple[bytes, Address], None] = {}
    for change in changes:
        lease = change.topic, change.address
        if change.change is not LeaseChange.OPENED:
            lease = data.draw(st.sampled_from([lease, *expected]))
            expected.pop(lease, None)
        else:
            expected[lease] = None
        encoder.follow(change.change, *lease)
    head_bytes = encoder.head_bytes
    with patch.object(tap_format, "_LEASES_PER_PIECE", 3):
        encoder.begin_file(CLOCK)
    assert head_bytes - 150 <= len(encoder.buffer) <= head_bytes
    standing = read_back(encoder.take())[1]
    assert isinstance(standing, Standing)
    listed = len(standing.leases)
    assert standing.leases == tuple(expected)[:listed]
    assert standing.omitted == len(expected) - listed
    if standing_bytes_max == 10_000:
        assert not standing.omitted


# --- Bounds ------------------------------------------------------------------------------------------


def test_room_is_enough_for_what_is_added_at_once() -> None:
    encoder = new_encoder()
    encoder.begin_file(CLOCK)
    encoder.take()
    source: Address = ("h" * 1000, 65535)
    encoder.burst(1.0, source, b"t" * 1200, [b""] * LINES_PER_RECORD_MAX)
    assert len(encoder.take()) <= RECORD_ROOM_BYTES
    encoder.lease(1.0, LeaseChange.OPENED, b"t" * 1200, source)
    assert len(encoder.take()) <= RECORD_ROOM_BYTES
    encoder.lost(Lost(0, 0, 0, 0))
    encoder.clock(CLOCK)
    encoder.end(CLOCK, 0)
    assert len(encoder.take()) <= CLOSING_ROOM_BYTES


def test_a_list_is_made_of_what_it_has_room_for_however_many_leases_stand() -> None:
    """A tenth of these leases fits; to join all would take the server's thread 10 ms and more."""
    size_bytes_max = 500_000
    encoder = new_encoder(size_bytes_max)
    for number in range(20_000):
        encoder.follow(LeaseChange.OPENED, (b"%d" % number).ljust(220, b"t"), ("198.51.100.1", 2000))
    tracemalloc.start()
    encoder.begin_file(CLOCK)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.99 * size_bytes_max < len(encoder.buffer) < size_bytes_max + 200
    assert peak_bytes < 3 * size_bytes_max


def test_head_fits_where_it_is_longest() -> None:
    encoder = new_encoder(0, [("h" * 255, 65535)] * SERVER_ADDRESSES_MAX)
    head_bytes = encoder.head_bytes
    encoder.begin_file(CLOCK)
    assert len(encoder.buffer) <= head_bytes
    assert len(encoder.buffer) < RECORD_ROOM_BYTES
    (head, _, cut) = read_back(encoder.take())
    assert isinstance(head, FileHead)
    assert len(head.addresses) == SERVER_ADDRESSES_MAX
    assert isinstance(cut, Cut)


def test_text_of_numbered_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_format, "NUMBERED_BYTES_MAX", 10)
    encoder = new_encoder()
    encoder.begin_file(CLOCK)
    topics = [b"aaaa", b"bbbb", b"cccc", b"aaaa"]
    for topic in topics:
        encoder.burst(1.0, A, topic, ())
    encoder.end(CLOCK, 0)
    found = [record.topic for record in read_back(encoder.buffer) if isinstance(record, TapBurst)]
    assert found == topics
    assert encoder.buffer.count(b"\x08\0\0\0") == 1
    assert encoder.buffer.count(b"aaaa") == 2


def test_more_sources_and_topics_than_two_bytes_can_number() -> None:
    encoder = new_encoder()
    encoder.begin_file(CLOCK)
    expected = [(("::1", number % 65_536), b"%d" % number) for number in range(65_540)]
    for source, topic in expected:
        encoder.burst(1.0, source, topic, ())
    encoder.burst(1.0, B, b"0", ())
    encoder.end(CLOCK, 0)
    bursts = [record for record in read_back(encoder.take()) if isinstance(record, TapBurst)]
    assert [(burst.source, burst.topic) for burst in bursts] == [*expected, (B, b"0")]


# --- Cut, damaged and foreign files ------------------------------------------------------------------


def boundaries(data: bytes) -> list[int]:
    """Where the preamble and each record end."""
    found = [len(bytes.fromhex(PREAMBLE))]
    while found[-1] < len(data):
        found.append(found[-1] + 4 + int.from_bytes(data[found[-1] + 1 : found[-1] + 4], "big"))
    return found


def test_file_cut_anywhere_is_read_up_to_the_cut() -> None:
    ends = boundaries(GOLDEN_FILE)
    for length in range(len(GOLDEN_FILE)):
        *whole, cut = read_back(GOLDEN_FILE[:length])
        assert whole == GOLDEN_RECORDS[: len(whole)]
        offset = max((end for end in ends if end <= length), default=0)
        assert isinstance(cut, Cut) and cut.offset == offset, length
        if offset in ends[1:]:
            assert cut.reason == ("has no end" if offset == length else "ends within a record")
            assert whole == read_back(GOLDEN_FILE[:offset])[:-1]
        else:
            assert not whole


@pytest.mark.parametrize("zeros", [1, 3, 4, 5, 4096])
def test_zeros_of_a_crashed_machine_are_a_cut(zeros: int) -> None:
    head = bytes.fromhex(PREAMBLE + HEAD + NONE_STAND)
    *whole, cut = read_back(head + bytes(zeros))
    assert whole == GOLDEN_RECORDS[:2]
    assert cut == Cut(len(head), "damaged" if zeros >= 4 else "ends within a record")


def test_unknown_records_are_skipped() -> None:
    boundary = len(bytes.fromhex(PREAMBLE + HEAD))
    unknown = b"\xfe\0\0\x05later" + b"\x0c\0\0\0"
    assert read_back(GOLDEN_FILE[:boundary] + unknown + GOLDEN_FILE[boundary:]) == GOLDEN_RECORDS


@pytest.mark.parametrize(
    "record",
    [
        "01000000",  # a second head
        "04000014 0000000147d35700 0001 0000 b1044d32922e8db7",  # numbers that stand for nothing
        "04000014 0000000147d35700 0000 0001 b1044d32922e8db7",
        "0400000b 0000000147d357 0000 0000",
        "04000013 0000000147d35700 0000 0000 b1044d32922e8d",
        "08000000 04000014 0000000147d35700 0000 0000 b1044d32922e8db7",
        "05000020 0000000165a0bc00 00 ffff 0b 323030313a6462383a3a31 0007 77656174686572",
        "05000020 0000000165a0bc00 04 ffff 0b 323030313a6462383a3a31 0007 77656174686572",
        "05000020 0000000165a0bc00 01 ffff 0b 323030313a6462383a3a31 0008 77656174686572",
        "05000020 0000000165a0bc00 01 ffff 0b 323030313a6462383a3a31 0006 77656174686572",
        "05000020 0000000165a0bc00 01 ffff 0b 323030313a6462383a3aff 0007 77656174686572",
        "05000001 00",
        "06000023 0000000000000009 00000000 ffff 0c 323030313a6462383a3a31 0007 77656174686572",
        "0600000d 0000000000000009 00000000 ff",
        "0700001f 0000000000000001 0000000000000002 0000000000000003 00000000000000",
        "02000001 03",
        "02000003 0000 ff",
        "09000000",
        "0a000011 000000000000000c 000000000000000d 00",
        "0b000000",
        "00000004 00000000",
    ],
)
def test_damage_is_a_cut_there(record: str) -> None:
    sound = bytes.fromhex("".join(text for _, text, _ in GOLDEN[:3]))
    *whole, cut = read_back(sound + bytes.fromhex(record) + GOLDEN_FILE[len(sound) :])
    assert whole == GOLDEN_RECORDS[:4]
    assert isinstance(cut, Cut)
    renumbering = 4 if record.startswith("08") else 0
    assert cut == Cut(len(sound) + renumbering, "damaged")


@pytest.mark.parametrize("data", [b"x", b"kcast-cluster 1\n", b"\x89PNG\r\n\x1a\n" + bytes(20), b"\0" * 100])
def test_foreign_file_is_named_so(data: bytes) -> None:
    with pytest.raises(TapError, match="not a tap file"):
        read_back(data)


@pytest.mark.parametrize("version", [0, 2, 256, 0xFFFFFFFF])
def test_another_version_is_named_so(version: int) -> None:
    with pytest.raises(TapError, match=f"of version {version}; only version 1 is known"):
        read_back(MAGIC + version.to_bytes(4, "big") + GOLDEN_FILE[12:])


@pytest.mark.parametrize("head", ["02000003 03e8 31", "01000000", "00000000", "01000001 00"])
def test_damaged_head_makes_the_file_useless(head: str) -> None:
    with pytest.raises(TapError, match="its head is damaged"):
        read_back(bytes.fromhex(PREAMBLE + head))


@settings(derandomize=True, max_examples=500, deadline=None)
@given(
    st.binary(max_size=200).map(lambda tail: GOLDEN_FILE[:12] + tail)
    | st.binary(max_size=200).map(lambda tail: bytes.fromhex(PREAMBLE + HEAD) + tail)
    | st.lists(st.tuples(st.integers(0, 14), st.integers(0, 40), st.binary(max_size=40)), max_size=20).map(
        lambda records: (
            bytes.fromhex(PREAMBLE + HEAD)
            + b"".join(bytes([kind, 0, 0, length]) + payload for kind, length, payload in records)
        )
    )
    | st.binary(max_size=40)
)
def test_any_bytes_give_records_and_a_last_one_or_a_tap_error(data: bytes) -> None:
    try:
        *records, last = read_back(data)
    except TapError:
        return
    assert ends(last)
    assert not any(isinstance(record, Cut) for record in records)


def test_length_that_a_record_claims_costs_no_memory_beyond_the_longest(tmp_path: Path) -> None:
    path = tmp_path / "tap"
    path.write_bytes(bytes.fromhex(PREAMBLE + HEAD + "06ffffff"))
    with path.open("rb") as file:
        tracemalloc.start()
        try:
            *_, cut = decode(file)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert cut == Cut(path.stat().st_size - 4, "ends within a record")
    assert peak_bytes < 18 * 1024 * 1024
