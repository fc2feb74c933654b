import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kcast.loadtest.capture import parts
from kcast.loadtest.capture import writer as writers
from kcast.loadtest.capture.folder import ScenarioFolder, open_run
from kcast.loadtest.capture.parts import CaptureError
from kcast.loadtest.capture.writer import CaptureWriter
from tests.support.capture_rows import new_scenario, rows, written
from tests.support.waiting import wait_until

WAIT_S = 20.0
CLOCK_ROW_BYTES = parts.to_rows("client_stat", rows("client_stat", 1)).nbytes


@pytest.fixture
def place(tmp_path: Path) -> ScenarioFolder:
    return new_scenario(tmp_path)


class Gate:
    """Stands in for a disk: nothing is written until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_open = threading.Event()
        self.waiting = threading.Event()
        self._write = parts.write_part
        monkeypatch.setattr(parts, "write_part", self._wait_and_write)

    def _wait_and_write(self, path: Path, table: pa.Table, may_appear: Callable[[], bool]) -> bool:
        self.waiting.set()
        assert self._is_open.wait(WAIT_S)
        return self._write(path, table, may_appear)

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def test_rows_of_all_tables_come_back_in_order(place: ScenarioFolder) -> None:
    writer = CaptureWriter(place.path, "worker-1")
    for start in (0, 3, 6):
        for table in ("deliver", "member", "clock", "outage"):
            writer.append(table, rows(table, 3, start))
    writer.close()
    for table in ("deliver", "member", "clock", "outage"):
        assert place.read(table).to_pydict() == rows(table, 9)
        (part,) = place.parts(table)
        assert part.name.startswith("worker-1-")
    assert (written(place.path), writer.rows_waiting, writer.rows_lost, writer.failure) == (36, 0, 0, None)
    assert writer.budget.used_bytes == 0


def test_parts_are_short_enough_and_none_is_missed(place: ScenarioFolder) -> None:
    writer = CaptureWriter(place.path, "worker-1")
    total = 0
    for count in (65_535, 1, 1, 65_536, 200_000, 7):
        writer.append("client_stat", rows("client_stat", count, total))
        total += count
    writer.close()
    found = place.read("client_stat", ["client_id"])["client_id"].to_pylist()
    assert found == list(range(total))
    sizes = [pa.parquet.read_metadata(part).num_rows for part in place.parts("client_stat")]
    assert (max(sizes), sum(sizes)) == (65_536, total)
    assert sizes.count(65_536) == total // 65_536
    assert writer.budget.used_bytes == 0


def test_rows_appear_without_waiting_for_the_end(
    place: ScenarioFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "FLUSH_S", 0.05)
    writer = CaptureWriter(place.path, "worker-1")
    writer.append("clock", rows("clock", 1))
    wait_until(lambda: written(place.path) == 1, "a part")
    writer.append("clock", rows("clock", 1, 1))
    wait_until(lambda: written(place.path) == 2, "another part")
    assert len(place.parts("clock")) == 2
    assert writer.rows_waiting == 0
    writer.close()
    assert place.read("clock").num_rows == 2


def test_closing_twice_does_no_harm(place: ScenarioFolder) -> None:
    writer = CaptureWriter(place.path, "worker-1")
    writer.append("clock", rows("clock", 1))
    writer.close()
    writer.close()
    assert place.read("clock").num_rows == 1
    with pytest.raises(RuntimeError, match="closed"):
        writer.append("clock", rows("clock", 1))


def test_two_processes_of_one_name_do_not_overwrite_each_other(place: ScenarioFolder) -> None:
    writers = [CaptureWriter(place.path, "worker-1") for _ in range(2)]
    for number, writer in enumerate(writers):
        writer.append("clock", rows("clock", 10, 100 * number))
    for writer in writers:
        writer.close()
    assert sorted(place.read("clock")["t_ns"].to_pylist()) == [*range(10), *range(100, 110)]


@pytest.mark.parametrize("name", ["", ".w", "_w", "a/b"])
def test_a_name_that_hides_files_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CaptureError, match="cannot name a process"):
        CaptureWriter(tmp_path, name)


def test_a_mistake_of_the_callers_raises_and_loses_nothing_else(place: ScenarioFolder) -> None:
    writer = CaptureWriter(place.path, "worker-1")
    with pytest.raises(ValueError, match="missing or unknown"):
        writer.append("clock", {"t_ns": [1]})
    writer.append("clock", {name: [] for name in rows("clock", 0)})
    writer.append("clock", rows("clock", 1))
    writer.close()
    assert (place.read("clock").num_rows, writer.rows_lost, writer.failure) == (1, 0, None)


def test_threads_may_append_at_once(place: ScenarioFolder) -> None:
    writer = CaptureWriter(place.path, "worker-1")

    def append(number: int) -> None:
        for row in range(200):
            writer.append("clock", rows("clock", 1, 1000 * number + row))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    expected = [1000 * number + row for number in range(4) for row in range(200)]
    assert sorted(place.read("clock")["t_ns"].to_pylist()) == expected


# --- Disks that are slow, or full ---------------------------------------------------------------------


def test_memory_is_bounded_while_a_disk_is_slow_and_what_is_lost_is_counted(
    place: ScenarioFolder, gate: Gate
) -> None:
    writer = CaptureWriter(place.path, "worker-1", waiting_bytes_max=100 * CLOCK_ROW_BYTES)
    for start in range(0, 500, 10):
        writer.append("client_stat", rows("client_stat", 10, start))
    assert (writer.rows_lost, writer.lost) == (400, {"slow": 400})
    assert writer.rows_waiting == 100
    assert writer.budget.used_bytes <= 100 * CLOCK_ROW_BYTES
    gate.open()
    writer.close()
    assert place.read("client_stat").to_pydict() == rows("client_stat", 100)
    assert (written(place.path), writer.rows_lost, writer.rows_waiting, writer.failure) == (100, 400, 0, None)


def test_who_may_wait_loses_nothing(place: ScenarioFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "FLUSH_S", 0.0)
    writer = CaptureWriter(place.path, "worker-1", waiting_bytes_max=100 * CLOCK_ROW_BYTES)
    for start in range(0, 500, 50):
        writer.append("client_stat", rows("client_stat", 50, start), wait=True)
    writer.close()
    assert (written(place.path), writer.rows_lost) == (500, 0)


def test_closing_gives_up_on_a_disk_that_hangs_and_says_so(place: ScenarioFolder, gate: Gate) -> None:
    writer = CaptureWriter(place.path, "worker-1")
    writer.append("clock", rows("clock", 10))
    started = time.monotonic()
    writer.close(timeout_s=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert writer.failure == "the last rows were not written within 0.3 s"
    assert (writer.rows_lost, writer.lost) == (10, {"slow": 10})
    gate.open()
    wait_until(lambda: writer.rows_waiting == 0, "the thread's end")
    assert (written(place.path), writer.rows_lost) == (0, 10)  # what was told stays true
    assert list(place.path.glob("table=clock/*")) == []


@pytest.fixture
def fails_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write = parts.write_part
    calls = []

    def write_one(path: Path, table: pa.Table, may_appear: Callable[[], bool]) -> bool:
        calls.append(path)
        if len(calls) == 1:
            return write(path, table, may_appear)
        raise OSError(28, "[Errno 28] Error writing bytes to file")

    monkeypatch.setattr(parts, "write_part", write_one)
    monkeypatch.setattr(writers, "FLUSH_S", 0.0)


def test_after_a_failure_the_run_goes_on_and_all_is_counted(
    place: ScenarioFolder, fails_after_one: None
) -> None:
    writer = CaptureWriter(place.path, "worker-1", waiting_bytes_max=1000 * CLOCK_ROW_BYTES)
    writer.append("client_stat", rows("client_stat", 5))
    wait_until(lambda: written(place.path) == 5, "the first part")
    writer.append("client_stat", rows("client_stat", 7, 5))
    wait_until(lambda: writer.failure is not None, "the failure")
    assert str(writer.failure).startswith(f"cannot write {place.path}/table=client_stat/worker-1-")
    assert str(writer.failure).endswith(": No space left on device")
    failure = writer.failure
    for start in range(0, 3000, 100):  # more than fits: it must not gather
        writer.append("client_stat", rows("client_stat", 100, start), wait=True)
    writer.close()
    assert writer.lost == {"failure": 3007}
    assert (written(place.path), writer.rows_waiting, writer.failure) == (5, 0, failure)
    assert place.read("client_stat").to_pydict() == rows("client_stat", 5)


def test_a_recorder_that_fails_is_told(place: ScenarioFolder) -> None:
    class Broken:
        waiting = 0

        def take(self, is_last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
            raise KeyError("surprise")

        def give_up(self) -> int:
            return 0

    writer = CaptureWriter(place.path, "worker-1")
    writer.add_source(Broken())
    writer.close()
    assert writer.failure == "a recorder failed: KeyError('surprise')"


def test_a_writer_that_fails_by_a_mistake_of_ours_is_told_at_once(
    place: ScenarioFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(CaptureWriter, "_write_due", surprise)
    writer = CaptureWriter(place.path, "worker-1")
    writer.append("clock", rows("clock", 7))
    writer.close()
    assert writer.failure == "the writer failed: KeyError('surprise')"
    assert writer.lost == {"slow": 7}


def run(program: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    begin = (
        "import sys, os, time\nfrom pathlib import Path\n"
        "from tests.support.capture_rows import new_scenario, rows, written\n"
        "from kcast.loadtest.capture.writer import CaptureWriter\n"
    )
    command = [sys.executable, "-c", begin + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_a_file_that_cannot_grow_is_a_failure_and_leaves_what_was_whole(tmp_path: Path) -> None:
    """What a full disk or a quota does, by the kernel's own doing."""
    done = run(
        "import resource, numpy\n"
        "from kcast.loadtest.capture import writer as writers\n"
        "writers.FLUSH_S = 0.0\n"
        "place = new_scenario(Path(sys.argv[1]))\n"
        "writer = CaptureWriter(place.path, 'w')\n"
        "writer.append('clock', rows('clock', 10))\n"
        "while not written(place.path): time.sleep(0.01)\n"
        "noise = numpy.random.default_rng(1).integers(0, 1 << 60, 200_000)\n"
        "few = noise % 100\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "writer.append('deliver', dict(sub_id=few, msg_id=noise, server_id=few, t_kernel_ns=noise,\n"
        "                              t_user_ns=noise, injected=few))\n"
        "writer.close()\n"
        "print(writer.failure)\n"
        "print(written(place.path), writer.rows_lost, place.read('clock').num_rows)\n"
        "print(len(list(place.path.glob('table=deliver/*'))), len(list(place.path.rglob('.*'))))\n",
        tmp_path,
    )
    failure, counts, left = done.stdout.splitlines()
    assert failure.startswith(f"cannot write {tmp_path}")
    assert failure.endswith(": File too large")
    assert (counts, left) == ("10 200000 10", "0 0")


def test_a_full_disk_is_a_failure_and_leaves_what_was_whole(tmp_path: Path) -> None:
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("a small file system of its own takes the right to mount one")
    try:
        place = new_scenario(tmp_path)
        writer = CaptureWriter(place.path, "w")
        noise = [int.from_bytes(os.urandom(7)) for _ in range(65_536)]
        few = [number % 100 for number in noise]
        columns = dict.fromkeys(("sub_id", "server_id", "injected"), few)
        columns |= dict.fromkeys(("msg_id", "t_kernel_ns", "t_user_ns"), noise)
        writer.append("clock", rows("clock", 10))
        writer.append("deliver", columns)
        writer.close()
        assert str(writer.failure).endswith("No space left on device")
        assert written(place.path) + writer.rows_lost == 65_546
        assert place.read("deliver").num_rows == 0
        with pytest.raises(OSError, match="No space left"):
            place.finish("failed", reason=str(writer.failure) * 20_000)
        assert place.status == "running"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# --- Processes that end in other ways -----------------------------------------------------------------


def test_a_forked_process_writes_nothing_and_who_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    done = run(
        "writer = CaptureWriter(new_scenario(Path(sys.argv[1])).path, 'w')\n"
        "writer.append('clock', rows('clock', 3))\n"
        "import warnings\n"  # from Python 3.12 on, beside the writer's thread
        "warnings.filterwarnings('ignore', 'This process .* is multi-threaded', DeprecationWarning)\n"
        "if os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "else:\n"
        "    try:\n"
        "        writer.append('clock', rows('clock', 3))\n"
        "    except RuntimeError:\n"
        "        sys.exit(7)  # and closes what it has, as every process does at its end\n",
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
    assert open_run(tmp_path / "run").scenario("one").read("clock").num_rows == 3


def test_a_killed_process_leaves_parts_that_can_be_read(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.support.capture_rows import new_scenario, rows, written\n"
        "from kcast.loadtest.capture import writer as writers\n"
        "writers.FLUSH_S, writers._TICK_S = 0.0, 0.0\n"
        "writer = writers.CaptureWriter(new_scenario(Path(sys.argv[1])).path, 'w')\n"
        "number = 0\n"
        "while True:\n"
        "    writer.append('clock', rows('clock', 100, number), wait=True)\n"
        "    number += 100\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as child:
        try:
            folder = tmp_path / "run"
            wait_until(lambda: len(list(folder.rglob("*.parquet"))) >= 20, "parts")
        finally:
            child.send_signal(signal.SIGKILL)
    run = open_run(folder)
    assert run.status == run.scenario("one").status == "partial"
    times = run.scenario("one").read("clock")["t_ns"].to_pylist()
    assert times == list(range(len(times)))
    assert len(times) >= 2000
