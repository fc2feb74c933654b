"""Which inputs belong into a corpus: beside the seeds, the smallest that reach all that is reached."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.targets import Check

Step = tuple[CodeType, int, int]
"""One line after another, of the same code."""


def smallest(check: Check, seeds: Iterable[bytes], inputs: Iterable[bytes], product: Path) -> list[bytes]:
    """Returns the inputs that reach a step of the product's code which no seed and no smaller one reaches.

    `product` is the folder that its packages are imported from.
    """
    kept: list[bytes] = []
    reached = set[Step]().union(*(_steps(check, seed, f"{product}/") for seed in seeds))
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        steps = _steps(check, data, f"{product}/")
        if not steps <= reached:
            reached |= steps
            kept.append(data)
    return kept


def _steps(check: Check, data: bytes, prefix: str) -> set[Step]:
    steps: set[Step] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(prefix):
            return None
        code, last = frame.f_code, 0

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                steps.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        check(data)
    finally:
        sys.settrace(before)
    return steps
