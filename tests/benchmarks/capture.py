"""What recording costs a client, and whether any row is lost in ten million.

    python -m tests.benchmarks.capture [--seconds 2] [--copies 10000000]

The real client core takes 100,000 lines a second, as its driver would hand them over, beside the same core
that is recorded. CPU time is that of the process, so the writer's thread is in it, and closing. With and
without are measured in turn, nine times; printed are medians. `core` is the ratio to the core alone; a client
has a socket, too, which is measured alone, and `client` is the ratio to both.

Then as many copies go through a recorder, five times as fast, and all are read back and compared.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.envelope import Envelope, format_envelope
from kcast.hashring.policy import Policy
from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.capture.recorder import Recorder
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.scenario import Scenario, message_id, payload, topic_name
from kcast.pubsub.endpoint import Burst, Transmit
from kcast.pubsub.udp import UdpPort, open_socket
from kcast.pubsub.wire import publish_line

REPEATS = 9
RATE = 100_000
TURN_S = 0.002
SOCKET_ROUNDS = 50
SOCKET_BURSTS = 100
TOPICS = 20
PAYLOAD_BYTES = 80  # so that ten lines are a datagram
PUBLISHERS = 4
CLUSTER = lab([("127.0.0.1", 7401 + number) for number in range(12)], Policy(k=5, publish=3, subscribe=5))
SERVERS = {server.addresses[0]: number for number, server in enumerate(CLUSTER.servers)}


class Case(NamedTuple):
    """Bursts of so many datagrams of so many lines each; each message comes so often, by another server."""

    lines: int
    datagrams: int
    copies: int

    def bursts(self, count: int) -> list[Burst]:
        """About `count` lines; those of a message by each of its servers in turn, as publishers' are."""
        core = new_core()
        servers = [core.view.servers(topic_name(topic)) for topic in range(TOPICS)]
        size = self.lines * self.datagrams
        found = []
        for start in range(0, count // self.copies, size):
            topic = start // size % TOPICS  # a burst is mostly of one topic: so servers batch
            lines = [message(number, topic) for number in range(start, start + size)]
            data, segment_bytes = b"".join(lines), len(lines[0]) * self.lines
            for server in servers[topic][: self.copies]:
                found.append(Burst(data, segment_bytes, server.addresses[0], 1_790_000_000_000_000_000))
        return found


CASES = (
    *(Case(10, 4, 1), Case(10, 4, 3), Case(10, 1, 1), Case(10, 1, 3)),
    *(Case(1, 8, 1), Case(1, 8, 3), Case(1, 1, 1), Case(1, 1, 3)),
)


def message(number: int, topic: int) -> bytes:
    """Lines of one length, as the kernel's segments are."""
    text = payload(message_id(number % PUBLISHERS, number // PUBLISHERS), PAYLOAD_BYTES)
    return publish_line(
        topic_name(topic), format_envelope(Envelope("abcdefghijk", 10_000_000 + number, text))
    )


def new_core() -> ClientCore:
    core = ClientCore(CLUSTER, Random(1))
    for topic in range(TOPICS):
        core.subscribe(topic_name(topic), 0.0)
    core.flush(0.0)
    return core


def turns(bursts: Sequence[Burst], lines: int) -> Iterator[Sequence[Burst]]:
    """What has arrived by each turn, at the rate."""
    step = max(1, round(RATE * TURN_S / lines))
    for start in range(0, len(bursts), step):
        yield bursts[start : start + step]


class Figures(NamedTuple):
    """CPU time per line, and how many lines a second there were: the core alone may take more than it has."""

    cpu_us: float
    rate: float


def feed(case: Case, bursts: Sequence[Burst], folder: Path | None) -> Figures:
    core = new_core()
    copies = 0
    cpu_s = time.process_time()
    writer = None if folder is None else CaptureWriter(folder, "bench")
    client = None if writer is None else Recorder(writer).client(sub_id=1)
    started = time.monotonic()
    for turn in turns(bursts, case.lines * case.datagrams):
        now = time.monotonic()
        for burst in turn:
            data, segment_bytes, source, kernel_ns = burst
            server = SERVERS[source]  # an Impairment does so, recorded or not
            if client is not None:
                client.received(now, server, data, segment_bytes, kernel_ns, 0)
            core.receive(burst, now)
        core.flush(now)
        core.events()
        copies += len(turn) * case.lines * case.datagrams
        time.sleep(max(0.0, started + copies / RATE - time.monotonic()))
    took_s = time.monotonic() - started
    if writer is not None:
        writer.close()
        assert (writer.rows_waiting, writer.rows_lost, writer.failure) == (0, 0, None)
    cpu_s = time.process_time() - cpu_s
    counts = core.counts["copies_received"], core.counts["deliveries"], core.counts["duplicates"]
    assert counts == (copies, copies // case.copies, copies - copies // case.copies), (counts, core.drops)
    return Figures(cpu_s / copies * 1e6, copies / took_s)


def socket_us(case: Case) -> float:
    """CPU time per line of taking such bursts off a socket, with the kernel's times, as clients do."""
    costs = []
    with (
        UdpPort(open_socket("127.0.0.1", 0), kernel_times=True) as port,
        UdpPort(open_socket("127.0.0.1", 0)) as sender,
    ):
        burst = case.bursts(case.copies * case.lines * case.datagrams)[0]
        transmit = Transmit(burst.data, burst.segment_bytes, [port.address])
        for _ in range(SOCKET_ROUNDS):
            for _ in range(SOCKET_BURSTS):
                sender.send([transmit])
            cpu_s = time.process_time()
            taken_bytes = 0
            while bursts := port.receive():
                taken_bytes += sum(len(burst.data) for burst in bursts)
            costs.append((time.process_time() - cpu_s) / taken_bytes)
    return statistics.median(costs) * len(message(0, 0)) * 1e6


def bench_cost(folder: Path, seconds: float) -> None:
    print(f"{RATE} lines/s of {len(message(0, 0))} bytes, CPU us per line; ratios; lines/s that were reached")
    print(f"{'lines':>6} {'datagrams':>9} {'copies of':>9} {'core':>8} {'socket':>8} {'more':>8}", end="")
    print(f" {'core':>6} {'client':>6}\n{'each':>6} {'a burst':>9} {'a message':>9}")
    for case in CASES:
        bursts = case.bursts(round(RATE * seconds))
        pairs = []
        for number in range(REPEATS):
            # First the one, then the other, so that what grows meanwhile favours neither.
            places = [None, folder / f"{number}"][:: 1 if number % 2 else -1]
            figures = {place: feed(case, bursts, place) for place in places}
            pairs.append((figures[None].cpu_us, figures[folder / f"{number}"].cpu_us))
        rate = figures[folder / f"{REPEATS - 1}"].rate
        port_us = socket_us(case)
        without_us = statistics.median(without for without, _ in pairs)
        more_us = statistics.median(recorded - without for without, recorded in pairs)
        ratio = statistics.median(recorded / without for without, recorded in pairs)
        whole = statistics.median((recorded + port_us) / (without + port_us) for without, recorded in pairs)
        print(
            f"{case.lines:6} {case.datagrams:9} {case.copies:9} {without_us:8.3f} {port_us:8.3f}"
            f" {more_us:8.3f} {ratio:6.3f} {whole:6.3f} {rate:8.0f}/s",
            flush=True,
        )


def bench_none_lost(folder: Path, copies: int) -> None:
    """Each line is another message, so that each can be missed."""
    place = create_run(folder / "run", [Scenario(name="bench")], seed=1).begin("bench")
    writer = CaptureWriter(place.path, "bench")
    client = Recorder(writer).client(sub_id=1)
    size = 40
    cpu_s, started = time.process_time(), time.monotonic()
    most_waiting = 0
    for start in range(0, copies, size):
        numbers = range(start, min(start + size, copies))
        data = b"".join(
            [b"load/%06d %%@abcdefghijk.%d ....%016x\n" % (n % TOPICS, n + 1, n) for n in numbers]
        )
        client.received(time.monotonic(), start // size % 100, data, len(data), time.time_ns(), 0)
        if not start % 100_000:
            most_waiting = max(most_waiting, writer.rows_waiting)
            time.sleep(max(0.0, started + start / (5 * RATE) - time.monotonic()))
    took_s = time.monotonic() - started
    writer.close()
    closed_s = time.monotonic() - started - took_s
    cpu_s = time.process_time() - cpu_s
    assert (writer.rows_waiting, writer.rows_lost, writer.failure) == (0, 0, None)
    rows = place.read("deliver", ["msg_id", "server_id"])
    msg_ids, servers = rows["msg_id"].to_numpy(), rows["server_id"].to_numpy()
    assert (np.sort(msg_ids) == np.arange(copies)).all(), "rows are not what was put in"
    assert (servers == msg_ids // size % 100).all(), "rows have servers of others"
    size_bytes = sum(part.stat().st_size for part in place.parts("deliver"))
    print(f"\n{copies} copies in at {copies / took_s:.0f}/s, {len(msg_ids)} rows out, none lost")
    print(f"  {cpu_s:.1f} s of CPU, closed in {closed_s:.2f} s, at most {most_waiting} calls and rows waited")
    print(f"  {len(place.parts('deliver'))} parts, {size_bytes / copies:.1f} bytes a row")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--copies", type=int, default=10_000_000, help="to be read back")
    parser.add_argument("--folder", type=Path, help="where to write; default: the system's temporary folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench_cost(Path(folder), options.seconds)
        bench_none_lost(Path(folder), options.copies)


if __name__ == "__main__":
    main()
