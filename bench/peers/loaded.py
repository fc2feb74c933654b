"""A server under the load of one workload: started, spoken to, and started again when it has given up."""

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from bench.peers import trial
from bench.peers.kinds import Kind
from bench.peers.machine import family_of
from bench.peers.pacing import Schedule
from bench.peers.processes import Running
from bench.peers.search import highest_rate
from bench.peers.session import Poller, Session
from bench.peers.trial import Trial
from bench.peers.workloads import Workload

WARM_UP_S = 0.3
WARM_UP_COPIES_PER_S = 20_000
SUSTAINED = 0.9999
TRIES = 2
SATURATING_COPIES_PER_S = 30e6  # more than any server here forwards
QUIET_PER_S = 200
QUIET_WORKLOAD = Workload(topic_count=1, subscriber_count=1, fan_out=1, prefix=b"q")


class LoadedServer:
    """A server and its sessions, for one workload. Use it with `with`: its end ends the server.

    With `has_quiet_topic` there is one more topic, with one subscriber and little traffic, whose latency is
    measured beside the load.
    """

    def __init__(
        self,
        kind: Kind,
        workload: Workload,
        cores: Sequence[int],
        poller: Poller,
        tick_s: float,
        *,
        has_quiet_topic: bool = False,
        grace_s: float = trial.GRACE_S,
    ) -> None:
        self.name = kind.name
        self._kind = kind
        self._workload = workload
        self._cores = cores
        self._poller = poller
        self._tick_s = tick_s
        self._grace_s = grace_s
        self._random = Random(repr(workload))
        self._stack = ExitStack()
        self._has_quiet_topic = has_quiet_topic
        self._sessions: Sequence[Session] = ()
        self._quiet: Session | None = None
        self._process: Running | None = None
        self._process_ids: Sequence[int] = ()
        self.complaints: list[str] = []  # why it was started again

    def __enter__(self) -> "LoadedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the server; it can be started again."""
        self._sessions = ()
        self._quiet = None
        self._stack.close()

    def start(self) -> None:
        """Starts the server and opens its sessions, if it has none. Raises Failed."""
        if self._sessions:
            return
        with ExitStack() as stack:
            process = stack.enter_context(self._kind.running(self._workload, self._cores))
            quiet: Sequence[Session] = ()
            if self._has_quiet_topic:
                quiet = self._kind.open(QUIET_WORKLOAD, process, stack, self._poller.aside or self._poller)
            self._sessions = self._kind.open(self._workload, process, stack, self._poller)
            self._quiet = quiet[0] if quiet else None
            self._process = process
            self._process_ids = family_of(process.process.pid)
            self._stack = stack.pop_all()
        self._run(WARM_UP_COPIES_PER_S / self._workload.fan_out, WARM_UP_S)

    def trial(self, rate: float, seconds: float) -> Trial:
        """Loads it with `rate` messages a second. Raises Failed where it cannot be started, or ends."""
        self.start()
        found = self._run(rate, seconds)
        if broken := next((session.broken for session in self._sessions if session.broken), ""):
            self.complaints.append(broken)
            self.end()
        return found

    def highest_rate(self, seconds: float, guess: float | None = None) -> float:
        """Looks for the highest rate, in messages a second, at which 99.99 % of the copies come in time.

        It begins with the guess, or with what comes through when there is far too much. A rate at which too
        few come has a second try, since a machine stands still for a moment now and then.
        """

        def sustains(rate: float) -> bool:
            return any(self.trial(rate, seconds).share_delivered >= SUSTAINED for _ in range(TRIES))

        if not guess:
            saturated = self.trial(SATURATING_COPIES_PER_S / self._workload.fan_out, seconds)
            guess = max(1.0, saturated.copies_per_s / self._workload.fan_out)
        return highest_rate(sustains, guess)

    def _run(self, rate: float, seconds: float) -> Trial:
        is_single = self._workload.single_publishers > 0
        tick_s = min(self._tick_s, 1 / rate) if is_single else self._tick_s
        schedule = Schedule(rate / len(self._sessions), seconds, tick_s)
        quiet = Schedule(QUIET_PER_S, seconds, tick_s)
        found = trial.run(
            [(session, schedule, self._workload.fan_out) for session in self._sessions],
            self._poller,
            self._process_ids,
            self._random,
            quiet=None if self._quiet is None else (self._quiet, quiet),
            is_spinning=is_single,
            grace_s=self._grace_s,
        )
        if self._process is not None:
            self._process.require_alive()
        return found
