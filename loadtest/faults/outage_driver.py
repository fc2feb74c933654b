"""Takes real servers down and brings them up again by a plan, in a thread of its own.

Killing a server takes no time, and starting it again some tenths of a second of a core: so reality differs
from the plan. What is recorded is when a server really was down.

Servers that should come up are brought up before others are taken down: so never more servers are down than
planned, and a rolling restart takes no server down before the last one is back. The price is that servers go
down late, by the time that others took to start. Where that is long compared with an epoch, the plan cannot
be kept; `late_ns` and `missed` show it.
"""

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from threading import Event, Lock, Thread
from types import TracebackType
from typing import NamedTuple, Self

from kcast.loadtest.clusters.servers import Servers
from kcast.loadtest.faults.plan import DownTimes, Outage
from kcast.loadtest.scenario import By


class RealOutage(NamedTuple):
    """A server was down, at most from `t_down_ns` to `t_up_ns` of CLOCK_MONOTONIC. `epoch` is the plan's.

    A server that stayed down for several epochs has an entry for each, divided where the plan divides epochs.
    """

    server: int
    epoch: int
    t_down_ns: int
    t_up_ns: int
    kind: By


class OutageDriver:
    """Carries out planned `outages`, whose times count from `t0_ns` of CLOCK_MONOTONIC; use it with `with`.

    `kind` is how: "kill" and restart, "stall" and resume, or "isolation". At the end of the `with` all
    servers run again, unless it ends by an exception: then the servers are about to be stopped anyway. `take`
    returns what has happened.

    Servers are for one thread at a time: it holds `lock` while it uses them, and so must others. If it fails
    (a server did not start again), the rest of the plan is not carried out, and `failure` says why; the end
    of the `with` raises it.
    """

    def __init__(
        self,
        servers: Servers,
        outages: Iterable[Outage],
        kind: By,
        t0_ns: int,
        *,
        lock: "Lock | None" = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.lock = lock or Lock()
        self.failure: Exception | None = None
        self.late_ns = 0
        """The longest time by which servers were behind the plan."""
        self._planned: defaultdict[int, list[Outage]] = defaultdict(list)
        for outage in sorted(outages, key=_from_ns):
            self._planned[outage.server].append(outage)
        self._down_times = DownTimes(chain(*self._planned.values()), t0_ns)
        self._t0_ns = t0_ns
        self._kind = kind
        self._take_down, self._bring_up = {
            "kill": (servers.kill, servers.restart),
            "stall": (servers.stall, servers.resume),
            "isolation": (servers.isolate, servers.rejoin),
        }[kind]
        self._clock = clock
        self._stopping = Event()
        self._wait = wait or self._stopping.wait
        self._down_since_ns: dict[int, int] = {}
        self._happened: deque[RealOutage] = deque()
        self._done: set[Outage] = set()
        self._thread = Thread(target=self._run, name="outage driver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(bring_up=kind is None)
        if kind is None and self.failure is not None:
            raise self.failure

    def stop(self, *, bring_up: bool = True) -> None:
        """Stops carrying out the plan, and brings up what is down; may be called again."""
        self._stopping.set()
        self._thread.join()
        down = set(self._down_since_ns)
        if bring_up:
            with self.lock:
                self._keep_failure(lambda: self._end_outages(down))
        else:
            self._record(down, self._clock())

    @property
    def is_done(self) -> bool:
        """Whether nothing more will be done: the plan is finished, was stopped, or has failed."""
        return not self._thread.is_alive()

    def take(self) -> list[RealOutage]:
        """Returns the outages that have ended since the last call."""
        return [self._happened.popleft() for _ in range(len(self._happened))]

    def missed(self) -> list[Outage]:
        """Returns planned outages that should be over but did not take place."""
        now_ns = self._clock() - self._t0_ns
        down = frozenset(self._down_since_ns)
        return [
            outage
            for planned in self._planned.values()
            for outage in planned
            if outage.to_ns <= now_ns and outage not in self._done and outage.server not in down
        ]

    # --- The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        self._keep_failure(self._follow)

    def _keep_failure(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # kept for the owner, who reads it or ends the `with`
            self.failure = self.failure or error

    def _follow(self) -> None:
        due_ns = self._down_times.next_change_ns(self._t0_ns - 1)
        while due_ns is not None and not self._stopping.is_set():
            now_ns = self._clock()
            if now_ns < due_ns:
                self._wait((due_ns - now_ns) / 1e9)
                continue
            with self.lock:
                now_ns = self._clock()
                wanted = self._down_times.down_at(now_ns)
                self._end_outages(set(self._down_since_ns) - wanted)
                # What has become due meanwhile waits for the next round, which brings others up first.
                still = wanted & self._down_times.down_at(self._clock())
                self._begin_outages(still - set(self._down_since_ns))
            self.late_ns = max(self.late_ns, self._clock() - due_ns)
            due_ns = self._down_times.next_change_ns(now_ns)

    def _end_outages(self, indexes: set[int]) -> None:
        if indexes:
            self._bring_up(*sorted(indexes))
            self._record(indexes, self._clock())

    def _begin_outages(self, indexes: frozenset[int]) -> None:
        if indexes:
            self._down_since_ns |= dict.fromkeys(indexes, self._clock())
            self._take_down(*sorted(indexes))

    def _record(self, indexes: set[int], t_up_ns: int) -> None:
        """Records that servers are up again, by the epochs for which they were down."""
        for server in sorted(indexes):
            t_down_ns = self._down_since_ns.pop(server)
            from_ns, to_ns = t_down_ns - self._t0_ns, t_up_ns - self._t0_ns
            planned = self._planned[server]
            first = bisect_right(planned, from_ns, key=_from_ns) - 1
            epochs = planned[first : max(first + 1, bisect_left(planned, to_ns, key=_from_ns))]
            ends_ns = [*(self._t0_ns + outage.from_ns for outage in epochs[1:]), t_up_ns]
            for outage, end_ns in zip(epochs, ends_ns, strict=True):
                self._happened.append(RealOutage(server, outage.epoch, t_down_ns, end_ns, self._kind))
                self._done.add(outage)
                t_down_ns = end_ns


def _from_ns(outage: Outage) -> int:
    return outage.from_ns
