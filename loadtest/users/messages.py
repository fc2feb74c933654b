"""The messages between the processes of a test, over locust's own connection of workers and master.

Each carries `test`, the number of the test, so that one left over from an earlier test is not taken for this
one's. Times are ns after t0, but for `t0_ns` and those of PING and PONG, which are of monotonic clocks.
"""

from collections.abc import Iterable
from typing import Any

from kcast.loadtest.users.roster import Window

# From a process with users to the leading one.
CLAIM = "kcast-claim"  # kind, token: a user wants its numbers
READY = "kcast-ready"  # client_id: a user is prepared
LEFT = "kcast-left"  # client_id, t_ns: a user is gone, and has done all that was due before that time
DONE = "kcast-done"  # failure: a fixed test is over here, and its capture written; why not, if it is not
PING = "kcast-ping"  # sent_ns

# From the leading process to those with users.
PLACE = "kcast-place"  # token, place: its numbers
BEGIN = "kcast-begin"  # t0_ns: a fixed test begins
WINDOWS = "kcast-windows"  # windows: those that were opened or closed, each as three numbers
PONG = "kcast-pong"  # sent_ns, there_ns

TO_LEADER = (CLAIM, READY, LEFT, DONE, PING)
TO_CREW = (PLACE, BEGIN, WINDOWS, PONG)


def from_windows(windows: Iterable[Window]) -> list[list[int]]:
    """Windows as they travel."""
    return [list(window) for window in windows]


def to_windows(words: Any) -> list[Window]:
    """The windows that such a message tells of."""
    return [Window(*word) for word in words]
