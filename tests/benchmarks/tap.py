"""What a tap costs: the server's core with one beside the same core without, in CPU time per message.

    python -m tests.benchmarks.tap [--seconds 0.5]

The core alone, without sockets: `receive` of what a turn brings, and `flush`. CPU time is that of the
process, so the tap's thread is in it, with its last records and the end of its file. With and without are
measured in turn, five times; printed are medians. Messages are lines of 100 bytes; all are recorded.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kcast.pubsub.endpoint import Address, Burst, LeaseChange
from kcast.pubsub.limits import Limits
from kcast.pubsub.networks import Networks
from kcast.pubsub.outlet import SEGMENTS_MAX
from kcast.pubsub.server import Server
from kcast.pubsub.tap import read_clock
from kcast.pubsub.tap_format import Encoder
from kcast.pubsub.tap_parts import FairTap
from kcast.pubsub.wire import pack_lines
from tests.support.server_core import flushed, lease, new_server, publish_lease

LINE_BYTES = 100
REPEATS = 5
PUBLISHER: Address = ("198.51.100.1", 1000)
TTL_S = 36_000.0
START_S = 2000.0  # after the leases
LEASES = 100_000
NO_LIMITS = Limits(
    publishes_per_s=0,
    copies_per_s=0,
    egress_bytes_per_s=0,
    leases_per_prefix=LEASES,
    leases_per_address=LEASES,
)


class Case(NamedTuple):
    """Subscriber i has every topic t for which (t + i) % (subscribers // fan_out) is 0."""

    name: str
    topic_count: int
    subscriber_count: int
    fan_out: int
    batched: bool

    def lines(self) -> list[bytes]:
        """A turn's, without LF: topics in turn."""
        topics = [b"topic%d " % (number % self.topic_count) for number in range(1000)]
        return [(topic + b"%d" % number).ljust(LINE_BYTES - 1, b".") for number, topic in enumerate(topics)]

    def bursts(self) -> list[Burst]:
        """As receive calls bring them."""
        if not self.batched:
            return [Burst(line + b"\n", LINE_BYTES, PUBLISHER) for line in self.lines()]
        data, segment_bytes = pack_lines(self.lines())
        step = SEGMENTS_MAX * segment_bytes
        return [
            Burst(data[start : start + step], segment_bytes, PUBLISHER) for start in range(0, len(data), step)
        ]


CASES = (
    Case("1 topic, 1 -> 1, whole bursts", 1, 1, 1, True),
    Case("1 topic, 1 -> 100, whole bursts", 1, 100, 100, True),
    Case("1000 topics, fan-out 10, whole bursts", 1000, 100, 10, True),
    Case("1000 topics, fan-out 1, whole bursts", 1000, 100, 1, True),
    Case("1 topic, 1 -> 1, a datagram each", 1, 1, 1, False),
)


class Figures(NamedTuple):
    messages: int
    cpu_s: float
    size_bytes: int

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6


def measure(case: Case, path: Path | None, seconds: float) -> Figures:
    tap = None if path is None else FairTap(path, boot_id=bytes(8), addresses=(), networks=Networks())
    server = new_server(ttl_s=TTL_S, limits=NO_LIMITS, tap=tap)
    every = case.subscriber_count // case.fan_out
    for number in range(case.subscriber_count):
        topics = [b"topic%d" % t for t in range(case.topic_count) if (t + number) % every == 0]
        for start in range(0, len(topics), 60):
            lease(server, ("127.0.0.1", 2000 + number), *topics[start : start + 60])
    publish_lease(server, PUBLISHER)
    turn = case.bursts()
    publish(server, turn, START_S)  # to warm up
    messages, now = 0, START_S + 1.0
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    while time.monotonic() - start_s < seconds:
        publish(server, turn, now)
        messages += 1000
        now += 0.001
    if tap is not None:
        tap.close()
    cpu_s = time.process_time() - start_cpu_s
    if tap is not None:
        assert tap.records_dropped == 0, "the disk is too slow for this: its figures are not the tap's"
    assert server.counts["messages_received"] == messages + 1000
    return Figures(messages, cpu_s, 0 if tap is None else tap.bytes_written)


def publish(server: Server, bursts: Sequence[Burst], now: float) -> None:
    for burst in bursts:
        server.receive(burst, now)
    flushed(server, now)


def bench_cores(folder: Path, seconds: float) -> None:
    print(f"{'':40} {'without':>10} {'with':>10} {'tap':>10} {'ratio':>6} {'bytes':>6}")
    print(f"{'':40} {'us/message':>10} {'us/message':>10} {'us/message':>10} {'':>6} {'each':>6}")
    for case in CASES:
        pairs = []
        for number in range(REPEATS):
            without = measure(case, None, seconds)
            pairs.append((without, measure(case, folder / f"tap-{number}", seconds)))
        without_us = statistics.median(without.cpu_us for without, _ in pairs)
        with_us = statistics.median(with_tap.cpu_us for _, with_tap in pairs)
        extra_us = statistics.median(with_tap.cpu_us - without.cpu_us for without, with_tap in pairs)
        ratio = statistics.median(with_tap.cpu_us / without.cpu_us for without, with_tap in pairs)
        size_bytes = statistics.median(with_tap.size_bytes / with_tap.messages for _, with_tap in pairs)
        print(
            f"{case.name:40} {without_us:10.3f} {with_us:10.3f} {extra_us:10.3f} {ratio:6.2f}"
            f" {size_bytes:6.1f}",
            flush=True,
        )
        for file in folder.iterdir():
            file.unlink()


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def bench_leases() -> None:
    """What begins each file: the list of the leases that stand."""
    encoder = Encoder(boot_id=bytes(8), addresses=(), clock_id="", standing_bytes_max=4 * 1024 * 1024)

    def open_leases() -> None:
        for number in range(LEASES):
            address = f"198.51.{number >> 8 & 255}.{number & 255}", 2000
            encoder.lease(1.0, LeaseChange.OPENED, b"topic%d" % number, address)

    opening_ms = milliseconds(open_leases)
    encoder.take()
    times_ms = []
    for _ in range(REPEATS):
        times_ms.append(milliseconds(lambda: encoder.begin_file(read_clock())))
        size_bytes = len(encoder.take())
    print(f"\nlease change                  {opening_ms / LEASES * 1e3:8.2f} us")
    print(
        f"head of a file, {LEASES} leases {statistics.median(times_ms):8.2f} ms, {size_bytes / 1e6:.1f} MB"
        "  (on the core's thread, once for each file)"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    parser.add_argument("--folder", type=Path, help="where to write; default: the system's temporary folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench_cores(Path(folder), options.seconds)
    bench_leases()


if __name__ == "__main__":
    main()
