"""What one copy costs a server in CPU time: `kcast serve` beside a naive asyncio server.

    python -m tests.benchmarks.server [--seconds 2] [--beside COMMIT [--rounds 5]]

Each row is a real server process; publisher and subscribers are in this one. A round of messages is
published, all its copies are awaited, then comes the next: so the server is never flooded, and a copy that
does not come is lost. Messages are lines of 100 bytes. `packed` has as many lines in a datagram as it holds,
as a busy publisher of ours does; else each has a datagram of its own, and both servers get the same.

kcast is spoken to as its clients do, with leases and a publish lease. Its rates are not limited here: what is
measured is what it can do, not what it allows.

With `--beside COMMIT` (or a folder) the other is this project's server as it was then. The two take turns,
and medians of their ratios are told.
"""

import argparse
import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.trees import HERE, NoHistory, Tree, tree_of

LINE_BYTES = 100
LAST_BYTES = b"!\n"  # of every message, and of nothing else: what copies are counted by
QUIET_S = 0.3  # no copy for so long: the rest of the round is lost
READY_S = 10.0
WARM_UP_ROUNDS = 3
# Whose servers have these options. Rates are not what is measured.
OPTIONS = (
    "--port=0",
    "--ttl=3600",
    "--publish-rate=0",
    "--copy-rate=0",
    "--egress-rate=0",
    "--challenge-rate=0",
)


class Kind(NamedTuple):
    """A server: how to start it, and whether it is spoken to as kcast's clients do."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    is_kcast: bool = True


NAIVE = Kind(
    "naive", (sys.executable, "-m", "tests.benchmarks.server", "--naive"), os.environ, is_kcast=False
)


def kcast(tree: Tree, name: str = "kcast") -> Kind:
    """Returns the server of a version."""
    options = [option for option in OPTIONS if tree.has_option(option.partition("=")[0])]
    return Kind(name, tree.serve(*options), tree.environment)


class Case(NamedTuple):
    """Subscriber i has every topic t for which (t + i) % (subscribers // fan_out) is 0."""

    name: str
    topic_count: int
    subscriber_count: int
    fan_out: int
    round_messages: int

    def topics_of(self, subscriber: int) -> list[bytes]:
        every = self.subscriber_count // self.fan_out
        return [b"topic%d" % t for t in range(self.topic_count) if (t + subscriber) % every == 0]

    def lines(self) -> list[bytes]:
        """One round, without LF: topics in turn."""
        topics = [b"topic%d " % (number % self.topic_count) for number in range(self.round_messages)]
        return [topic.ljust(LINE_BYTES - len(LAST_BYTES), b".") + LAST_BYTES[:1] for topic in topics]


CASES = (
    Case("1 topic, 1 -> 1", 1, 1, 1, 1024),
    Case("1 topic, 1 -> 100", 1, 100, 100, 256),
    Case("1000 topics, 100 subscribers, fan-out 10", 1000, 100, 10, 1000),
    Case("1000 topics, 100 subscribers, fan-out 1", 1000, 100, 1, 1000),
)


class Figures(NamedTuple):
    copies: int
    lost: int
    cpu_s: float
    elapsed_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.copies) * 1e6


class NaiveServer(asyncio.DatagramProtocol):
    """What one writes first: a dict of sets, and a `sendto` for each message and subscriber."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.subscribers: defaultdict[bytes, set[Any]] = defaultdict(set)

    def datagram_received(self, data: bytes, address: Any) -> None:
        for line in data.splitlines(keepends=True):
            topic, space, _ = line.partition(b" ")
            if not space:
                self.subscribers[topic.rstrip()].add(address)
                continue
            for subscriber in self.subscribers[topic]:
                self.transport.sendto(line, subscriber)


async def serve_naively() -> None:
    loop = asyncio.get_running_loop()
    sock = open_socket("127.0.0.1", 0)
    await loop.create_datagram_endpoint(NaiveServer, sock=sock)
    print(f"naive: serving on 127.0.0.1:{sock.getsockname()[1]} ", flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


@contextmanager
def server_process(kind: Kind) -> Iterator[tuple[int, Address]]:
    """A running server's process id and address."""
    with subprocess.Popen(
        kind.command, env=kind.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            if not select.select([process.stdout], [], [], READY_S)[0]:
                raise TimeoutError(f"the {kind.name} server is not ready after {READY_S:g} s")
            host, port = process.stdout.readline().split(" on ")[1].split()[0].rsplit(":", 1)
            yield process.pid, (host, int(port))
        finally:
            process.kill()


def cpu_seconds(process_id: int) -> float:
    """User and system time that a process has used; see proc_pid_stat(5)."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def greet(port: UdpPort, server: Address, topics: Sequence[bytes] = ()) -> None:
    """Takes leases on these topics as a client of kcast does; without any, a publish lease."""
    ask = wire.request_datagram(wire.Ask(b"ask"))
    challenge = answer(port, ask, server)
    assert isinstance(challenge, wire.Challenge)
    vouch = wire.Vouch(b"vouch", challenge.cookie, None)
    step = LINES_PER_DATAGRAM_MAX - 1
    for start in range(0, max(1, len(topics)), step):
        lines = [topic + b"\n" for topic in topics[start : start + step]]
        receipt = answer(port, wire.request_datagram(vouch, lines), server)
        assert isinstance(receipt, wire.Receipt), receipt


def answer(port: UdpPort, request: bytes, server: Address) -> wire.Reply | None:
    port.send([Transmit(request, len(request), (server,))])
    if not select.select([port], [], [], READY_S)[0]:
        raise TimeoutError(f"no answer after {READY_S:g} s")
    return wire.parse_reply(port.receive()[0].data.split(b"\n")[0])


class Subscribers:
    """All subscribers of a case, each on its own port."""

    def __init__(self, case: Case, kind: Kind, server: Address, stack: ExitStack) -> None:
        self._ports: dict[int, UdpPort] = {}
        self._epoll = stack.enter_context(select.epoll())
        for number in range(case.subscriber_count):
            port = stack.enter_context(UdpPort(open_socket("127.0.0.1", 0)))
            self._ports[port.fileno()] = port
            self._epoll.register(port.fileno(), select.EPOLLIN)
            if kind.is_kcast:
                greet(port, server, case.topics_of(number))
            else:
                data, segment_bytes = wire.pack_lines(case.topics_of(number), LINES_PER_DATAGRAM_MAX)
                port.send([Transmit(data, segment_bytes, (server,))])

    def take(self, count: int) -> int:
        """Waits for so many copies, or until none comes any more; how many came."""
        arrived = 0
        while arrived < count and (events := self._epoll.poll(QUIET_S)):
            for descriptor, _ in events:
                arrived += sum(burst.data.count(LAST_BYTES) for burst in self._ports[descriptor].receive())
        return arrived


def publish_once(case: Case, packed: bool, server: Address) -> Transmit:
    lines = case.lines()
    if packed:
        return Transmit(*wire.pack_lines(lines), (server,))
    return Transmit(b"".join(line + b"\n" for line in lines), LINE_BYTES, (server,))


def measure(case: Case, kind: Kind, packed: bool, seconds: float) -> Figures:
    with ExitStack() as stack:
        process_id, server = stack.enter_context(server_process(kind))
        subscribers = Subscribers(case, kind, server, stack)
        publisher = stack.enter_context(UdpPort(open_socket("127.0.0.1", 0)))
        if kind.is_kcast:
            greet(publisher, server)
        transmits = (publish_once(case, packed, server),)
        round_copies = case.round_messages * case.fan_out
        for _ in range(WARM_UP_ROUNDS):
            publisher.send(transmits)
            subscribers.take(round_copies)
        expected = copies = 0
        start_s, start_cpu_s = time.monotonic(), cpu_seconds(process_id)
        while time.monotonic() - start_s < seconds:
            publisher.send(transmits)
            expected += round_copies
            copies += subscribers.take(round_copies)
        elapsed_s = time.monotonic() - start_s
        return Figures(copies, expected - copies, cpu_seconds(process_id) - start_cpu_s, elapsed_s)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--beside", metavar="COMMIT|FOLDER", help="compare with the server as it was then")
    parser.add_argument("--rounds", type=int, default=5, help="of a comparison")
    parser.add_argument("--naive", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.naive:
        try:
            import uvloop
        except ImportError:
            asyncio.run(serve_naively())
        else:
            uvloop.run(serve_naively())
        return
    if options.beside:
        with TemporaryDirectory(prefix="kcast-bench-") as scratch:
            try:
                other = tree_of(options.beside, Path(scratch))
            except NoHistory as error:
                parser.error(str(error))
            compare(kcast(other, options.beside), options.rounds, options.seconds)
        return
    print(f"{'':40} {'server':14} {'us/copy':>8} {'ratio':>6} {'copies/s':>10} {'copies':>10} {'lost':>6}")
    for case in CASES:
        naive_us = 0.0
        for kind, packed in ((NAIVE, False), (kcast(HERE), False), (kcast(HERE), True)):
            figures = measure(case, kind, packed, options.seconds)
            naive_us = naive_us or figures.cpu_us
            print(
                f"{case.name:40} {kind.name + (' packed' if packed else ''):14} {figures.cpu_us:8.3f}"
                f" {naive_us / max(figures.cpu_us, 1e-9):6.1f} {figures.copies / figures.elapsed_s:10,.0f}"
                f" {figures.copies:10,} {figures.lost:6,}",
                flush=True,
            )


def compare(other: Kind, rounds: int, seconds: float) -> None:
    """Prints what a copy costs here and there, and the ratio: medians, and the least and the largest."""
    print(f"{'':48} {other.name[:8]:>8} {'here':>8} {'ratio':>6}")
    kinds = [other, kcast(HERE)]
    for case in CASES:
        for packed in (False, True):
            pairs = []
            for number in range(rounds):
                order = kinds if number % 2 else kinds[::-1]
                found = {kind.name: measure(case, kind, packed, seconds) for kind in order}
                pairs.append((found[other.name].cpu_us, found["kcast"].cpu_us))
            ratios = [here / there for there, here in pairs]
            there_us, here_us = (median(column) for column in zip(*pairs, strict=True))
            print(
                f"{case.name + (', packed' if packed else ''):48} {there_us:8.3f} {here_us:8.3f}"
                f" {median(ratios):6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
