"""The command: `python -m tests.benchmarks.peers`."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.peers import machine
from tests.benchmarks.peers.bench import Bench
from tests.benchmarks.peers.kinds import BEFORE, Kind, kcast, kcasts
from tests.benchmarks.peers.pacing import TICK_S
from tests.benchmarks.peers.results import Run
from tests.benchmarks.peers.rows import SHORT, rows
from tests.benchmarks.peers.session import Poller
from tests.benchmarks.peers.tables import terminal
from tests.benchmarks.peers.trial import GRACE_S
from tests.support.trees import HERE, NoHistory, tree_of

DESCRIPTORS = 60_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description="Measures kcast beside brokers: the same load for each, taking turns. docs/performance.md "
        "explains each row.",
    )
    parser.add_argument("--only", action="append", metavar="ROW", help="a row; give it again for more")
    parser.add_argument("--short", action="store_true", help="a few rows and rounds: some minutes")
    parser.add_argument("--list", action="store_true", help="only the names of rows")
    parser.add_argument("--rounds", type=int, metavar="N", help="5 by default, with --short 2")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each load")
    parser.add_argument(
        "--tick-us", type=float, default=TICK_S * 1e6, help="what is due in it is sent together"
    )
    parser.add_argument(
        "--beside", action="append", default=[], metavar="COMMIT|FOLDER", help="another version of kcast, too"
    )
    parser.add_argument("--without", action="append", default=[], metavar="SERVER", help="leave one out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="kcast-bench-")))
        here = kcasts(HERE)
        before: list[Kind] = []
        report = Reporter()
        skipped = dict.fromkeys(options.without, "it was left out")
        try:
            here += [kcast(tree_of(name, scratch), f"kcast {Path(name).name}") for name in options.beside]
        except NoHistory as error:
            parser.error(str(error))
        try:
            before = [kcast(tree_of(BEFORE, scratch), f"kcast {BEFORE}")]
        except NoHistory as error:
            skipped[f"kcast {BEFORE}"] = str(error)
        every = rows(here, HERE, before)
        if unknown := set(options.only or ()) - {row.name for row in every}:
            parser.error(f"there is no row {', '.join(sorted(unknown))}: --list names them")
        wanted = options.only or (SHORT if options.short else [row.name for row in every])
        if options.list:
            for row in every:
                print(f"{row.name:16} {row.title}")
            return
        cores = machine.cores()
        os.sched_setaffinity(0, {cores.load})
        poller = Poller()
        stack.callback(poller.close)
        bench = Bench(
            cores,
            poller,
            report,
            rounds=options.rounds or (2 if options.short else 5),
            seconds=options.seconds,
            search_seconds=options.seconds / 2,
            tick_s=options.tick_us / 1e6,
            descriptors=machine.raise_descriptors(DESCRIPTORS),
            skipped=skipped,
        )
        run = Run(
            command=shlex.join(["python", "-m", "tests.benchmarks.peers", *(arguments or sys.argv[1:])]),
            machine=machine.description(),
            method={
                "rounds": bench.rounds,
                "seconds": bench.seconds,
                "tick_us": options.tick_us,
                "grace_ms": GRACE_S * 1000,
            },
            versions=bench.versions,
            skipped=bench.skipped,
        )
        for row in every:
            if row.name in wanted:
                run.rows[row.name] = row.measure(bench)
                print(terminal(run, row.name), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(run.to_json(), indent=1) + "\n")


class Reporter:
    """Tells on standard error how it goes on, with the time since the beginning."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def __call__(self, words: str) -> None:
        print(f"{time.monotonic() - self._start_s:6.0f} s  {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
