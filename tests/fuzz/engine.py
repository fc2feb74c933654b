"""What looks for inputs: atheris, which is libFuzzer for Python. Only this module knows it."""

import hashlib
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.targets import CORPUS, TARGETS, Check, check_of

TELL_EVERY = 10_000  # inputs
INPUT_S_MAX = 30  # an input that takes longer is a fault; of wall-clock time, and the machine may be busy


def is_there() -> bool:
    """Whether atheris is installed."""
    return find_spec("atheris") is not None


def fuzz(name: str, found: Path, faults: Path, *, runs: int, seconds: int, seed: int) -> None:
    """Tries inputs until a number of them, or a time in seconds, is over; 0 is no bound.

    It begins with the seeds, the corpus and what is in the folder `found`. There goes what reaches something
    new; an input that breaks a promise goes into `faults`. Ends the process: with 0 if there was no fault.
    """
    import atheris

    target = TARGETS[name]
    with atheris.import_hook.HookManager(
        {"kcast"}, set(), enable_loader_override=False, trace_dataflow=target.compares
    ):
        check = _telling(name, check_of(name))
        seeds = import_module("tests.fuzz.seeds").seeds_of(name)
    for data in seeds:
        (found / hashlib.sha1(data).hexdigest()).write_bytes(data)  # libFuzzer's names
    arguments = [
        sys.argv[0],
        str(found),
        str(CORPUS / name),
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


def _telling(name: str, check: Check) -> Check:
    """Returns a check that now and then tells how many datagrams there were, where inputs are scripts."""
    datagrams_in = getattr(import_module(f"tests.fuzz.{TARGETS[name].module}"), "datagrams_in", None)
    if datagrams_in is None:
        return check
    inputs = datagrams = 0

    def told(data: bytes) -> None:
        nonlocal inputs, datagrams
        inputs, datagrams = inputs + 1, datagrams + datagrams_in(data)
        if inputs % TELL_EVERY == 0:
            print(f"{inputs:,} scripts with {datagrams:,} datagrams", file=sys.stderr, flush=True)
        check(data)

    return told
