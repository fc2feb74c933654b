"""What looks for inputs: atheris, which is libFuzzer for Python. Only this module knows it."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import TARGETS

INPUT_S_MAX = 5  # an input that takes longer is a fault


def is_there() -> bool:
    """Whether atheris is installed."""
    return find_spec("atheris") is not None


def fuzz(name: str, folders: Sequence[Path], faults: Path, *, runs: int, seconds: int, seed: int) -> None:
    """Tries inputs until a number of them, or a time in seconds, is over; 0 is no bound.

    Inputs that reach something new go into the first of the folders; one that breaks a promise goes into
    `faults`. Ends the process: with 0 if there was no fault.
    """
    import atheris

    target = TARGETS[name]
    with atheris.instrument_imports(include=["kcast"], enable_loader_override=False):
        check = import_module(f"tests.fuzz.{target.module}").check
    arguments = [
        sys.argv[0],
        *map(str, folders),
        f"-artifact_prefix={faults}/",
        f"-max_len={target.bytes_max}",
        f"-timeout={INPUT_S_MAX}",
        f"-seed={seed}",
        "-print_final_stats=1",
        "-verbosity=1",
        *([f"-runs={runs}"] if runs else []),
        *([f"-max_total_time={seconds}"] if seconds else []),
    ]
    atheris.Setup(arguments, check)
    atheris.Fuzz()
