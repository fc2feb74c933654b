"""What a sync of two logs costs beside the entries that it brings, on a path of 250 ms that loses 2 % a leg.

    python -m bench.sync [--runs 20] [--only WORD]

Both logs are the real cores; the path is simulated (tests/support/sync_lab.py), with payloads, lines and
datagrams as long as on the wire. There are 100,000 entries of 200 bytes from ten days. Printed are medians:
the time from when the second log is opened until nothing is missing, in round trips; kB of control, which is
all but the entries' own lines and the headers of the datagrams that carry them; and the bars of both.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from statistics import median
from typing import NamedTuple

from tests.support.sync_lab import Entry, SyncLab, make_entries, name_of

RTT_S, LOSS = 0.25, 0.02
ENTRIES = 100_000
ALONE_S = 60.0  # the first log is alone before the second one is opened
UNTIL_S = 900.0


class Case(NamedTuple):
    """How many publishers there are, what is missing, and the bars: kB of control, and round trips."""

    publishers: int
    missing: str
    kilobytes_max: float | None = None
    round_trips_max: float | None = None


CASES = (
    Case(20, "10 scattered", 3, 5),
    Case(20, "1,000 scattered", 45, 14),
    Case(20, "the last 10,000", 55),
    Case(20, "1 % on both sides", 90),
    Case(2_000, "1,000 scattered", 120),
    Case(ENTRIES, "10 scattered", 30),
    Case(ENTRIES, "1,000 scattered", 1_100),
)


class Cost(NamedTuple):
    """What one sync took."""

    round_trips: float
    control_kilobytes: float
    data_kilobytes: float
    asks: float
    whats: float


def main() -> None:
    """Prints a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", metavar="WORD", default="")
    given = parser.parse_args()
    print("publishers missing             RTT  bar control kB   bar  data kB")
    for case in CASES:
        if given.only in f"{case.publishers:,}: {case.missing}":
            cost = cost_of(case, given.runs)
            few, most = (f"{bar or '-'}" for bar in (case.round_trips_max, case.kilobytes_max))
            times = f"{cost.round_trips:>6.1f} {few:>4} {cost.control_kilobytes:>10.1f} {most:>5}"
            more = f"{cost.data_kilobytes:>8.1f}   {cost.asks:g} ask, {cost.whats:g} what"
            print(f"{case.publishers:>10,} {case.missing:<16} {times} {more}", flush=True)


def cost_of(case: Case, runs: int, entries: int = ENTRIES) -> Cost:
    """Returns the medians of some runs, each with other losses."""
    costs = [one_sync(case, seed, entries) for seed in range(runs)]
    return Cost(*(median(column) for column in zip(*costs, strict=True)))


def one_sync(case: Case, seed: int, entries: int = ENTRIES) -> Cost:
    """Returns what one sync takes, until both hold all."""
    all_ = entries_of(entries, min(case.publishers, entries))
    lab = SyncLab(seed, LOSS, RTT_S)
    mine, theirs = ([all_[at] for at in held] for held in held_by_two(case.missing, entries, Random(seed)))
    union = len({each.id for each in (*mine, *theirs)})
    other = lab.open(name_of(-1), theirs)
    lab.run(ALONE_S)
    lab.control_bytes = 0
    one = lab.open(name_of(-2), mine)
    lab.know(all_)
    lab.run(UNTIL_S, lambda: len(one.shelf.index) == len(other.shelf.index) == union)
    if not len(one.shelf.index) == len(other.shelf.index) == union:
        raise RuntimeError(f"{case}, seed {seed}: not all has come in {UNTIL_S:g} s")
    return Cost(
        (lab.now - ALONE_S) / RTT_S,
        lab.control_bytes / 1e3,
        lab.data_bytes / 1e3,
        lab.said["ask"],
        lab.said["what"],
    )


@lru_cache(maxsize=1)
def entries_of(entries: int, publishers: int) -> Sequence[Entry]:
    """Returns the entries of all cases with as many publishers."""
    return make_entries(entries, publishers)


def held_by_two(missing: str, entries: int, rng: Random) -> Iterator[Sequence[int]]:
    """Yields what each of the two holds, as places among all entries."""
    match missing:
        case "the last 10,000":
            yield range(entries * 9 // 10)
            yield range(entries)
        case "1 % on both sides":
            for _ in range(2):
                gone = set(rng.sample(range(entries), entries // 100))
                yield [at for at in range(entries) if at not in gone]
        case _:
            count = int(missing.split()[0].replace(",", ""))
            gone = set(rng.sample(range(entries), count))
            yield [at for at in range(entries) if at not in gone]
            yield range(entries)


if __name__ == "__main__":
    main()
