"""Runs the attack suite: `python -m tests.attacks [--full] [--json] [--tree COMMIT] [ROW...]`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.attacks.figures import Figure
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.rows import ROWS
from tests.support.trees import HERE, NoHistory, Tree, tree_of

LIGHT_ROWS_AT_ONCE = 4


def main() -> int:
    """Runs the command; returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks",
        description="Attacks real servers, on loopback and in networks of its own, and prints what others "
        "get meanwhile beside its bar. docs/reliability.md explains each row.",
    )
    parser.add_argument("row", nargs="*", help="a row's name, or how names of rows begin")
    parser.add_argument("--full", action="store_true", help="all rows, and for longer: some 20 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    parser.add_argument("--list", action="store_true", help="only the names of rows, and their bars")
    parser.add_argument(
        "--tree", default="", metavar="COMMIT|FOLDER", help="attack the servers of another version"
    )
    given = parser.parse_args()
    for name in given.row:
        if not any(row.name.startswith(name) for row in ROWS):
            parser.error(f"there is no row {name}: --list names them")
    rows = [row for row in ROWS if row.in_short or given.full]
    if given.row:
        rows = [row for row in ROWS if is_meant(row.name, given.row)]
    if given.list:
        for row in rows:
            print(f"{row.name:28} {row.bars}{'' if row.in_short else ' (--full)'}")
        return 0
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="kcast-attacks-")))
        try:
            tree = tree_of(given.tree, scratch) if given.tree else HERE
        except NoHistory as error:
            parser.error(str(error))
        began = time.monotonic()
        outcomes = _run_all(rows, tree, scratch, is_full=given.full, is_json=given.json)
        if not given.json:
            missed = [row.name for row in rows if not outcomes[row.name]]
            print(
                f"{len(rows)} rows in {time.monotonic() - began:.0f} s; "
                + (f"missed: {', '.join(missed)}" if missed else "no bar missed")
            )
        return 0 if all(outcomes.values()) else 1


def is_meant(name: str, given: Sequence[str]) -> bool:
    """Whether a row is meant by what was given: its name, or, where that is no row's, how names begin."""
    names = {row.name for row in ROWS}
    return any(name == each or (each not in names and name.startswith(each)) for each in given)


def _run_all(
    rows: Sequence[Row], tree: Tree, scratch: Path, *, is_full: bool, is_json: bool
) -> dict[str, bool]:
    """Runs first what is light, some rows at a time, then the others one by one. Returns who met all bars."""

    def run(row: Row) -> bool:
        return run_row(row, tree, scratch, is_full=is_full, is_json=is_json)

    light = [row for row in rows if row.is_light]
    heavy = [row for row in rows if not row.is_light]
    with ThreadPoolExecutor(LIGHT_ROWS_AT_ONCE) as pool:
        outcomes = dict(zip((row.name for row in light), pool.map(run, light), strict=True))
    return outcomes | {row.name: run(row) for row in heavy}


def run_row(row: Row, tree: Tree, scratch: Path, *, is_full: bool, is_json: bool) -> bool:
    """Runs a row, and prints its figures as they come, or in the end if others run beside it.

    Returns whether all bars are met.
    """
    figures: list[Figure] = []
    lines: list[str] = []
    reason = fault = ""
    began = time.monotonic()

    def tell(line: str) -> None:
        if row.is_light:
            lines.append(line)
        elif not is_json:
            print(line, flush=True)

    tell(row.name)
    with Lab(tree, is_full=is_full, scratch=scratch) as lab:
        try:
            for figure in row.measure(lab):
                figures.append(figure)
                tell(f"    {figure}")
        except Skipped as error:
            reason = str(error)
        except Exception as error:  # the other rows are to be run all the same
            fault = f"{type(error).__name__}: {error}"
    if is_json:
        seconds = time.monotonic() - began
        print(json.dumps(_as_json(row, figures, seconds) | {"skipped": reason, "fault": fault}), flush=True)
    else:
        if reason or fault:
            tell(f"    skipped: {reason}" if reason else f"    FAILED: {fault}")
        if lines:
            print("\n".join(lines), flush=True)
    return not fault and all(figure.is_met for figure in figures)


def _as_json(row: Row, figures: list[Figure], seconds: float) -> dict[str, object]:
    return {
        "row": row.name,
        "bars": row.bars,
        "seconds": round(seconds, 1),
        "figures": [
            {
                "name": figure.name,
                "value": figure.value if abs(figure.value) != float("inf") else None,
                "unit": figure.unit,
                "side": figure.side.value,
                "bar": figure.bar,
                "is_met": figure.is_met,
            }
            for figure in figures
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
