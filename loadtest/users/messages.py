"""The messages between the processes of a test, over locust's own connection of workers and master.

Each carries `test`, the number of the test, so that a message left over from an earlier test is ignored.
Times are ns after t0, except `t0_ns` and the times of PING and PONG, which are readings of monotonic clocks.
"""

from collections.abc import Iterable
from typing import Any

from kcast.loadtest.users.roster import Window

# From a worker to the coordinator.
CLAIM = "kcast-claim"  # kind, token: a user asks for its ids
READY = "kcast-ready"  # client_id: a user is ready
LEFT = "kcast-left"  # client_id, t_ns: a user has left, and has published all that was due before t_ns
DONE = "kcast-done"  # process, failure: a fixed test has ended here; why its capture is not written, or ""
PING = "kcast-ping"  # sent_ns
SILENCE = "kcast-silence"  # process: no server answers there

# From the coordinator to workers.
IDS = "kcast-ids"  # token, ids: the answer to CLAIM
BEGIN = "kcast-begin"  # t0_ns: a fixed test begins
WINDOWS = "kcast-windows"  # windows: those that were opened or closed, each as three numbers
PONG = "kcast-pong"  # sent_ns, coordinator_ns

TO_COORDINATOR = (CLAIM, READY, LEFT, DONE, PING, SILENCE)
TO_WORKERS = (IDS, BEGIN, WINDOWS, PONG)


def from_windows(windows: Iterable[Window]) -> list[list[int]]:
    """Returns windows as a message carries them."""
    return [list(window) for window in windows]


def to_windows(values: Any) -> list[Window]:
    """Returns the windows that a message carries."""
    return [Window(*value) for value in values]
