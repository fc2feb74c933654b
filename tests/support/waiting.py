"""Waits for what happens in other threads and processes."""

import time
from collections.abc import Callable

WAIT_S = 60.0


def wait_until(holds: Callable[[], object], what: str = "a condition", timeout_s: float = WAIT_S) -> None:
    """Returns when it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.005)
