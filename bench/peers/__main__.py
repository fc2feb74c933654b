"""The command: `python -m bench.peers`."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers import machine
from bench.peers.bench import Bench
from bench.peers.kinds import BEFORE, kcast, kcasts
from bench.peers.pacing import TICK_S
from bench.peers.page import filled
from bench.peers.plots import plots
from bench.peers.results import Run
from bench.peers.rows import SHORT, Row, rows
from bench.peers.session import Poller
from bench.peers.tables import terminal
from bench.peers.trial import GRACE_S
from tests.support.checkout import ROOT
from tests.support.trees import HERE, NoHistory, tree_of

DESCRIPTORS = 60_000
ROUNDS, SHORT_ROUNDS = 5, 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints what was found."""
    options = given(arguments)
    try:
        run = stored(options.json)
        if not options.render:
            measure(run, options)
        if options.write:
            write(run, options.write)
    except KeyboardInterrupt:
        sys.exit("\ninterrupted")
    except (NoHistory, ValueError, OSError) as error:
        sys.exit(f"peers: {error}")


def given(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Measures kcast beside brokers: the same load for each, taking turns. "
        "docs/performance.md explains each row.",
    )
    add = parser.add_argument
    add("--only", action="append", metavar="ROW", help="measure this row; give it again for more")
    add("--short", action="store_true", help="some rows, and fewer rounds: a few minutes")
    add("--list", action="store_true", help="only print the names of rows")
    add("--rounds", type=int, metavar="N", help=f"{ROUNDS} by default, with --short {SHORT_ROUNDS}")
    add("--seconds", type=float, default=1.0, help="of each load, 1 by default")
    add(
        "--tick-us",
        type=float,
        default=TICK_S * 1e6,
        help="messages due in it are sent together; 500 by default",
    )
    add(
        "--beside", action="append", default=[], metavar="COMMIT|FOLDER", help="another version of kcast, too"
    )
    add("--without", action="append", default=[], metavar="SERVER", help="leave a server or client out")
    add(
        "--json", type=Path, metavar="FILE", help="keep what was found, beside the rows that FILE has already"
    )
    add("--write", type=Path, metavar="PAGE", help="put what FILE has into PAGE, and plots beside it")
    add("--render", action="store_true", help="measure nothing, only write PAGE")
    options = parser.parse_args(arguments)
    options.command = shlex.join(["python", "-m", "bench.peers", *(arguments or sys.argv[1:])])
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: give 1 or more")
    if options.seconds <= 0 or options.tick_us <= 0:
        parser.error("--seconds, --tick-us: give more than 0")
    if (options.write or options.render) and not options.json:
        parser.error("--write and --render need --json FILE")
    return options


def stored(file: Path | None) -> Run:
    """Returns what a file has; nothing yet where there is none. Raises ValueError and OSError."""
    if file is None or not file.exists():
        return Run(machine.description())
    return Run.from_json(json.loads(file.read_text()))


def measure(run: Run, options: argparse.Namespace) -> None:
    """Measures rows; prints each as it is done, and keeps it."""
    if run.machine != machine.description():
        raise ValueError(f"{options.json} was measured on another machine: give another file")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="kcast-bench-")))
        bench = Bench(
            machine.cores(),
            Poller(aside=Poller()),
            Reporter(),
            rounds=options.rounds or (SHORT_ROUNDS if options.short else ROUNDS),
            seconds=options.seconds,
            search_seconds=options.seconds / 2,
            tick_s=options.tick_us / 1e6,
            descriptors=machine.raise_descriptors(DESCRIPTORS),
            skipped=dict.fromkeys(options.without, "it was left out"),
        )
        stack.callback(bench.poller.close)
        wanted = chosen(options, scratch, bench)
        if options.list:
            for row in wanted:
                print(f"{row.name:16} {row.title}")
            return
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, {bench.cores.load})
        run.command = options.command
        run.method = {
            "rounds": bench.rounds,
            "seconds": bench.seconds,
            "tick_us": options.tick_us,
            "grace_ms": GRACE_S * 1000,
        }
        for row in wanted:
            run.rows[row.name] = row.measure(bench)
            run.rows[row.name].tree = commit()
            run.versions |= bench.versions
            run.skipped = bench.skipped
            print(terminal(run, row.name), flush=True)
            if options.json:
                options.json.write_text(json.dumps(run.to_json(), indent=1) + "\n")


def chosen(options: argparse.Namespace, scratch: Path, bench: Bench) -> list[Row]:
    """Returns the rows that are to be measured. Raises NoHistory, and ValueError for an unknown row."""
    here = kcasts(HERE)
    here += [kcast(tree_of(name, scratch), f"kcast {Path(name).name}") for name in options.beside]
    before = f"kcast {BEFORE}"
    try:
        older = [kcast(tree_of(BEFORE, scratch), before)]
    except NoHistory as error:
        older = []
        bench.skipped[before] = str(error)
    every = {row.name: row for row in rows(here, HERE, older)}
    names = options.only or (SHORT if options.short else list(every))
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"there is no row {', '.join(unknown)}: --list names them")
    return [every[name] for name in names]


def write(run: Run, page: Path) -> None:
    """Puts what was found into a page, and plots beside it. Raises ValueError and OSError."""
    run = Run.from_json(run.to_json())  # as a file has it, which is rounded
    page.write_text(filled(page.read_text(), run))
    for name, drawing in plots(run):
        page.with_name(f"{page.stem}-{name}.svg").write_text(drawing)


def commit() -> str:
    """Returns the commit of this checkout, with a mark where files differ from it; nothing without git."""
    done = subprocess.run(
        ("git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


class Reporter:
    """Tells on standard error how it goes on, with the time since the beginning."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def __call__(self, words: str) -> None:
        print(f"{time.monotonic() - self._start_s:6.0f} s  {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that servers are ended
    main()
