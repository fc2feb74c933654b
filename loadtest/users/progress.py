"""How a test goes, reported to the process that started it: one JSON object a line, through a pipe.

The pipe also ends the test. When its reading end closes, for whatever reason, the starter is gone and the
test ends: so no locust process outlives the one that started it. Only the coordinator writes; all processes
watch.
"""

import errno
import json
import os
import select
from typing import Literal, TypedDict

from gevent import monkey

Phase = Literal["starting", "waiting", "running", "settling", "done", "failed"]

_LINE_BYTES_MAX = select.PIPE_BUF  # a write of up to this size is atomic


class Progress(TypedDict):
    """Written when the phase changes, and each second. Counts are since the beginning of the test.

    Phases: "starting", users are being started; "waiting", they wait for each other and then for t0;
    "running", messages are published; "settling", the last deadlines pass; "done", all is written. Or it has
    "failed", and `error` says why.
    """

    phase: Phase
    t0_ns: int  # of the monotonic clock; 0 until it is known
    t_s: float  # since t0; negative before
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
    lag_max_ms: float  # the largest of all processes, this second
    rows_waiting: int
    rows_lost: int
    error: str


class ProgressPipe:
    """The writing end of the pipe, a descriptor of this process. Nothing here waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        # The system's poll: gevent's reports only the events that were asked for, and no errors.
        self._poll = monkey.get_original("select", "poll")()
        self._poll.register(descriptor, 0)

    @property
    def is_closed(self) -> bool:
        """True if the reading end is closed."""
        return bool(self._poll.poll(0))

    def write(self, progress: Progress) -> None:
        """Writes a line. Skips it if the pipe is full: a slow reader gets a later one."""
        line = json.dumps(progress).encode() + b"\n"
        if len(line) > _LINE_BYTES_MAX:
            line = json.dumps({**progress, "error": progress["error"][:200]}).encode() + b"\n"
        try:
            os.write(self._descriptor, line)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE):
                raise
