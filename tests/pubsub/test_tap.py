"""pubsub/tap.py: what it is told is in the files, or said to be missing; no server waits. docs/tap.md."""

import errno
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from kcast.pubsub import tap as tap_module
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, LeaseChange, Tap
from kcast.pubsub.tap import (
    QUEUE_BYTES_MIN,
    SIZE_BYTES_MIN,
    TapWriter,
    as_json,
    main,
    read,
    read_all,
)
from kcast.pubsub.tap_files import FILES_MAX, FILES_PER_BOUND, TapFiles, numbered
from kcast.pubsub.tap_format import (
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
    TapLease,
)
from tests.support.server_core import handshake, lease, new_server, send, vouched
from tests.support.tap_records import BOOT_ID, GOLDEN_FILE, GOLDEN_RECORDS, LINES, SERVERS, A, B
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

WAIT_S = 10.0
FILE_BYTES_MAX = SIZE_BYTES_MIN // FILES_PER_BOUND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


def new_tap(path: Path, **options: Any) -> TapWriter:
    return TapWriter(path, boot_id=BOOT_ID, addresses=SERVERS, **options)


def small_tap(path: Path, **options: Any) -> TapWriter:
    return new_tap(path, size_bytes_max=SIZE_BYTES_MIN, queue_bytes_max=QUEUE_BYTES_MIN, **options)


def digests(*lines: bytes) -> tuple[bytes, ...]:
    return tuple(map(xxh3_64_digest, lines))


def told(records: list[Record]) -> list[Record]:
    """The bursts and lease changes among them."""
    return [record for record in records if isinstance(record, (TapBurst, TapLease))]


class Disk:
    """Stands before `TapFiles.write`: lets so many writes through, looks on, and knows what waits."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.writes_allowed = math.inf
        self.is_asked = Event()  # for a write that is not allowed
        self.after_write: Callable[[], None] = lambda: None
        self._changed = Condition()
        self._taken_bytes = 0
        write, take = TapFiles.write, Encoder.take

        def write_when_allowed(files: TapFiles, data: bytes | bytearray) -> None:
            with self._changed:
                if not self.writes_allowed:
                    self.is_asked.set()
                assert self._changed.wait_for(lambda: self.writes_allowed, WAIT_S)
                self.writes_allowed -= 1
            write(files, data)
            self.after_write()

        def take_and_count(encoder: Encoder) -> bytearray:
            taken = take(encoder)
            self._taken_bytes += len(taken)
            return taken

        patch.setattr(TapFiles, "write", write_when_allowed)
        patch.setattr(Encoder, "take", take_and_count)

    def allow(self, writes: float) -> None:
        with self._changed:
            self.writes_allowed = writes
            self._changed.notify()

    def waiting_bytes(self, tap: TapWriter) -> int:
        """What was given to the tap and is not on the disk yet: by the bytes, not by the tap's own count."""
        with tap._lock:
            return self._taken_bytes + len(tap._encoder.buffer) - tap.bytes_written


def keep_up(tap: TapWriter) -> None:
    """Goes no faster than the tap's thread."""
    wait_until(lambda: not tap._full)
    assert tap.failure is None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# --- What is given to it is in the file ----------------------------------------------------------------


def test_bursts_and_lease_changes_are_read_back(path: Path) -> None:
    with new_tap(path, clock_id="boot") as writer:
        tap: Tap = writer
        tap.lease(1.0, LeaseChange.OPENED, b"weather", B)
        tap.burst(1.5, A, b"weather", LINES)
        tap.burst(1.5, A, b"ice", [b"ice thin"])
        tap.lease(2.0, LeaseChange.EXPIRED, b"weather", B)
    head, standing, *records, end = read(path)
    assert isinstance(head, FileHead)
    assert head == FileHead(BOOT_ID, 0, head.clock, "boot", "xxh3-64", SERVERS)
    assert standing == Standing(head.clock.monotonic_ns, (), 0)
    assert records == [
        TapLease(1_000_000_000, LeaseChange.OPENED, b"weather", B),
        TapBurst(1_500_000_000, A, b"weather", digests(*LINES)),
        TapBurst(1_500_000_000, A, b"ice", digests(b"ice thin")),
        TapLease(2_000_000_000, LeaseChange.EXPIRED, b"weather", B),
    ]
    assert isinstance(end, End)
    assert (end.records, end.lost_records) == (4, 0)
    assert (writer.records_dropped, writer.failure) == (0, None)
    assert writer.bytes_written == path.stat().st_size


def test_server_and_its_subscriber_have_the_same_digests(path: Path) -> None:
    """A subscriber's client hashes whole lines as they come; so does the tap."""
    with new_tap(path) as tap:
        server = new_server(tap=tap)
        cookie = handshake(server)
        lease(server, B, b"weather")
        copies = send(server, vouched(cookie, b"weather rain", b"weather 12 %25", b"nobody x"))
    (copy,) = (data for address, data in copies if address == B)
    bursts = [record for record in read(path) if isinstance(record, TapBurst)]
    assert [burst.topic for burst in bursts] == [b"weather", b"nobody"]
    assert bursts[0].digests == digests(*wire.split_lines(copy)[0])
    (opened,) = (record for record in read(path) if isinstance(record, TapLease))
    assert (opened.change, opened.topic, opened.address) == (LeaseChange.OPENED, b"weather", B)


def has_grown(tap: TapWriter, since_bytes: int) -> bool:
    return tap.bytes_written > since_bytes


def test_clocks_are_tied_together_again_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "FLUSH_S", 0.001)
    clock = Clock(0, 10**18)
    with new_tap(path, read_clock=lambda: clock) as tap:
        for seconds in (0, 59, 60, 61, 119, 120):
            clock = Clock(seconds * 10**9, 10**18 + seconds)
            written = tap.bytes_written
            tap.burst(seconds, A, b"t", LINES)
            wait_until(partial(has_grown, tap, written))
        clock = Clock(190 * 10**9, 0)
    assert isinstance(list(read(path))[-1], End)
    assert [record for record in read(path) if isinstance(record, Clock)] == [
        Clock(60 * 10**9, 10**18 + 60),
        Clock(120 * 10**9, 10**18 + 120),
    ]


# --- The thread --------------------------------------------------------------------------------------


def test_much_is_written_without_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "FLUSH_S", 10 * WAIT_S)
    with new_tap(path) as tap:
        head_bytes = tap.bytes_written
        tap.burst(1.0, A, b"t", LINES)
        time.sleep(0.02)
        assert tap.bytes_written == head_bytes
        for _ in range(300):
            tap.burst(1.0, A, b"t", LINES[:1] * 200)
        wait_until(lambda: tap.bytes_written > head_bytes)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thread_sleeps_while_there_is_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "FLUSH_S", 0.001)

    def wake_ups() -> int:
        status = Path(f"/proc/self/task/{tap._thread.native_id}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
        return int(line.split()[1])

    with new_tap(path) as tap:
        for _ in range(2):
            written = tap.bytes_written
            tap.burst(1.0, A, b"t", LINES)
            wait_until(partial(has_grown, tap, written))
            time.sleep(0.05)
            before = wake_ups()
            time.sleep(0.1)
            assert wake_ups() == before


# --- Full files --------------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=25, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32), st.integers(1, 3000), st.integers(0, 1500))
def test_bound_holds_and_every_file_can_be_read_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lines_max: int, leases_max: int
) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("bound") / "tap"
    expected: list[Record] = []
    standing: dict[tuple[bytes, Address], None] = {}
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)

        def look() -> None:
            sizes = [file.stat().st_size for file in path.parent.iterdir()]
            assert max(sizes) <= FILE_BYTES_MAX
            assert sum(sizes) <= SIZE_BYTES_MIN

        disk.after_write = look
        with small_tap(path) as tap:
            for number in range(rng.randint(1, 400)):
                topic, source = b"topic%d" % rng.randint(0, 5000), ("192.0.2.1", rng.randint(1, 9999))
                while len(standing) < leases_max and rng.random() < 0.9:
                    a_lease = b"topic%d" % rng.randint(0, 5000), ("192.0.2.2", rng.randint(1, 9999))
                    standing[a_lease] = None
                    tap.lease(number, LeaseChange.OPENED, *a_lease)
                    expected.append(TapLease(number * 10**9, LeaseChange.OPENED, *a_lease))
                if standing and rng.random() < 0.2:
                    a_lease = rng.choice(list(standing))
                    del standing[a_lease]
                    tap.lease(number, LeaseChange.EVICTED, *a_lease)
                    expected.append(TapLease(number * 10**9, LeaseChange.EVICTED, *a_lease))
                lines = [b"%d %d" % (number, line) for line in range(rng.randint(0, lines_max))]
                tap.burst(number, source, topic, lines)
                expected.append(TapBurst(number * 10**9, source, topic, digests(*lines)))
                keep_up(tap)
        assert (tap.records_dropped, tap.failure) == (0, None)
    records = list(read_all(path))
    kept = told(records)
    assert kept == expected[len(expected) - len(kept) :]
    check_parts(records, expected[: len(expected) - len(kept)])
    files = [numbered(path, number) for number in reversed(range(FILES_MAX))]
    assert [record for file in files if file.exists() for record in read(file)] == records


def check_parts(records: list[Record], before: list[Record]) -> None:
    """Parts follow each other, and each begins with the leases that stand, or with some and how many more."""
    parts = [record.part for record in records if isinstance(record, FileHead)]
    assert parts == list(range(parts[0], parts[0] + len(parts)))
    assert (parts[0] == 0) == (not before)
    standing: dict[tuple[bytes, Address], None] = {}
    for record in [*before, *records]:
        match record:
            case TapLease(_, LeaseChange.OPENED, topic, address):
                standing.setdefault((topic, address))
            case TapLease(_, _, topic, address):
                standing.pop((topic, address), None)
            case Standing(_, leases, omitted):
                assert leases == tuple(standing)[: len(leases)]
                assert len(leases) + omitted == len(standing)
    kinds = [type(record) for record in records]
    assert kinds.count(Continued) == len(parts) - 1
    assert kinds[-1] is End


# --- A disk that is too slow ---------------------------------------------------------------------------


def test_what_a_slow_disk_does_not_take_is_counted_and_recorded(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_module, "FLUSH_S", 0.01)
    with small_tap(path) as tap:
        tap.lease(1.0, LeaseChange.OPENED, b"kept", A)
        disk.allow(0)
        number = 0
        while not tap.records_dropped:
            tap.burst(2.0 + number, A, b"t", LINES[:1] * 100)
            number += 1
            if number > 10:
                assert disk.is_asked.wait(WAIT_S)
        tap.lease(9000.0, LeaseChange.EXPIRED, b"kept", A)
        tap.lease(9001.0, LeaseChange.OPENED, b"missed", B)
        tap.burst(9002.0, A, b"t", LINES)
        assert tap.records_dropped == 4
        disk.allow(math.inf)
        wait_until(lambda: tap._gap is None)
        tap.burst(9003.0, A, b"t", LINES)
    assert tap.records_dropped == 4
    records = list(read_all(path))
    (lost,) = (record for record in records if isinstance(record, Lost))
    assert lost == Lost((1 + number) * 10**9, 9002 * 10**9, 4, 100 + len(LINES))
    after = records[records.index(lost) + 1 :]
    standing = next(record for record in after if isinstance(record, Standing))
    assert standing.leases == ((b"missed", B),)
    assert told(after) == [TapBurst(9003 * 10**9, A, b"t", digests(*LINES))]
    assert len(told(records)) == number - 1 + 2
    end = records[-1]
    assert isinstance(end, End)
    assert (end.records, end.lost_records) == (number - 1 + 2, 4)


@settings(derandomize=True, max_examples=15, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_given_is_recorded_plus_lost_whatever_the_disk_does(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("slow") / "tap"
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)

        size_bytes_max = 16 * SIZE_BYTES_MIN  # so that nothing is deleted

        def look() -> None:
            assert (
                max(file.stat().st_size for file in path.parent.iterdir())
                <= size_bytes_max // FILES_PER_BOUND
            )

        disk.after_write = look
        with new_tap(path, size_bytes_max=size_bytes_max, queue_bytes_max=QUEUE_BYTES_MIN) as tap:
            given_bursts = given_lines = 0
            for number in range(rng.choice((0, 3000))):
                tap.lease(1.0, LeaseChange.OPENED, b"standing", ("192.0.2.1", number))
                given_bursts += 1
            for step in range(rng.randint(1, 6)):
                disk.allow(rng.choice((0, 1, 2)) if step % 2 else math.inf)
                for _ in range(rng.randint(1, 600)):
                    lines = [b"t"] * rng.randint(0, 500)
                    tap.burst(1.0, A, b"t%d" % rng.randint(0, 100), lines)
                    given_bursts, given_lines = given_bursts + 1, given_lines + len(lines)
                    assert disk.waiting_bytes(tap) <= QUEUE_BYTES_MIN
                for _ in range(rng.randint(0, 300)):
                    change = rng.choice(list(LeaseChange))
                    tap.lease(1.0, change, b"t%d" % rng.randint(0, 9), A)
                    given_bursts += 1
            disk.allow(math.inf)
        assert tap.failure is None
    records = list(read_all(path))
    losses = [record for record in records if isinstance(record, Lost)]
    lost_records = sum(lost.records for lost in losses)
    lines = [line for record in records if isinstance(record, TapBurst) for line in record.digests]
    assert len(told(records)) + lost_records == given_bursts
    assert len(lines) + sum(lost.lines for lost in losses) == given_lines
    assert lost_records == tap.records_dropped
    assert records[-1] == End(records[-1].clock, len(told(records)), lost_records)  # type: ignore[union-attr]
    check_leases_after_losses(records)


def check_leases_after_losses(records: list[Record]) -> None:
    """Between losses, each list of leases is what the one before it and the changes since make it."""
    standing: set[tuple[bytes, Address]] | None = set()
    for record in records:
        match record:
            case Lost():
                standing = None
            case Standing(_, leases, omitted):
                assert standing is None or standing == set(leases)
                assert not omitted
                standing = set(leases)
            case TapLease(_, LeaseChange.OPENED, topic, address):
                assert standing is not None
                standing.add((topic, address))
            case TapLease(_, _, topic, address):
                assert standing is not None
                standing.discard((topic, address))


def test_server_that_stops_in_an_overload_says_so_in_the_file(path: Path, disk: Disk) -> None:
    tap = small_tap(path)
    disk.allow(0)
    number = 0
    while tap.records_dropped < 3:
        tap.burst(1.0 + number, A, b"t", LINES[:1] * 100)
        number += 1

    def open_disk_later() -> None:
        wait_until(lambda: tap._is_closed)
        disk.allow(math.inf)

    opener = Thread(target=open_disk_later)
    opener.start()
    tap.close()
    opener.join()
    *records, lost, end = read_all(path)
    assert lost == Lost((number - 2) * 10**9, number * 10**9, 3, 300)
    assert isinstance(end, End)
    assert (end.records, end.lost_records) == (number - 3, 3)
    assert len(told(records)) == number - 3


# --- A disk that is full -----------------------------------------------------------------------------


def fill_disk(monkeypatch: pytest.MonkeyPatch, room_bytes: int) -> None:
    """No more than so many bytes can be written from now on; as on a real disk, the last write is short."""
    write = os.write
    room = room_bytes

    def write_what_fits(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, bytes(data)[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_what_fits)


def test_full_disk_ends_the_tap_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "FLUSH_S", 0.001)
    failures: list[str] = []
    tap = new_tap(path, on_failure=failures.append)
    tap.burst(1.0, A, b"t", LINES)
    wait_until(lambda: len(told(list(read(path)))) == 1)
    fill_disk(monkeypatch, 100)
    for number in range(10):
        tap.burst(2.0 + number, A, b"t", LINES)  # 40 bytes each
        tap.lease(2.0 + number, LeaseChange.OPENED, b"t%d" % number, A)
    wait_until(lambda: tap.failure is not None)
    tap.burst(12.0, A, b"t", LINES)
    tap.lease(12.0, LeaseChange.OPENED, b"t", A)
    tap.close()
    tap.close()
    assert failures == ["No space left on device"]
    assert tap.failure == "No space left on device"
    # Of what was being written some may be in the file; all of it is counted as dropped.
    assert tap.records_dropped == 22
    *records, cut = read(path)
    assert cut == Cut(cut.offset, "ends within a record")  # type: ignore[union-attr]
    assert told(records)[:2] == [TapBurst((1 + n) * 10**9, A, b"t", digests(*LINES)) for n in range(2)]
    assert not tap._thread.is_alive()


def test_disk_that_is_full_at_the_start_is_the_callers_to_report(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, 10)
    with pytest.raises(OSError, match="No space left on device"):
        new_tap(path)
    assert list(read(path)) == [Cut(0, "ends within its head")]


def test_fault_of_any_kind_is_reported_and_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(files: TapFiles, data: bytes) -> None:
        raise MemoryError("none")

    failures: list[str] = []
    tap = new_tap(path, on_failure=failures.append)
    monkeypatch.setattr(TapFiles, "write", fault)
    tap.burst(1.0, A, b"t", LINES)
    tap.close()
    assert failures == ["MemoryError('none')"]
    assert tap.records_dropped == 1


WRITER = """
import resource, signal, sys, time
from pathlib import Path
from kcast.pubsub.tap import TapWriter
path, limit_bytes = Path(sys.argv[1]), int(sys.argv[2])
if limit_bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
tap = TapWriter(path, boot_id=bytes(8), addresses=[])
while tap.failure is None:
    for number in range(100):
        tap.burst(time.monotonic(), ("192.0.2.1", 1), b"t", [b"t %d" % number for number in range(100)])
    if tap.bytes_written > 1_000_000 and not limit_bytes:
        print("ready", flush=True)
    time.sleep(0.001)
print(tap.failure, tap.records_dropped > 0, flush=True)
"""


@contextmanager
def writing_process(path: Path, limit_bytes: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-c", WRITER, str(path), str(limit_bytes))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], WAIT_S)[0]
    return process.stdout.readline()


def test_killed_process_leaves_a_file_that_is_whole_up_to_the_cut(path: Path) -> None:
    for life in range(2):
        with writing_process(path) as process:
            assert next_line(process) == "ready\n"
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_S)
        *records, cut = read(path)
        assert isinstance(cut, Cut)
        bursts = [record for record in records if isinstance(record, TapBurst)]
        assert len(bursts) > 1000
        assert all(len(burst.digests) == 100 for burst in bursts)
        assert numbered(path, 1).exists() == bool(life)  # what the first life left explains its losses
    boots = [record for record in read_all(path) if isinstance(record, (FileHead, Cut))]
    assert [type(record) for record in boots] == [FileHead, Cut, FileHead, Cut]


# --- Reading -----------------------------------------------------------------------------------------


def test_files_are_read_from_the_oldest_though_they_move_meanwhile(path: Path) -> None:
    for number, record in enumerate(range(3)):
        numbered(path, 2 - number).write_bytes(GOLDEN_FILE.replace(BOOT_ID, bytes([record]) * 8))
    records = read_all(path)
    first = next(records)
    assert isinstance(first, FileHead)
    assert first.boot_id == bytes(8)
    for number in (2, 1, 0):
        numbered(path, number).rename(numbered(path, number + 1))
    boots = [record.boot_id[0] for record in records if isinstance(record, FileHead)]
    assert boots == [1, 2]


def test_json_of_every_kind_of_record() -> None:
    records: list[Record] = [*GOLDEN_RECORDS, End(Clock(1, 2), 3, 4), Cut(5, "damaged")]
    texts = [as_json(record) for record in records]
    found = {text["record"]: text for text in map(json.loads, texts)}
    assert not any("\n" in text for text in texts)
    assert found == {
        "FileHead": {
            "record": "FileHead",
            "boot_id": "0123456789abcdef",
            "part": 0,
            "clock": {"monotonic_ns": 5_000_000_000, "wall_ns": 1_700_000_000_000_000_000},
            "clock_id": "boot",
            "digest_name": "xxh3-64",
            "addresses": ["192.0.2.7:7400", "[2001:db8::7]:7400"],
        },
        "Standing": {
            "record": "Standing",
            "time_ns": 9,
            "leases": [["weather", "[2001:db8::1]:65535"]],
            "omitted": 0,
        },
        "TapBurst": {
            "record": "TapBurst",
            "time_ns": 5_500_000_000,
            "source": "198.51.100.1:1000",
            "topic": "weather",
            "digests": [digests(b"weather sun")[0].hex()],
        },
        "TapLease": {
            "record": "TapLease",
            "time_ns": 7_000_000_000,
            "change": "evicted",
            "topic": "ice",
            "address": "198.51.100.1:1000",
        },
        "Lost": {"record": "Lost", "since_ns": 1, "until_ns": 2, "records": 3, "lines": 4},
        "Clock": {"record": "Clock", "monotonic_ns": 10, "wall_ns": 11},
        "Continued": {"record": "Continued", "clock": {"monotonic_ns": 12, "wall_ns": 13}},
        "End": {"record": "End", "clock": {"monotonic_ns": 1, "wall_ns": 2}, "records": 3, "lost_records": 4},
        "Cut": {"record": "Cut", "offset": 5, "reason": "damaged"},
    }


def test_command_prints_all_files(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(GOLDEN_FILE)
    numbered(path, 1).write_bytes(GOLDEN_FILE[:-1])
    assert main([str(path)]) == 0
    kinds = [json.loads(line)["record"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == [
        *(type(record).__name__ for record in GOLDEN_RECORDS[:-1]),
        "Cut",
        *(type(record).__name__ for record in GOLDEN_RECORDS),
    ]


def test_command_ends_quietly_when_nobody_reads_on(path: Path) -> None:
    with new_tap(path) as tap:
        for number in range(20_000):
            tap.burst(float(number), A, b"t", LINES)
    command = (sys.executable, "-m", "kcast.pubsub.tap", str(path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"FileHead" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(WAIT_S) == 0
