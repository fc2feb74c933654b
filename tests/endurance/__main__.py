"""Runs for hours and tells whether memory stays flat: `python -m tests.endurance --virtual-hours 8`."""

import argparse
import sys

from tests.endurance import virtual
from tests.endurance.flat import growth, is_flat


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    parser.add_argument(
        "--virtual-hours", type=float, default=8.0, metavar="H", help="in simulation (default 8)"
    )
    options = parser.parse_args()
    samples = virtual.run(options.virtual_hours, lambda text: print(text, flush=True))
    print(f"last quarter by the second: {growth(samples):.3f}; flat: {is_flat(samples)}")
    return 0 if is_flat(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
