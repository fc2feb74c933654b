"""What a message costs a client, to send and to receive: here, and in another checkout, or by another list.

    python -m bench.messages --against PATH      # as `git worktree add PATH COMMIT` makes it
    python -m bench.messages --signed            # a signed list, and the same list unsigned

A process sends messages to itself by way of one server, a few at a time, and counts the CPU seconds that it
uses. Rounds alternate between the two; the ratio is the median of the ratios of the rounds.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kcast.client.cluster import Cluster, format_cluster
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster

HERE = Path(__file__).parents[1]
ROUNDS = 20
MESSAGES = 8000
BURST = 20

# It runs with what another version has, too.
CHILD = """
import asyncio
import sys
from time import process_time
from kcast.client.aio import Client

cluster, messages, burst = sys.argv[1], *map(int, sys.argv[2:])

async def main():
    async with Client(cluster) as client:
        subscription = client.subscribe("t")
        await subscription.ready()
        for number in range(messages + 1000):
            if number == 1000:
                start = process_time()
            client.publish_nowait("t", b"payload of a message", confirm=False)
            if number % burst == burst - 1:
                for _ in range(burst):
                    await subscription.get()
        print((process_time() - start) / messages)

asyncio.run(asyncio.wait_for(main(), 60))
"""


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two that are compared: a checkout, and the cluster that its client is opened with."""

    name: str
    checkout: Path
    cluster: str
    environment: dict[str, str] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Returns the CPU seconds of one message, sent and received."""
        with tempfile.TemporaryDirectory() as names:
            (Path(names) / "kcast").symlink_to(self.checkout)
            found = subprocess.run(
                [sys.executable, "-c", CHILD, self.cluster, str(MESSAGES), str(BURST)],
                env={"PYTHONPATH": names, "PATH": "", **self.environment},
                capture_output=True,
                text=True,
                check=True,
            )
        return float(found.stdout)


def signed(folder: Path, cluster: Cluster) -> Side:
    """Returns a client of this checkout, of the signed list of these servers."""
    from tests.support.published import AT_NAME, KnownList

    known = KnownList(folder, cluster.policy)
    known.publish(cluster.servers, fresh_s=86_400, valid_s=2 * 86_400)
    return Side("signed", HERE, AT_NAME, known.environment)


def main() -> None:
    """Prints the medians of both sides, and of the ratios of the rounds."""
    parser = argparse.ArgumentParser()
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--against", type=Path)
    other.add_argument("--signed", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    with ProcessCluster(1, ttl_s=60) as servers, tempfile.TemporaryDirectory() as text:
        folder, cluster = Path(text), servers.cluster(Policy(1, 1, 1))
        unsigned = folder / "lab.cluster"
        unsigned.write_text(format_cluster(cluster))
        if arguments.signed:
            sides = signed(folder, cluster), Side("unsigned", HERE, str(unsigned))
        else:
            there = arguments.against.absolute()
            sides = Side("here", HERE, str(unsigned)), Side("there", there, str(unsigned))
        compare(*sides, rounds=arguments.rounds)


def compare(mine: Side, other: Side, rounds: int) -> None:
    """Prints each round's ratio, and the medians."""
    found: dict[Side, list[float]] = {mine: [], other: []}
    for turn in range(rounds):
        for side in (other, mine) if turn % 2 else (mine, other):
            found[side].append(side.cpu_s())
        print(f"round {turn + 1}: {found[mine][-1] / found[other][-1]:.3f} times", flush=True)
    ratios = [one / another for one, another in zip(found[mine], found[other], strict=True)]
    medians = (f"{statistics.median(found[side]) * 1e6:.1f} us {side.name}" for side in (mine, other))
    print(f"{', '.join(medians)}; median of {len(ratios)} ratios {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
