"""Fuzzes targets: `python -m tests.fuzz [TARGET...] [--runs N] [--seconds S]`. CONTRIBUTING.md, Fuzzing."""

import argparse
import hashlib
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, STDOUT

from tests.fuzz import engine
from tests.fuzz.smallest import smallest
from tests.fuzz.targets import CORPUS, TARGETS, check_of, corpus_of
from tests.support.checkout import ROOT

FOUND = ROOT / "build" / "fuzz"


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Looks for inputs that break a promise. What it finds is in build/fuzz.",
    )
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="inputs for each target")
    parser.add_argument("--seconds", type=int, default=0, metavar="S", help="time for all targets together")
    parser.add_argument("--seed", type=int, default=1, help="of the changes to inputs (default 1)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="checks one input, such as a fault found")
    parser.add_argument(
        "--keep", action="store_true", help="makes the corpus anew of the smallest inputs that were found"
    )
    options = parser.parse_args()
    for name in options.target:
        if name not in TARGETS:
            parser.error(f"there is no target {name}: give some of {', '.join(TARGETS)}")
    names = options.target or list(TARGETS)
    if options.input:
        check_of(names[0])(options.input.read_bytes())
        return 0
    if options.keep:
        for name in names:
            keep(name)
        return 0
    if not engine.is_there():
        print("fuzzing needs atheris, which has no wheel for this Python or system: nothing was fuzzed")
        return 0
    if len(names) > 1:
        return fuzz_each(names, options.runs, options.seconds, options.seed)
    found, faults = FOUND / names[0], FOUND / "faults" / names[0]
    for folder in (found, faults, CORPUS / names[0]):
        folder.mkdir(parents=True, exist_ok=True)
    engine.fuzz(names[0], found, faults, runs=options.runs, seconds=options.seconds, seed=options.seed)
    return 0


def fuzz_each(names: list[str], runs: int, seconds: int, seed: int) -> int:
    """Fuzzes targets, each in a process of its own. Returns the first exit code that is not 0."""
    first = 0
    for name in names:
        bounds = (f"--runs={runs}", f"--seconds={max(1, seconds // len(names)) if seconds else 0}")
        command = (sys.executable, "-m", "tests.fuzz", name, *bounds, f"--seed={seed}")
        done = subprocess.run(command, cwd=ROOT, stdout=PIPE, stderr=STDOUT, check=False)
        print(f"{name}: {_summary(done.stdout.decode(errors='replace'), done.returncode)}", flush=True)
        first = first or done.returncode
    return first


def _summary(output: str, code: int) -> str:
    """Returns how many inputs there were; all that was said, where there was a fault."""
    done = [line for line in output.splitlines() if line.startswith("Done ")]
    return f"{done[0].removeprefix('Done ')}, no fault" if done and not code else output


def keep(name: str) -> None:
    """Makes a target's corpus anew, of what it has and what was found."""
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    found = [path for folder in (CORPUS / name, FOUND / name) for path in folder.glob("*")]
    check, package = check_of(name), find_spec("kcast.pubsub")
    assert package is not None and package.origin is not None
    seeds: list[bytes] = import_module("tests.fuzz.seeds").seeds_of(name)
    inputs = [path.read_bytes() for path in found]
    kept = smallest(check, seeds, inputs, Path(package.origin).parent.parent)
    for path in corpus_of(name):
        path.unlink()
    for data in kept:
        (CORPUS / name / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{name}: {len(kept)} inputs of {len(found)}, {sum(map(len, kept)):,} bytes")


if __name__ == "__main__":
    sys.exit(main())
