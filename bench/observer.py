"""Does cover traffic tell when something is said? By the times and sizes of its lines, on a real machine.

    python -m bench.observer                      # 3 runs of 3,000 lines at 20 a second, in asyncio
    python -m bench.observer --driver threads --lines 600 --runs 1

A client sends cover traffic to a server, through a relay that notes the kernel's time of each datagram.
Another process hands messages over, for a third of the ticks: half of them at random, half 0 to 3 ms before
a tick. Of lines with a message and of dummies, the area under the curve (AUC) is the chance that the one of
two has the larger figure: 0.5 tells nothing. *Late* is how long after its tick a line came, *before* and
*after* are so of its neighbours, and *size* is that of its datagram; `just` are those handed over just
before.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster, lab
from kcast.client.sealed.membership import Group
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.groups import ALICE, OWNER
from tests.support.observer_relay import Observer
from tests.support.sealed_lines import epoch

SHARE = 0.175  # of ticks, for each of the two ways to hand a message over
JUST_BEFORE_S = 0.003
AT_RANDOM, JUST_BEFORE, DUMMY = b"r", b"b", b"."
SETTLING = 10  # lines that do not count: the first ones wait for a cookie
ONE = Policy(1, 1, 1)


def begin(client: Any, rate: float, said: list[bytes]) -> Any:
    """Begins cover traffic that notes what is in each line; tells when its first tick was."""
    cover = client.cover("t", rate=rate, size=100)
    publish = cover._cover._publish

    def noting(topic: bytes, payload: bytes, now: float, **options: Any) -> int:
        handle: int = publish(topic, payload, now, **options)
        said.append(payload or DUMMY)
        return handle

    cover._cover._publish = noting
    print(cover._cover.schedule._start + time.time() - time.monotonic(), flush=True)
    return cover


async def in_asyncio(cluster: Cluster, group: Group, rate: float, said: list[bytes]) -> None:
    async with aio.Client(cluster, identity=ALICE, group=group) as client:
        cover = begin(client, rate, said)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
        )
        while message := await reader.read(1):
            cover.put(message)


def in_threads(cluster: Cluster, group: Group, rate: float, said: list[bytes]) -> None:
    with blocking.Client(cluster, identity=ALICE, group=group) as client:
        cover = begin(client, rate, said)
        while message := os.read(0, 1):
            cover.put(message)


def be_client(driver: str, port: int, rate: float) -> None:
    """Sends cover traffic until its input ends; prints what was in each line."""
    said: list[bytes] = []
    cluster = lab([("127.0.0.1", port)], ONE)
    group = Group("ops", OWNER.note_key.verifier, (epoch(),), 4_000_000_000)
    if driver == "asyncio":
        asyncio.run(in_asyncio(cluster, group, rate, said))
    else:
        in_threads(cluster, group, rate, said)
    print(b"".join(said).decode())


def feed(pipe: Any, start_s: float, rate: float, lines: int, rng: random.Random) -> None:
    """Hands messages over, each when it is time, until there were so many ticks."""
    plan = [(start_s + lines / rate, b"")]
    for tick in range(1, lines):
        drawn, at_s = rng.random(), start_s + tick / rate
        if drawn < 2 * SHARE:
            kind, within_s = (AT_RANDOM, 1 / rate) if drawn < SHARE else (JUST_BEFORE, JUST_BEFORE_S)
            plan.append((at_s - rng.random() * within_s, kind))
    for due_s, message in sorted(plan):
        time.sleep(max(due_s - time.time(), 0))
        pipe.write(message)
    pipe.close()


def run(driver: str, rate: float, lines: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what was in each line, how late it was in seconds, and its size."""
    with ProcessCluster(1, ttl_s=60) as processes:
        (server,) = processes.cluster(ONE).servers
        observer = Observer(server.addresses[0])
        port = observer.front.getsockname()[1]
        words = (sys.executable, "-m", "bench.observer", "--driver", driver, "--rate", str(rate))
        client = subprocess.Popen(
            (*words, "--client", str(port)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        given, answers = client.stdin, client.stdout
        assert given is not None and answers is not None
        told: list[bytes] = []

        def talk() -> None:
            told.append(answers.readline())
            feed(given, float(told[0]), rate, lines, random.Random(seed))
            told.append(answers.read())

        talking = threading.Thread(target=talk)
        talking.start()
        with observer.front:
            seen = observer.relay(lambda: not talking.is_alive())
        client.wait()
    first = {each.data: each for each in reversed(seen) if each.is_line}  # without repeats
    came = sorted(first.values())
    said = np.frombuffer(told[1].strip(), "S1")
    assert len(came) == len(said), (len(came), len(said))
    late_s = (np.array([each.at_s for each in came]) - float(told[0]) + 0.5 / rate) % (1 / rate) - 0.5 / rate
    return said[SETTLING:], late_s[SETTLING:], np.array([len(each.data) for each in came])[SETTLING:]


def auc(real: np.ndarray, dummy: np.ndarray) -> float:
    """Returns the chance that a figure of the first is larger than one of the second; equal ones are half."""
    ordered = np.sort(dummy)
    ranks = np.searchsorted(ordered, real, "left") + np.searchsorted(ordered, real, "right")
    return float(ranks.mean() / 2 / len(dummy))


def figures(said: np.ndarray, late_s: np.ndarray, size_bytes: np.ndarray) -> dict[str, float]:
    """Returns each AUC of a run; of `just`, those of messages that were handed over just before a tick."""
    inner, found = np.arange(1, len(said) - 1), {}
    dummy = inner[said[inner] == DUMMY]
    for kind, real in (("", inner[said[inner] != DUMMY]), (" just", inner[said[inner] == JUST_BEFORE])):
        for name, figure, step in (("late", late_s, 0), ("before", late_s, -1), ("after", late_s, 1)):
            found[name + kind] = auc(figure[real + step], figure[dummy + step])
        found["size" + kind] = auc(size_bytes[real], size_bytes[dummy])
    return found


def main() -> None:
    """Prints the AUC of each figure, and how late lines are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--driver", choices=["asyncio", "threads"], default="asyncio")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client is not None:
        be_client(given.driver, given.client, given.rate)
        return
    found, late_s = [], []
    for seed in range(given.runs):
        said, late, size = run(given.driver, given.rate, given.lines, seed)
        found.append(figures(said, late, size))
        late_s.append(late)
        print(f"run {seed + 1}: {len(said)} lines, {np.mean(said != DUMMY):.0%} with a message", flush=True)
    for name in found[0]:
        each = [figure[name] for figure in found]
        print(f"AUC {name:<12}{np.mean(each):.3f}   " + " ".join(f"{one:.3f}" for one in each))
    low, middle, high = np.percentile(np.concatenate(late_s) * 1e6, (5, 50, 95))
    print(f"late by {middle:.0f} us; 5 %: {low:.0f}, 95 %: {high:.0f}")


if __name__ == "__main__":
    main()
