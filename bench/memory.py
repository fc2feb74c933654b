"""What a lease takes in a whole server: bytes, with all that is kept against abuse; and time.

    python -m bench.memory [--leases 100000] [--beside COMMIT]

Memory is what tracemalloc counts (tests/support/lease_memory.py):

    names     topics, addresses and times
    table     what finds them: the table, and who holds leases
    caches    of networks and addresses; they are full at some thousand entries, however many leases there are
    rest      all else of the server, but for what comes with copies
    all       the sum of these
    copies    what comes with the first copy: a route for each topic, credit of each address, rates of each IP
              and network

A table that is *full* has as many places as leases; the others have twice as many. Where others *have left*,
as many addresses as hold leases held one a moment ago, and are still known.

With `--beside COMMIT` (or a folder) all is told of this project as it was then, too.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.support.checkout import ROOT
from tests.support.lease_memory import LINES, ROWS, Held, address, held, topic
from tests.support.trees import HERE, NoHistory, Tree, tree_of

TIME_ROUNDS = 3  # the fastest counts


def seconds(work: Callable[[], object]) -> float:
    """Of this process's own time, so that a busy machine tells the same."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def server_us(topics_each: int, datagrams: int = 2000) -> tuple[float, float]:
    """Microseconds a lease at the server, from vouched datagrams of so many topics: opened, and renewed."""
    opened_s, renewed_s = [], []
    for _ in range(3):
        most = datagrams * topics_each
        # With so much room leases have no price.
        limits = Limits(leases=2 * most, leases_per_prefix=most, topics=2 * most, topics_per_prefix=most)
        server = Server(secret=bytes(32), limits=limits)
        bursts = []
        for number in range(datagrams):
            cookie = server._cookies.mint(address(number), 0.0)
            lines = [topic(number * topics_each + line) + b"\n" for line in range(topics_each)]
            data = wire.request_datagram(wire.Vouch(b"n" * 11, cookie, None), lines)
            bursts.append(Burst(data, len(data), address(number)))

        def take_all(server: Server = server, bursts: Sequence[Burst] = tuple(bursts)) -> None:
            for burst in bursts:
                server.receive(burst, 1.0)
            server.flush(1.0)

        opened_s.append(seconds(take_all))
        renewed_s.append(seconds(take_all))
        assert server.counts["leases_opened"] == server.counts["leases_renewed"] == most
    return min(opened_s) / most * 1e6, min(renewed_s) / most * 1e6


def child(name: str, leases: int) -> None:
    """Prints what a process of its own has found: a row, or if there is no such one, the times."""
    row = ROWS.get(name)
    print(json.dumps(held(row, leases) if row else [server_us(each) for each in (1, LINES)]))


def found_by(tree: Tree, name: str, leases: int) -> Any:
    """Returns what a process prints that imports this version."""
    code = f"from bench.memory import child; child({name!r}, {leases})"
    command = (sys.executable, "-c", code)
    return json.loads(
        subprocess.run(command, cwd=ROOT, env=tree.environment, stdout=subprocess.PIPE, check=True).stdout
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=100_000, help="at the server")
    parser.add_argument("--beside", metavar="COMMIT|FOLDER", help="tell of this version, too")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="kcast-bench-") as scratch:
        trees = {"": HERE}
        if options.beside:
            try:
                trees[options.beside] = tree_of(options.beside, Path(scratch))
            except NoHistory as error:
                sys.exit(f"memory: {error}")
        compare(trees, options.leases)


def compare(trees: dict[str, Tree], leases: int) -> None:
    """Prints what leases take in each of these versions."""
    print(f"{leases:,} leases")
    print(f"{'bytes a lease':48}" + "".join(f"{name:>8}" for name in (*Held._fields[:4], "all", "copies")))
    for name in ROWS:
        for version, tree in trees.items():
            print(f"{name:38} {version[:9]:9}" + Held(*found_by(tree, name, leases)).text, flush=True)
    print(f"{'microseconds a lease, at the server':48}" + "".join(f"{name:>8}" for name in ("open", "renew")))
    times: dict[str, list[list[list[float]]]] = {version: [] for version in trees}
    for _ in range(TIME_ROUNDS):
        for version, tree in trees.items():
            times[version].append(found_by(tree, "times", leases))
    for place, what in enumerate(("alone in a datagram", f"{LINES} in a datagram")):
        for version, rounds in times.items():
            opened_us, renewed_us = (min(each[place][which] for each in rounds) for which in (0, 1))
            print(f"{what:38} {version[:9]:9}{opened_us:8.1f}{renewed_us:8.1f}")


if __name__ == "__main__":
    main()
