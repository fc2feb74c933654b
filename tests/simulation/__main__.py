"""Runs seeds one after the other: `python -m tests.simulation --seeds 10000`. CONTRIBUTING.md, Tests.

It goes on after a seed that fails, tells how far it is, and names all that failed at its end.
"""

import argparse
import sys
import time

from kcast.client.session.session import Session
from tests.simulation.options import options_of_seed
from tests.simulation.scenario import run_seed
from tests.support.liveness_table import Watched

PROGRESS_S = 10.0


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Runs seeds of the simulation, and names those that fail.",
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one (default 0)")
    options = parser.parse_args()
    Session.liveness = Watched()  # type: ignore[assignment]  # a setter that checks
    failed = run_seeds(range(options.first, options.first + options.seeds))
    return 1 if failed else 0


def run_seeds(seeds: range) -> list[int]:
    """Runs these seeds; returns those that failed."""
    failed: list[int] = []
    began_at = told_at = time.monotonic()
    for number, seed in enumerate(seeds, 1):
        try:
            run_seed(seed, options_of_seed(seed))
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}", *getattr(error, "__notes__", ()), sep="\n  ", flush=True)
        if time.monotonic() >= told_at + PROGRESS_S or number == len(seeds):
            told_at = time.monotonic()
            spent_s = told_at - began_at
            print(f"{number} of {len(seeds)} seeds, {len(failed)} failed, {spent_s:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(map(str, failed))}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
