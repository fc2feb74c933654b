"""What one copy costs a server in CPU time: `kcast serve` beside a naive forwarder on asyncio.

    python -m bench.server [--seconds 2] [--beside COMMIT [--rounds 5]]

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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

from bench.peers import machine
from bench.peers.kinds import FORWARDER, Kind, kcast
from bench.peers.session import Poller, Session
from bench.peers.workloads import Workload
from tests.support.trees import HERE, NoHistory, tree_of

SIZE_BYTES = 92  # of a payload; with its topic a line has 100
QUIET_S = 0.3  # no copy for that long: the rest of the round is lost
WARM_UP_ROUNDS = 3


class Case(NamedTuple):
    """A workload, and how many messages are published before their copies are awaited."""

    name: str
    topic_count: int
    subscriber_count: int
    fan_out: int
    round_messages: int

    def workload(self, packed: bool) -> Workload:
        """Returns the workload, with one line in a datagram or as many as it holds."""
        shape = Workload(self.topic_count, self.subscriber_count, self.fan_out, size_bytes=SIZE_BYTES)
        return shape if packed else replace(shape, lines_max=1)


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


def measure(case: Case, kind: Kind, packed: bool, seconds: float) -> Figures:
    """Starts a server, and publishes rounds of messages for this time."""
    workload = case.workload(packed)
    with ExitStack() as stack:
        poller = Poller()
        stack.callback(poller.close)
        server = stack.enter_context(kind.running(workload, machine.cores().servers))
        (session,) = kind.open(workload, server, stack, poller)
        for _ in range(WARM_UP_ROUNDS):
            publish_round(case, session, poller)
        family = machine.family_of(server.process.pid)
        start_s, start_cpu_s = monotonic(), machine.cpu_s(family)
        expected, before = 0, session.arrivals.copies
        while monotonic() - start_s < seconds:
            publish_round(case, session, poller)
            expected += case.round_messages * case.fan_out
        copies = session.arrivals.copies - before
        return Figures(copies, expected - copies, machine.cpu_s(family) - start_cpu_s, monotonic() - start_s)


def publish_round(case: Case, session: Session, poller: Poller) -> None:
    """Publishes a round, and waits for all its copies, or until none comes any more."""
    awaited = session.arrivals.copies + case.round_messages * case.fan_out
    until = session.position + case.round_messages
    while session.position < until:
        session.send(until, lambda _: 0)
    while session.arrivals.copies < awaited and poller.turn(QUIET_S):
        continue


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--beside", metavar="COMMIT|FOLDER", help="compare with the server as it was then")
    parser.add_argument("--rounds", type=int, default=5, help="of a comparison")
    options = parser.parse_args(arguments)
    here = kcast(HERE, "kcast")
    if options.beside:
        with TemporaryDirectory(prefix="kcast-bench-") as scratch:
            try:
                other = tree_of(options.beside, Path(scratch))
            except NoHistory as error:
                parser.error(str(error))
            compare(kcast(other, options.beside), here, options.rounds, options.seconds)
        return
    print(f"{'':40} {'server':14} {'us/copy':>8} {'ratio':>6} {'copies/s':>10} {'copies':>10} {'lost':>6}")
    for case in CASES:
        naive_us = 0.0
        for kind, packed in ((FORWARDER, False), (here, False), (here, True)):
            figures = measure(case, kind, packed, options.seconds)
            naive_us = naive_us or figures.cpu_us
            print(
                f"{case.name:40} {kind.name + (' packed' if packed else ''):14} {figures.cpu_us:8.3f}"
                f" {naive_us / max(figures.cpu_us, 1e-9):6.1f} {figures.copies / figures.elapsed_s:10,.0f}"
                f" {figures.copies:10,} {figures.lost:6,}",
                flush=True,
            )


def compare(other: Kind, here: Kind, rounds: int, seconds: float) -> None:
    """Prints what a copy costs here and there, and the ratio: medians, and the least and the largest."""
    print(f"{'':48} {other.name[:8]:>8} {'here':>8} {'ratio':>6}")
    kinds = [other, here]
    for case in CASES:
        for packed in (False, True):
            pairs = []
            for number in range(rounds):
                order = kinds if number % 2 else kinds[::-1]
                found = {kind.name: measure(case, kind, packed, seconds) for kind in order}
                pairs.append((found[other.name].cpu_us, found[here.name].cpu_us))
            ratios = [mine / theirs for theirs, mine in pairs]
            there_us, here_us = (median(column) for column in zip(*pairs, strict=True))
            print(
                f"{case.name + (', packed' if packed else ''):48} {there_us:8.3f} {here_us:8.3f}"
                f" {median(ratios):6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
