import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from xxhash import xxh3_64_digest

from kcast.client.messages.envelope import Envelope, format_envelope
from kcast.loadtest.capture import recorder as recorders
from kcast.loadtest.capture.folder import ScenarioFolder, open_run
from kcast.loadtest.capture.recorder import Recorder
from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, NONE, PASSED
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.scenario import message_id, payload, topic_name
from kcast.pubsub.tap_format import Clock
from kcast.pubsub.wire import publish_line
from tests.support.capture_rows import new_scenario

SEED = 20261120
HOUR_NS = 3_600_000_000_000
CLOCK = Clock(monotonic_ns=HOUR_NS, wall_ns=500_000 * HOUR_NS)  # at the moment of looking


def line(msg_id: int, topic_id: int = 12, size_bytes: int = 20) -> bytes:
    return publish_line(
        topic_name(topic_id), format_envelope(Envelope("abcdefghijk", 17, payload(msg_id, size_bytes)))
    )


def digest(published: bytes) -> int:
    return int.from_bytes(xxh3_64_digest(published[:-1]), "big", signed=True)


class Recording:
    """A recorder, whose writer's thread looks only when it is closed, and what it then has recorded."""

    def __init__(self, place: ScenarioFolder, **options: Any) -> None:
        self.place = place
        self.writer = CaptureWriter(place.path, "w", spawn=self._keep, **options)
        self.recorder = Recorder(self.writer, read_clock=lambda: CLOCK)

    def _keep(self, work: Callable[[], None]) -> None:
        self._work = work

    def look(self) -> None:
        """What the thread does now and then."""
        self.writer._collect(False)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        self.writer._is_closing = True
        if not self.writer._has_ended:
            self._work()
        self.writer.close()
        return [tuple(row.values()) for row in self.place.read(table).to_pylist()]


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    recording = Recording(new_scenario(tmp_path))
    yield recording
    recording.writer.close(timeout_s=0.0)  # its thread, which there is not, would be waited for at the end


def test_a_copy_is_a_row_with_both_its_times(recording: Recording) -> None:
    client = recording.recorder.client(sub_id=4)
    kernel_ns = CLOCK.wall_ns - 2_000_000
    client.received(3599.999, 7, line(message_id(3, 5)) + line(6), 60, kernel_ns, PASSED)
    client.received(3599.9995, 8, line(6), 60, 0, DUPLICATE)
    before_ns = HOUR_NS - 2_000_000
    assert recording.rows("deliver") == [
        (4, 3 << 32 | 5, 7, before_ns, HOUR_NS - 1_000_000, PASSED),
        (4, 6, 7, before_ns, HOUR_NS - 1_000_000, PASSED),
        (4, 6, 8, 0, HOUR_NS - 500_000, DUPLICATE),
    ]
    assert recording.recorder.counts["messages"] == 3


def test_a_send_is_a_row_and_a_message_has_the_digest_of_its_line(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=3)
    text = line(message_id(3, 0), topic_id=9)
    client.publish(message_id(3, 0), 9, 1_000, 2_000)
    client.sent(0.5, 7, text, 60, PASSED)
    client.sent(0.5, 8, b"%! nonce cookie -\n" + text, 60, LOST)
    client.sent(0.75, 9, text, 60, CUT_OFF)
    assert recording.rows("publish") == [(3 << 32, 3, 9, digest(text), 1_000, 2_000, len(text))]
    assert recording.rows("pub_tx") == [
        (3 << 32, 3, 7, 500_000_000, PASSED),
        (3 << 32, 3, 8, 500_000_000, LOST),
        (3 << 32, 3, 9, 750_000_000, CUT_OFF),
    ]


def test_asking_for_leases_is_a_row_each(recording: Recording) -> None:
    client = recording.recorder.client(sub_id=4)
    client.sent(0.5, 7, b"%! nonce cookie -\nload/000012\nload/000345\n\n\n", 60, PASSED)
    assert recording.rows("subscribe") == [(4, 12, 7, 500_000_000, 0), (4, 345, 7, 500_000_000, 0)]
    assert recording.recorder.counts["foreign"] == 0


def test_each_client_has_its_own_numbers(recording: Recording) -> None:
    clients = [recording.recorder.client(pub_id=number, sub_id=10 * number) for number in range(5)]
    for number in (3, 0, 4, 4, 1):
        clients[number].received(1.0, number, line(number), 60, 0, PASSED)
        clients[number].sent(1.0, number, line(number) + b"load/000001\n", 60, PASSED)
    in_order = 0, 1, 3, 4, 4  # by client
    assert [row[:3] for row in recording.rows("deliver")] == [(10 * n, n, n) for n in in_order]
    assert [row[:3] for row in recording.rows("pub_tx")] == [(n, n, n) for n in in_order]
    assert [row[0] for row in recording.rows("subscribe")] == [0, 10, 30, 40, 40]


def test_a_client_that_has_one_part_only_has_no_number_for_the_other(recording: Recording) -> None:
    recording.recorder.client(sub_id=4).sent(1.0, 2, line(1), 60, PASSED)
    assert [row[1] for row in recording.rows("pub_tx")] == [NONE]


def test_what_is_not_of_the_run_is_counted_and_no_row(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=1, sub_id=4)
    warm_up = b"load/000001 " + b"f" * 16 + b"\n"
    for _ in range(2):
        client.sent(1.0, 2, warm_up, 60, PASSED)
        client.received(1.0, 2, warm_up + b"weather/oslo -3\n%+ nonce 60 c 0\n" + line(1), 60, 0, PASSED)
        client.received(1.0, NONE, line(2) + warm_up, 60, 0, PASSED)  # a stranger's
        client.received(1.0, 2, b"load/000001\n", 60, 0, PASSED)  # servers ask for nothing
    assert [row[1] for row in recording.rows("deliver")] == [1, 1]
    assert recording.rows("pub_tx") == recording.rows("publish") == []
    assert recording.recorder.counts == {
        "messages": 2,
        "unscheduled": 6,
        "foreign": 6,
        "sends": 0,
        "subscribes": 0,
    }


def test_the_offset_is_added_to_all_times(recording: Recording) -> None:
    recording.recorder.offset_ns = 7
    client = recording.recorder.client(pub_id=3, sub_id=4)
    client.publish(1, 9, 1_000, 2_000)
    client.sent(0.5, 7, line(1) + b"load/000001\n", 60, PASSED)
    client.received(0.5, 7, line(1), 60, CLOCK.wall_ns, PASSED)
    client.received(0.5, 7, line(1), 60, 0, PASSED)
    assert recording.rows("publish")[0][4:6] == (1_007, 2_007)
    assert recording.rows("pub_tx")[0][3] == recording.rows("subscribe")[0][3] == 500_000_007
    assert [row[3:5] for row in recording.rows("deliver")] == [(HOUR_NS + 7, 500_000_007), (0, 500_000_007)]


def test_a_message_gets_its_digest_whenever_it_leaves(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=3)
    now_ns = CLOCK.monotonic_ns
    client.publish(1, 9, 0, now_ns)
    recording.look()
    client.sent(0.5, 7, line(1), 60, PASSED)
    recording.look()
    client.sent(0.7, 7, line(1), 60, PASSED)  # again: no second row
    assert recording.rows("publish") == [(1, 3, 9, digest(line(1)), 0, now_ns, len(line(1)))]


def test_a_message_that_does_not_leave_in_time_has_no_digest(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=3)
    long_ago_ns = CLOCK.monotonic_ns - int(recorders.UNSENT_S * 1e9) - 1
    client.publish(1, 9, 0, long_ago_ns)
    client.publish(2, 9, 0, CLOCK.monotonic_ns)
    recording.look()
    assert recording.recorder.waiting == 1
    client.sent(0.5, 7, line(1) + line(2), 60, PASSED)
    client.publish(3, 9, 0, CLOCK.monotonic_ns)  # and the end comes
    assert [(row[0], row[3], row[6]) for row in recording.rows("publish")] == [
        (1, 0, 0),
        (2, digest(line(2)), len(line(2))),
        (3, 0, 0),
    ]
    assert [row[0] for row in recording.rows("pub_tx")] == [1, 2]


def test_messages_that_wait_to_leave_are_bounded(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "UNSENT_MAX", 10)
    client = recording.recorder.client(pub_id=3)
    for number in range(25):
        client.publish(number, 9, 0, CLOCK.monotonic_ns)
    recording.look()
    assert recording.recorder.waiting == 10
    assert [row[0] for row in recording.rows("publish")] == list(range(25))


def test_much_at_once_is_parsed_in_portions(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "_PARSE_BYTES", 500)
    client = recording.recorder.client(sub_id=4)
    rng, expected = Random(SEED), []
    for number in range(300):
        count = rng.choice((0, 1, 2, 30))
        client.received(1.0, number, b"".join(map(line, range(count))) or b"\n", 60, 0, PASSED)
        expected += [(number, msg_id) for msg_id in range(count)]
    assert [(row[2], row[1]) for row in recording.rows("deliver")] == expected, f"seed {SEED}"
    assert recording.writer.budget.used_bytes < 64 * 1024


# --- Bounds ------------------------------------------------------------------------------------------


def test_what_there_is_no_room_for_is_lost_and_counted(tmp_path: Path) -> None:
    recording = Recording(new_scenario(tmp_path), waiting_bytes_max=100_000)
    clients = [recording.recorder.client(pub_id=number, sub_id=number) for number in range(2)]
    for number in range(1000):
        client = clients[number % 2]
        client.publish(number, 1, 0, CLOCK.monotonic_ns)
        client.sent(1.0, 1, line(number) + b"load/000001\n", 60, PASSED)
        client.received(1.0, 1, line(number) * 3, 60, 0, PASSED)
    logs = [log for client in clients for log in (client.log_in, client.log_out)]
    kept_bytes = sum(len(data) for log in logs for data in log.datas)
    assert 50_000 < kept_bytes + 200 * recording.recorder.waiting <= 100_000
    lost = recording.writer.rows_lost
    recording.writer.budget._bytes_max = 1 << 30
    client.received(1.0, 1, line(5000), 60, 0, PASSED)  # there is room again
    counts = {table: len(recording.rows(table)) for table in ("publish", "pub_tx", "subscribe", "deliver")}
    assert counts["deliver"] > 10
    assert sum(counts.values()) + lost == 6 * 1000 + 1
    assert recording.writer.lost == {"slow": lost}


def test_a_burst_that_is_longer_than_credit_is_kept(recording: Recording) -> None:
    burst = b"".join(line(number, size_bytes=500) for number in range(120))
    assert len(burst) > recorders._CREDIT_BYTES
    recording.recorder.client(sub_id=1).received(1.0, 1, burst, 600, 0, PASSED)
    assert [row[1] for row in recording.rows("deliver")] == list(range(120))


def test_room_is_given_back(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=1, sub_id=1)
    for _ in range(20):
        for number in range(200):
            client.publish(number, 1, 0, CLOCK.monotonic_ns)
            client.sent(1.0, 1, line(number), 60, PASSED)
            client.received(1.0, 1, line(number) * 5, 60, 0, PASSED)
        recording.look()
    in_rows = recording.writer._pending_rows * 40
    assert recording.writer.budget.used_bytes < in_rows + 2 * recorders._CREDIT_BYTES
    assert len(recording.rows("deliver")) == 20_000
    assert recording.writer.budget.used_bytes <= 2 * recorders._CREDIT_BYTES


def test_a_client_that_is_closed_keeps_no_room(recording: Recording) -> None:
    for number in range(100):
        client = recording.recorder.client(sub_id=number)
        client.received(1.0, 1, line(number), 60, 0, PASSED)
        client.close()
        client.close()
    assert recording.writer.budget.used_bytes < 100 * 500
    assert len(recording.rows("deliver")) == 100
    assert recording.writer.budget.used_bytes == 0


def test_what_comes_after_the_end_is_counted(recording: Recording) -> None:
    client = recording.recorder.client(sub_id=1)
    client.received(1.0, 1, line(1), 60, 0, PASSED)
    assert len(recording.rows("deliver")) == 1
    client.received(1.0, 1, line(2) * 3, 60, 0, PASSED)
    assert recording.writer.lost == {"late": 3}


def test_what_is_given_up_is_counted_by_its_lines(recording: Recording) -> None:
    client = recording.recorder.client(pub_id=1, sub_id=1)
    client.publish(1, 9, 0, CLOCK.monotonic_ns)
    recording.look()
    client.publish(2, 9, 0, CLOCK.monotonic_ns)
    client.sent(1.0, 1, line(1) + b"load/000001\n", 60, PASSED)
    client.received(1.0, 1, line(1) * 5, 60, 0, PASSED)
    recording.writer.close(timeout_s=0.0)
    client.received(1.0, 1, line(1) * 3, 60, 0, PASSED)
    assert recording.writer.lost == {"slow": 2 + 2 + 5, "late": 3}
    assert recording.writer.failure == "the last rows were not written within 0 s"


def test_a_mistake_of_ours_is_told_and_its_rows_are_counted(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> None:
        raise KeyError("surprise")

    client = recording.recorder.client(sub_id=1)
    client.received(1.0, 1, line(1) * 4, 60, 0, PASSED)
    monkeypatch.setattr("kcast.loadtest.capture.lines.find", surprise)
    assert recording.rows("deliver") == []
    assert recording.writer.failure == "the recorder failed: KeyError('surprise')"
    assert recording.writer.lost == {"failure": 4}
    assert recording.writer.budget.used_bytes < recorders._CREDIT_BYTES


def test_a_call_that_cannot_be_kept_spoils_no_other(recording: Recording) -> None:
    client = recording.recorder.client(sub_id=1)
    client.received(1.0, 1, line(1), 60, 0, PASSED)
    with pytest.raises(struct.error):
        client.received(1.0, 1, line(2), 60, 0, 1000)  # no such fate
    client.received(1.0, 2, line(3), 60, 0, PASSED)
    assert [row[1:3] for row in recording.rows("deliver")] == [(1, 1), (3, 2)]


# --- Threads -----------------------------------------------------------------------------------------


def test_whenever_the_thread_takes_it_gets_what_belongs_together(recording: Recording) -> None:
    """It may come between any two steps of the hot path: here it comes at all that can be hooked."""
    client = recording.recorder.client(sub_id=1)
    log, taken = client.log_in, []
    heads = log.heads

    class Hooked(list[bytes]):
        def append(self, data: bytes) -> None:
            taken.append(log.take())
            super().append(data)
            taken.append(log.take())

    log.datas = Hooked()
    for number in range(5):
        client.received(float(number), number, line(number), 60, 0, PASSED)
    taken.append(log.take())
    assert [data for _, datas in taken for data in datas] == [line(number) for number in range(5)]
    assert all(len(heads) == 32 * len(datas) for heads, datas in taken)
    assert log.heads is heads, "the thread may have taken from another by now"


def test_nothing_is_lost_while_threads_record_and_the_writers_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcast.loadtest.capture.writer._TICK_S", 0.001)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet at all points
    try:
        place = new_scenario(tmp_path)
        writer = CaptureWriter(place.path, "w")
        recorder = Recorder(writer)

        def record(number: int) -> None:
            client = recorder.client(pub_id=number, sub_id=number)
            for seq in range(2000):
                msg_id = message_id(number, seq)
                client.publish(msg_id, 1, 0, time.monotonic_ns())
                client.sent(1.0, number, line(msg_id), 60, PASSED)
                client.received(1.0, number, line(msg_id) * 2, 60, 0, PASSED)

        threads = [threading.Thread(target=record, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
    finally:
        sys.setswitchinterval(interval_s)
    msg_ids = sorted(message_id(number, seq) for number in range(3) for seq in range(2000))
    assert sorted(place.read("publish")["msg_id"].to_pylist()) == msg_ids
    assert sorted(place.read("pub_tx")["msg_id"].to_pylist()) == msg_ids
    assert sorted(place.read("deliver")["msg_id"].to_pylist()) == sorted(2 * msg_ids)
    for row in place.read("deliver").to_pylist():
        assert row["sub_id"] == row["server_id"] == row["msg_id"] >> 32
    assert 0 not in place.read("publish")["digest"].to_pylist()
    assert (writer.failure, writer.rows_lost) == (None, 0)


GEVENT_PROGRAM = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, threading, time
from pathlib import Path
import gevent
from gevent.hub import get_hub
from kcast.loadtest.capture import parts, system_threads, writer as writers
from kcast.loadtest.capture.recorder import Recorder
from tests.support.capture_rows import new_scenario, rows, written

writers.FLUSH_S = 0.0
me = gevent.monkey.get_original("_thread", "get_ident")()
wrote_in, slow_s = set(), [0.0]
write_part = parts.write_part

def write(*arguments, **options):
    wrote_in.add(gevent.monkey.get_original("_thread", "get_ident")())
    system_threads.sleep(slow_s[0])
    return write_part(*arguments, **options)

parts.write_part = write
place = new_scenario(Path(sys.argv[1]))
writer = writers.CaptureWriter(place.path, "w")
client = Recorder(writer).client(sub_id=1)
for number in range(100):
    client.received(1.0, 1, b"load/000001 %016x\\n" % number, 29, 0, 0)
# The whole loop stands still, and yet rows are written.
give_up_at = time.monotonic() + 20
while written(place.path) < 100 and time.monotonic() < give_up_at:
    system_threads.sleep(0.01)
print("while blocked", written(place.path))
# And while rows are written, the loop goes on.
gaps = [0.0]
def tick():
    last = time.monotonic()
    while True:
        gevent.sleep(0.001)
        now = time.monotonic()
        gaps[0] = max(gaps[0], now - last)
        last = now
ticker = gevent.spawn(tick)
gevent.sleep(0.01)
gaps[0], slow_s[0] = 0.0, 0.5
client.received(1.0, 1, b"load/000001 %016x\\n" % 100, 29, 0, 0)
writer.append("clock", rows("clock", 5))
started = time.monotonic()
writer.close()
gevent.sleep(0.01)  # the ticker tells how long it was kept waiting
print("closed", written(place.path), writer.rows_lost, writer.failure, time.monotonic() - started >= 0.5)
print("longest gap", gaps[0])
print("in threads of their own", me not in wrote_in and len(wrote_in) == 1)
print("patched", threading.Thread is not gevent.monkey.get_original("threading", "Thread")
      or threading._start_new_thread is not gevent.monkey.get_original("_thread", "start_new_thread"))
"""


def test_under_gevent_a_thread_of_the_systems_writes_and_the_loop_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GEVENT_PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert told[:2] == ["while blocked 100", "closed 106 0 None True"]
    assert float(told[2].removeprefix("longest gap ")) < 0.3, "the loop waited for the disk"
    assert told[3:] == ["in threads of their own True", "patched True"]
    place = open_run(tmp_path / "run").scenario("one")
    assert place.read("deliver")["msg_id"].to_pylist() == list(range(101))
    assert place.read("clock").num_rows == 5
