"""How a test goes, told to who started it: one JSON object a line, by a pipe of which it holds the other end.

The pipe is the leash, too. When its other end closes, however that came, nobody is left to whom the test
matters, and it ends: so no process outlives its owner. Only the leading process tells; all watch.
"""

import errno
import json
import os
import select
from typing import Literal, TypedDict

from gevent import monkey

Phase = Literal["starting", "waiting", "running", "settling", "done", "failed"]

_LINE_BYTES_MAX = select.PIPE_BUF  # so much is written whole, or not at all


class Progress(TypedDict):
    """What is told when the phase changes, and each second. Counts are since the beginning of the test.

    Phases: users are "starting", "waiting" for each other and then t0, the load is "running", after it
    deadlines run out ("settling"), and all is written ("done"). Or it has "failed", and `error` says why.
    """

    phase: Phase
    t0_ns: int  # of the monotonic clock; 0 as long as it is not known
    t_s: float  # after t0; below 0 before
    users: int
    ready: int
    published: int
    delivered: int
    missed: int
    late: int  # of the missed, those that came after the deadline
    latency_p50_ms: float
    latency_p99_ms: float
    publish_delay_p99_ms: float
    copies: int
    overflows: int  # datagrams that the kernel dropped because a client did not read them in time
    slow_consumer: int
    send_errors: int
    lag_max_ms: float  # the greatest of all processes, this second
    rows_waiting: int
    rows_lost: int
    error: str


class Leash:
    """The writing end of the pipe, a descriptor of this process. Nothing here waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        # The system's own, since gevent's asks for what is waited for only, and not for errors.
        self._poll = monkey.get_original("select", "poll")()
        self._poll.register(descriptor, 0)

    @property
    def is_cut(self) -> bool:
        """Whether nobody can read any more."""
        return bool(self._poll.poll(0))

    def tell(self, progress: Progress) -> None:
        """Writes a line. One that does not fit is left out: who does not read now gets the next."""
        line = json.dumps(progress).encode() + b"\n"
        if len(line) > _LINE_BYTES_MAX:
            line = json.dumps({**progress, "error": progress["error"][:200]}).encode() + b"\n"
        try:
            os.write(self._descriptor, line)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE):
                raise
