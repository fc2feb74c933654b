"""What a message costs a client, to send and to receive: here, and in another checkout.

    python -m tests.benchmarks.messages --against PATH      # as `git worktree add PATH COMMIT` makes it

A process sends messages to itself by way of one server, a few at a time, and counts the CPU seconds that it
uses. Rounds alternate between the two versions; the ratio is the median of the ratios of the rounds.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster

ROUNDS = 20
MESSAGES = 8000
BURST = 20

# It runs with what another version has, too.
CHILD = """
import asyncio
import sys
from time import process_time
from kcast.client.aio import Client
from kcast.client.cluster import lab
from kcast.hashring.policy import Policy

port, messages, burst = map(int, sys.argv[1:])

async def main():
    async with Client(lab([("127.0.0.1", port)], Policy(1, 1, 1))) as client:
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


def cpu_s(checkout: Path, port: int) -> float:
    """Returns the CPU seconds of one message, sent and received, with the version in a checkout."""
    with tempfile.TemporaryDirectory() as names:
        (Path(names) / "kcast").symlink_to(checkout)
        arguments = [str(port), str(MESSAGES), str(BURST)]
        found = subprocess.run(
            [sys.executable, "-c", CHILD, *arguments],
            env={"PYTHONPATH": names, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(found.stdout)


def main() -> None:
    """Prints the medians of both versions, and of the ratios of the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    here, there = Path(__file__).parents[2], arguments.against.absolute()
    found: dict[Path, list[float]] = {there: [], here: []}
    with ProcessCluster(1, ttl_s=60) as servers:
        ((_, port),) = servers.cluster(Policy(1, 1, 1)).servers[0].addresses
        for turn in range(arguments.rounds):
            for checkout in (there, here) if turn % 2 else (here, there):
                found[checkout].append(cpu_s(checkout, port))
            print(f"round {turn + 1}: {found[here][-1] / found[there][-1]:.3f} times", flush=True)
    ratios = [mine / other for mine, other in zip(found[here], found[there], strict=True)]
    mine, other = (statistics.median(found[each]) * 1e6 for each in (here, there))
    ratio = statistics.median(ratios)
    print(f"{mine:.1f} us here, {other:.1f} us there; median of {len(ratios)} ratios {ratio:.3f}")


if __name__ == "__main__":
    main()
