"""Whether somebody who watches the network can tell that something is said while there is cover traffic.

    python -m tests.benchmarks.observer [--runs 40] [--seconds 30] [--rate 20] [--leak-us 0]

Real runs, by turns with messages on half of the ticks and without any, each a client in a process of its own.
A relay before the server is the observer: it has the kernel's time of each datagram, and its length. Of each
run there are four figures, chosen before the runs were made:

- lateness: how much later lines leave than the earliest twentieth of them does after its ticks, the median;
- spread: the distance between the quartiles of these times;
- bytes: what leaves in a second, retries and all else included;
- missing: the share of ticks without a line.

One permutation test asks whether the largest difference of the four, in standard deviations, is chance. Its
p-value is printed, and of each figure the difference that would have been found with 80 % certainty. With
`--leak-us` messages are held back by this time before they leave, to see that the test finds that.

The runs take 20 minutes in all: `--runs 8 --seconds 5` is a short form, which sees less.
"""

import argparse
import asyncio
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from statistics import fmean, pstdev, quantiles
from typing import Any, NamedTuple

from kcast.client.aio import Client, Cover
from kcast.client.cluster import lab
from kcast.client.errors import Backlog
from kcast.client.sealed.membership import Group
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.groups import ALICE, OWNER
from tests.support.sealed_lines import epoch

ONE = Policy(1, 1, 1)
SIZE = 200
SHARE = 0.5  # of ticks that have a message
PERMUTATIONS = 10_000
LEVEL = 0.05
CERTAINLY = 0.84  # standard deviations: 80 %
SETTLING_S = 1.0  # at the beginning of a run, which is left out

_SO_TIMESTAMPNS = 35  # Linux
_TIMESPEC = struct.Struct("@qq")


class Seen(NamedTuple):
    """A datagram from the client: when, how long, and whether it has a sealed line."""

    at_s: float
    size_bytes: int
    is_line: bool


class Figures(NamedTuple):
    """What an observer computes of a run."""

    lateness_us: float
    spread_us: float
    bytes_per_s: float
    missing_percent: float


# --- The client --------------------------------------------------------------------------------------------


async def publish(port: int, seconds: float, rate: float, seed: int, leak_us: float, *, talks: bool) -> None:
    """Has cover traffic for some time, and says something or not."""
    group = Group("ops", OWNER.note_key.verifier, (epoch(),), 4_000_000_000)
    async with Client(lab([("127.0.0.1", port)], ONE), identity=ALICE, group=group) as client:
        cover = client.cover("t", rate=rate, size=SIZE)
        if leak_us:
            _hold_back(cover, leak_us)
        talking = asyncio.create_task(_talk(cover, rate, Random(seed))) if talks else None
        await asyncio.sleep(seconds)
        if talking is not None:
            talking.cancel()
        cover.close()


async def _talk(cover: Cover, rate: float, rng: Random) -> None:
    while True:
        await asyncio.sleep(rng.expovariate(rate * SHARE))
        with suppress(Backlog):
            cover.put(rng.randbytes(rng.randint(0, SIZE)))


def _hold_back(cover: Cover, leak_us: float) -> None:
    """Makes messages leave later than dummies."""
    running: Any = cover._cover
    at_once = running._publish

    def late(topic: bytes, payload: bytes, *args: Any, **options: Any) -> int:
        if payload:
            until = time.perf_counter() + leak_us / 1e6
            while time.perf_counter() < until:
                pass
        handle: int = at_once(topic, payload, *args, **options)
        return handle

    running._publish = late


# --- The observer ------------------------------------------------------------------------------------------


class Observer:
    """A relay before a server, which notes what comes from clients."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        with suppress(OSError):
            self.front.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._server = server

    def watch(self, command: Sequence[str]) -> list[Seen]:
        """Relays until a client has ended; returns what has come from it."""
        with subprocess.Popen(command) as process:
            seen = self.relay(lambda: process.poll() is not None)
            if process.returncode:
                raise SystemExit(f"the client has ended with {process.returncode}")
        return seen

    def relay(self, is_over: Callable[[], bool]) -> list[Seen]:
        """Relays between a client and the server until it is over; returns what has come from the client."""
        seen: list[Seen] = []
        client: tuple[str, int] | None = None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
            back.connect(self._server)
            while not is_over():
                ready, _, _ = select.select([self.front, back], [], [], 0.2)
                if self.front in ready:
                    data, more, _, client = self.front.recvmsg(65_536, 64)
                    seen.append(Seen(_arrived_s(more), len(data), b";S=" in data))
                    with suppress(OSError):
                        back.send(data)
                if back in ready:
                    data = back.recv(65_536)
                    if client is not None:
                        self.front.sendto(data, client)
        return seen


def _arrived_s(more: Sequence[tuple[int, int, bytes]]) -> float:
    for level, kind, data in more:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = map(float, _TIMESPEC.unpack_from(data))
            return seconds + nanoseconds / 1e9
    return time.time()


def figures(seen: Sequence[Seen], rate: float) -> Figures:
    """Returns the four figures of a run."""
    first = next(each.at_s for each in seen if each.is_line)
    counted = [each for each in seen if each.at_s >= first + SETTLING_S]
    lines = [each.at_s for each in counted if each.is_line]
    begun, over = lines[0], lines[-1]
    ticks = [round((at - begun) * rate) for at in lines]
    offsets = sorted(at - begun - tick / rate for at, tick in zip(lines, ticks, strict=True))
    first_twentieth = offsets[len(offsets) // 20]
    low, middle, high = quantiles(offsets, n=4)
    return Figures(
        (middle - first_twentieth) * 1e6,
        (high - low) * 1e6,
        sum(each.size_bytes for each in counted) / (over - begun),
        100 * (1 - len(set(ticks)) / (ticks[-1] + 1)),
    )


# --- The test ----------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """The p-value, and what of each figure would have been found."""

    p: float
    differences: Sequence[float]
    found: Sequence[float]


def judge(silent: Sequence[Figures], talking: Sequence[Figures], rng: Random) -> Verdict:
    """Makes the permutation test on the largest of the standardised differences."""
    runs = [*silent, *talking]
    scales = [pstdev(column) for column in zip(*runs, strict=True)]
    rows = [
        [value / scale if scale else 0.0 for value, scale in zip(run, scales, strict=True)] for run in runs
    ]
    count = len(silent)
    largest = _largest(rows, count)
    drawn = []
    for _ in range(PERMUTATIONS):
        rng.shuffle(rows)
        drawn.append(_largest(rows, count))
    p = (1 + sum(value >= largest - 1e-12 for value in drawn)) / (1 + PERMUTATIONS)
    critical = sorted(drawn)[int((1 - LEVEL) * PERMUTATIONS)]
    certain = critical + CERTAINLY * (1 / count + 1 / len(talking)) ** 0.5
    columns = list(zip(*talking, strict=True)), list(zip(*silent, strict=True))
    differences = [fmean(one) - fmean(other) for one, other in zip(*columns, strict=True)]
    within = [fmean([pstdev(one), pstdev(other)]) for one, other in zip(*columns, strict=True)]
    return Verdict(p, differences, [certain * spread for spread in within])


def _largest(rows: Sequence[Sequence[float]], count: int) -> float:
    columns = zip(*rows, strict=True)
    return max(abs(fmean(column[:count]) - fmean(column[count:])) for column in columns)


def observe(runs: int, seconds: float, rate: float, leak_us: float) -> None:
    """Makes all runs, and prints what comes of them."""
    found: dict[bool, list[Figures]] = {False: [], True: []}
    with ProcessCluster(1, ttl_s=60) as processes:
        (server,) = processes.cluster(ONE).servers
        observer = Observer(server.addresses[0])
        port = observer.front.getsockname()[1]
        for run in range(runs):
            talks = run % 4 in (1, 2)  # ABBA: what grows slowly falls on both alike
            given = {"port": port, "seconds": seconds, "rate": rate, "seed": run, "leak-us": leak_us}
            options = [f"--{name}={value}" for name, value in given.items()]
            kind = ["--talks"] if talks else []
            seen = observer.watch([sys.executable, "-m", __spec__.name, *options, *kind])
            found[talks].append(figures(seen, rate))
            said = "messages" if talks else "dummies"
            print(f"run {run + 1} of {runs}, {said}: {_shown(found[talks][-1])}", flush=True)
    _tell(found[False], found[True])


def _tell(silent: Sequence[Figures], talking: Sequence[Figures]) -> None:
    verdict = judge(silent, talking, Random(1))
    print(f"\n{'':16}{'dummies':>10}{'messages':>12}{'difference':>12}{'would be found':>16}")
    for number, name in enumerate(Figures._fields):
        means = [fmean([run[number] for run in runs]) for runs in (silent, talking)]
        difference, least = verdict.differences[number], verdict.found[number]
        print(f"{name:16}{means[0]:>10.2f}{means[1]:>12.2f}{difference:>12.3f}{least:>16.3f}")
    print(
        f"\np = {verdict.p:.4f}: that chance alone makes the largest of the four differences as large, of "
        f"{PERMUTATIONS:,} permutations.\nOn {SHARE:.0%} of ticks there was a message, so one that leaves "
        f"{verdict.found[0] / SHARE:.0f} us later than a dummy would have been found (80 %, at {LEVEL:.0%})."
    )


def _shown(of: Figures) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in of._asdict().items())


def main() -> None:
    """Makes the runs; with `--port`, is the client of one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--leak-us", type=float, default=0.0)
    for hidden, kind in (("--port", int), ("--seed", int)):
        parser.add_argument(hidden, type=kind, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--talks", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.port:
        work = publish(given.port, given.seconds, given.rate, given.seed, given.leak_us, talks=given.talks)
        asyncio.run(work)
    elif given.runs < 8 or given.runs % 4 or given.seconds < 3 * SETTLING_S:
        parser.error("give 8 runs or more, a multiple of 4, of 3 seconds or more")
    else:
        observe(given.runs, given.seconds, given.rate, given.leak_us)


if __name__ == "__main__":
    main()
