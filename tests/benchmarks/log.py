"""What a log with many entries costs: to publish a list in it, and to verify proofs of its tree.

python -m tests.benchmarks.log [--leaves 100000]
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from pymerkle import SqliteTree

from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.record import ListRecord
from kcast.client.trust.publisher.audit import Tree
from kcast.client.trust.publisher.log import Log
from kcast.client.trust.publisher.publishing import STEPS_KEPT, write
from tests.support.list_publisher import ListPublisher

NAME = "example.org/other"
ROUNDS = 5
PROOFS = 500


@contextmanager
def timed(what: str, *, is_told: bool = True) -> Iterator[None]:
    """Prints how long a block took, and how much of that was computing."""
    start, computed = perf_counter(), process_time()
    yield
    if is_told:
        ms, cpu_ms = 1000 * (perf_counter() - start), 1000 * (process_time() - computed)
        print(f"{what:44s} {ms:10.1f} ms, {cpu_ms:.1f} ms of CPU", flush=True)


def each_us(what: str, calls: list[Callable[[], bool]]) -> None:
    """Prints the median of some rounds: the time of one of these calls, all of which must be true."""
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        assert all(call() for call in calls)
        found.append(1e6 * (perf_counter() - start) / len(calls))
    print(f"{what:44s} {sorted(found)[ROUNDS // 2]:10.1f} us", flush=True)


def entries(count: int) -> list[bytes]:
    """Returns so many records of lists."""
    return [ListRecord(NAME, version, 1, 924, "5" * 64).data for version in range(1, count + 1)]


# --- Proofs ------------------------------------------------------------------------------------------------


def proofs(leaves: int) -> None:
    """Verifies proofs of one tree, of many indices and old sizes."""
    tree = Tree(list(map(merkle.leaf_hash, entries(leaves))))
    root = tree.root(leaves)
    chance = Random(9162)
    inclusion: list[Callable[[], bool]] = []
    consistency: list[Callable[[], bool]] = []
    for _ in range(PROOFS):
        index, old = chance.randrange(leaves), chance.randint(1, leaves - 1)
        path = tree.hashes(tiles.inclusion_path(index, leaves))
        old_path, old_root = tree.hashes(tiles.consistency_path(old, leaves)), tree.root(old)
        inclusion.append(partial(merkle.includes, index, leaves, tree.leaves[index], path, root))
        consistency.append(partial(merkle.extends, old, leaves, old_path, old_root, root))
    each_us(f"proof of inclusion, {leaves:,} leaves", inclusion)
    each_us(f"proof of consistency, {leaves:,} leaves", consistency)


# --- The log -----------------------------------------------------------------------------------------------


def publish(leaves: int) -> None:
    """Publishes lists in a log that has so many entries."""
    with TemporaryDirectory() as folder:
        publisher = ListPublisher(Path(folder))
        place = publisher.place
        with timed(f"fill a log with {leaves:,} entries, and sign it"):
            place.served.mkdir()
            tree: Any = SqliteTree(str(place.database))
            tree.append_entries(entries(leaves))
            tree.close()
            state = place.file.with_name("log.checkpoint")
            with Log(place.database, place.served, publisher.log, state) as log:
                note = log.sign([])
                write(place.served, {"checkpoint": note.data})
        for number in range(1, STEPS_KEPT + ROUNDS + 1):  # until each has all of its files from/SIZE
            publisher.now_s += 3600
            with timed(f"publish version {number}", is_told=number in (1, *range(STEPS_KEPT + 1, 1000))):
                publisher.publish()


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--leaves", type=int, default=100_000)
    given = parser.parse_args()
    proofs(given.leaves)
    publish(given.leaves)


if __name__ == "__main__":
    main()
