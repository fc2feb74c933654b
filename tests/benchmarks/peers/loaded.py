"""A server under the load of one workload: started, spoken to, and started again when it has given up."""

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from tests.benchmarks.peers import servers, trial
from tests.benchmarks.peers.machine import family_of
from tests.benchmarks.peers.pacing import Schedule
from tests.benchmarks.peers.session import Poller, Session
from tests.benchmarks.peers.trial import Trial
from tests.benchmarks.peers.workloads import Workload

WARM_UP_S = 0.3
WARM_UP_COPIES_PER_S = 20_000
SUSTAINED = 0.9999
SATURATING_COPIES_PER_S = 30e6  # more than any server here forwards


class LoadedServer:
    """A server and its session, for one workload. Use it with `with`: its end ends the server."""

    def __init__(
        self, kind: servers.Kind, workload: Workload, cores: Sequence[int], poller: Poller, tick_s: float
    ) -> None:
        self.kind = kind
        self.name = kind.name
        self._workload = workload
        self._cores = cores
        self._poller = poller
        self._tick_s = tick_s
        self._random = Random(workload.name)
        self._stack = ExitStack()
        self._session: Session | None = None
        self._process_ids: list[int] = []
        self.complaints: list[str] = []  # why it was started again

    def __enter__(self) -> "LoadedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def trial(self, rate: float, seconds: float) -> Trial:
        """Loads it at so many messages a second. Raises Failed where it cannot be started."""
        session = self._ready()
        found = self._run(session, rate, seconds)
        if session.broken:
            self.complaints.append(session.broken)
            self._stack.close()
            self._session = None
        return found

    def sustains(self, rate: float, seconds: float) -> bool:
        """Whether 99.99 % of the copies come in time at this rate."""
        return self.trial(rate, seconds).share_delivered >= SUSTAINED

    def _ready(self) -> Session:
        if self._session is None:
            running = self._stack.enter_context(servers.running(self.kind, self._cores))
            session = self.kind.open(self._workload, running, self._stack, self._poller)
            self._process_ids = family_of(running.process_id)
            self._run(session, WARM_UP_COPIES_PER_S / self._workload.fan_out, WARM_UP_S)
            self._session = session
        return self._session

    def _run(self, session: Session, rate: float, seconds: float) -> Trial:
        schedule = Schedule(rate, seconds, self._tick_s)
        return trial.run(
            session, self._poller, self._process_ids, schedule, self._workload.fan_out, self._random
        )
