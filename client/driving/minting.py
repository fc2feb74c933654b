"""Works on stamps (PROTOCOL §5.11) a moment at a time, and measures how long a try takes."""

from time import thread_time

from kcast.client.core import ClientCore
from kcast.pubsub import clock

SLICE_S = 0.001
_TRIES = 250  # between two looks at the clock


def work(core: ClientCore) -> None:
    """Works for a millisecond on the stamp that is being minted. The next flush sends what is found."""
    until = clock.now() + SLICE_S
    begun_s, tries = thread_time(), _TRIES
    while core.work(_TRIES, now := clock.now()) and now < until:
        tries += _TRIES
    # What a found stamp leaves of its last tries counts as tried, which makes little difference.
    spending = core.sessions.spending
    spending.try_s += ((thread_time() - begun_s) / tries - spending.try_s) / 8
