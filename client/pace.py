"""The rate at which people are told what peers can cause: lines on a terminal, warnings in a log. Sans-IO.

Of each kind of line some come at once, and then one a second. The next one that comes says how many of its
kind did not: a server that refuses and sells in turn must not fill anybody's disk.
"""

from collections import Counter

BURST = 20
INTERVAL_S = 1.0  # between two of a kind, after that


class Pace:
    """Says which lines are told. Kinds are for the caller to name: a fixed number of them."""

    def __init__(self) -> None:
        self._withheld: Counter[str] = Counter()
        self._full_at: dict[str, float] = {}  # when a whole burst may come again

    def admit(self, kind: str, now: float) -> int | None:
        """Returns the number of lines of this kind that were withheld since the last one; None where this one
        is to be withheld."""
        full_at = max(now, self._full_at.get(kind, now))
        if full_at + INTERVAL_S > now + BURST * INTERVAL_S:
            self._withheld[kind] += 1
            return None
        self._full_at[kind] = full_at + INTERVAL_S
        return self._withheld.pop(kind, 0)

    def withheld(self, kind: str) -> int:
        """Returns the number of lines of this kind that were withheld since the last one."""
        return self._withheld[kind]


def and_more(count: int) -> str:
    """Returns what to add to a line, where some of its kind were withheld."""
    return f" (and {count} more like this)" if count else ""
