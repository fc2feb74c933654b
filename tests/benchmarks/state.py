"""What it costs to go by a signed list of 100,000 servers that is stored on this disk.

Run `python -m tests.benchmarks.state`. Each run is a process of its own, so that nothing has been verified
before: it makes a client of `@NAME`, which reads the state, verifies it, and places topics by the list. Then
the parts by themselves. The importing of modules is not counted.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SERVERS = 100_000
RUNS = 7

PROGRAM = """
import time
from kcast.client import blocking
from kcast.client.cluster import parse
from kcast.client.trust.reach import keeper, opening
from kcast.client.trust.state import standing, store
from kcast.client.view import View

started = time.perf_counter()
client = blocking.Client("@example.org/lab")
whole = time.perf_counter() - started
assert len(client.cluster.servers) == 100_000

held = store.Store("example.org/lab", is_sound=lambda held: True).load()
started = time.perf_counter()
store.Store("example.org/lab", is_sound=lambda held: True).load()
read = time.perf_counter() - started
text = held.list.decode()
started = time.perf_counter()
cluster = parse(text)
parsed = time.perf_counter() - started
standing.standing_of.cache_clear()
standing.list_checks.clusters.parse = lambda *_: cluster
started = time.perf_counter()
standing.standing_of(held)
verified = time.perf_counter() - started
started = time.perf_counter()
View(cluster)
print(whole, read, verified, parsed, time.perf_counter() - started)
"""


def main() -> None:
    """Prints medians in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(Path(folder) / "state"),
            "KCAST_TRUST_PATH": str(Path(folder) / "trust"),
        }
        os.environ |= environment
        fill(Path(folder))
        runs = []
        for _ in range(RUNS):
            done = subprocess.run(
                (sys.executable, "-c", PROGRAM),
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            runs.append([float(part) for part in done.stdout.split()])
    names = ("in use", "of which read from disk", "signatures, proof and hash", "read as a list", "placed")
    for name, times_s in zip(names, zip(*runs, strict=True), strict=True):
        print(f"{name:28} {median(times_s) * 1000:5.0f} ms")


def fill(folder: Path) -> None:
    """Stores a list of so many servers, as a client that has fetched it."""
    from time import time

    from kcast.client.trust.reach.opening import open_list
    from tests.support.lists import hosts
    from tests.support.published import drop, lists_at, write_files

    lists = lists_at(int(time()), str(folder / "published"), hosts_per_prefix=0)
    lists.publish(lists.cluster(hosts(SERVERS)))
    drop(lists, folder / "trust")
    write_files(lists, folder / "published")
    open_list("example.org/lab", int(time()))


if __name__ == "__main__":
    main()
