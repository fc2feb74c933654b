"""Tells whether memory stays flat: `python -m tests.endurance --virtual-hours 8`, `... --real-minutes 20`."""

import argparse
import sys

from tests.endurance import real, virtual
from tests.endurance.flat import growth, is_flat


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--virtual-hours", type=float, default=8.0, metavar="H", help="in simulation (default 8)"
    )
    chosen.add_argument(
        "--real-minutes", type=float, metavar="M", help="with a real server, real clients and strangers"
    )
    options = parser.parse_args()
    if options.real_minutes is not None:
        return _real(options.real_minutes)
    samples = virtual.run(options.virtual_hours, _tell)
    _tell(f"last quarter by the second: {growth(samples):.3f}; flat: {is_flat(samples)}")
    return 0 if is_flat(samples) else 1


def _real(minutes: float) -> int:
    outcome = real.run(minutes, _tell)
    for name, samples in ("server", outcome.server_bytes), ("clients", outcome.users_bytes):
        if len(samples) >= 8:
            _tell(f"{name}: last quarter by the second: {growth(samples):.3f}; flat: {is_flat(samples)}")
    faults = list(outcome.faults())
    for fault in faults:
        _tell(fault)
    _tell(f"{outcome.came:,} of {outcome.sent:,} messages came; faults: {len(faults)}")
    return 1 if faults else 0


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
