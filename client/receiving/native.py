"""Native code that takes copies, if it was built when kcast was installed.

Building takes a compiler. Where there was none, or what was built does not fit this Python, clients take all
copies in Python, which does the same more slowly (`kcast.client.receiving.deliveries`). So they do where the
environment has `KCAST_NATIVE=no`.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from kcast.client.events import Delivery
from kcast.client.messages.guard_and_writer import Told

Numbers = dict[tuple[bytes, str] | tuple[bytes, str, bytes], list[int]]
"""The numbers that were delivered of each topic and publisher, and of what proves them where that is asked
for, in the order in which they came."""


class Take(Protocol):
    """A function that takes usual copies.

    It begins at a place in `data`, and stops at the first line that is not a usual one: a message in an
    envelope without attributes, in which nothing is escaped, on a topic that counts.

    `name_of` returns the name of a topic (wire form) that counts, else None. `seen` has the lines that are
    remembered, of each the time of its last copy, the oldest first: `count_max` at most, which take
    `size_bytes` of at most `size_bytes_max`. `make` makes a delivery of its fields. It adds to `told` and
    `numbers`.

    Returns where it has stopped; the new `size_bytes`; and the numbers of copies, duplicates and deliveries,
    those of kcast's own topics not counted.
    """

    def __call__(
        self,
        data: bytes,
        at: int,
        name_of: Callable[[bytes], bytes | None],
        seen: OrderedDict[bytes, Any],
        count_max: int,
        size_bytes_max: int,
        size_bytes: int,
        now: float,
        received_at_s: float,
        server: str,
        make: Callable[[tuple[object, ...]], Delivery],
        told: list[Told],
        numbers: Numbers,
        /,
    ) -> tuple[int, int, int, int, int]:
        """See above."""


def is_allowed() -> bool:
    """Whether native code may be used, as the environment has it."""
    return os.environ.get("KCAST_NATIVE") != "no"


try:
    import kcast.client.receiving._copies as _copies  # else what is missing is not told from what is wrong
except ImportError as error:
    TAKE: Take | None = None
    """The native step; None if there is none."""
    is_missing = isinstance(error, ModuleNotFoundError)
    MISSING = "native code was not built, for want of a C compiler" if is_missing else str(error)
    """Why there is none."""
else:
    TAKE, MISSING = _copies.take, ""
