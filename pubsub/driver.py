"""Runs a server core on an event loop: a socket for each address family, timers, and signals that end it.

In each turn it takes what has arrived, lets the core do what is due, and sends what the core returns. What
arrives in one turn is forwarded in one flush, so the busier the server, the fewer system calls a copy costs.
But what takes the core long to read is taken bit by bit, so that nobody's datagrams wait long in the socket.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Protocol

from kcast.pubsub import clock
from kcast.pubsub.endpoint import Endpoint, Transmit
from kcast.pubsub.flood import OPENING_STEP_S, FloodGuard
from kcast.pubsub.inlet import BURSTS_MAX
from kcast.pubsub.udp import UdpPort

if TYPE_CHECKING:
    import asyncio

# asyncio and uvloop are imported when the loop starts. They take longer than all other imports of a server,
# and `--help`, a usage error or a taken port do not need them.

BURSTS_OF_PART = 8  # to receive, between looks at the clock
RECEIVING_S_MAX = 0.005  # in one go
SLICES_MAX = 32  # in a turn, so that signals, timers and metrics have their part
_FILES_OF_LOOP = 9  # uvloop's; asyncio's has fewer
_TIMER_SLACK_S = 0.001  # loops round to milliseconds, and a timer that fires too early must be set again


class Core(Endpoint, Protocol):
    """A server core as this driver sees it. What arrives makes nothing due at once but a flush."""

    def start_drain(self, now: float) -> None:
        """Begins to end: tells the clients, and takes no new leases."""

    def is_drained(self, now: float) -> bool:
        """Whether draining is done. `next_timeout` tells when to look."""


class Ending(Enum):
    """Why a server ended."""

    SIGNAL = auto()
    DRAINED = auto()
    ORPHANED = auto()


def draining_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that begin draining: SIGTERM, and SIGHUP unless it is ignored, as under nohup."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)


def _nothing() -> None:
    pass


def run(
    core: Core,
    ports: Sequence[UdpPort],
    *,
    on_ready: Callable[[], None] = _nothing,
    on_drain: Callable[[], None] = _nothing,
    on_suspension: Callable[[float], Callable[[], None]] = lambda suspended_s: _nothing,
    report: Callable[[], None] = _nothing,
    report_interval_s: float = 5.0,
    guard: FloodGuard | None = None,
    lifeline: int | None = None,
) -> Ending:
    """Serves until a signal ends it; returns why it ended.

    SIGINT ends it at once. SIGTERM begins draining, as SIGHUP does unless it is ignored; a second signal ends
    it at once. `on_ready` is called when datagrams are taken, `on_drain` when draining begins (unless it is
    done at once), and `report` `report_interval_s` after something has arrived. `guard` looks when much
    arrives. After the machine was suspended, `on_suspension` is called with the number of seconds, and what
    that returns once all is done that fell due meanwhile. `lifeline` is a descriptor that becomes readable
    when the process that started this one is gone; that ends it too.

    Call it in the main thread, which alone can handle signals. Give at most one port for each address family;
    they stay open.
    """
    import asyncio

    run_loop = asyncio.run
    if sys.platform == "linux":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            run_loop = uvloop.run

    async def serve() -> Ending:
        loop = asyncio.get_running_loop()
        driver = Driver(
            core,
            ports,
            loop,
            on_drain=on_drain,
            on_suspension=on_suspension,
            report=report,
            report_interval_s=report_interval_s,
            guard=guard,
        )
        loop.add_signal_handler(signal.SIGINT, driver.end, Ending.SIGNAL)
        for number in draining_signals():
            loop.add_signal_handler(number, driver.drain)
        driver.start()
        if lifeline is not None:
            loop.add_reader(lifeline, driver.end, Ending.ORPHANED)
        try:
            on_ready()
            return await driver.ending
        finally:
            driver.stop()
            if lifeline is not None:
                loop.remove_reader(lifeline)

    return run_loop(serve())


def require_files(port: UdpPort) -> None:
    """Raises OSError where a loop cannot open its files, since it would fail in the midst of its start."""
    spare: list[int] = []
    try:
        while len(spare) < _FILES_OF_LOOP:
            spare.append(os.dup(port.fileno()))
    finally:
        for descriptor in spare:
            os.close(descriptor)


class Driver:
    """Runs the turns of one core on an event loop, from `start` to `stop`. A loop may run several."""

    def __init__(
        self,
        core: Core,
        ports: Sequence[UdpPort],
        loop: "asyncio.AbstractEventLoop",
        *,
        on_drain: Callable[[], None] = _nothing,
        on_suspension: Callable[[float], Callable[[], None]] = lambda suspended_s: _nothing,
        report: Callable[[], None] = _nothing,
        report_interval_s: float = 5.0,
        guard: FloodGuard | None = None,
    ) -> None:
        self.ending: asyncio.Future[Ending] = loop.create_future()
        self._core = core
        self._ports = ports
        self._families = [(port, ":" in port.address[0]) for port in ports]
        self._loop = loop
        self._on_drain = on_drain
        self._on_suspension = on_suspension
        self._suspension_watch = clock.SuspensionWatch()
        self._tell_resumed: Callable[[], None] | None = None
        self._report = report
        self._report_interval_s = report_interval_s
        self._report_timer: asyncio.TimerHandle | None = None
        self._guard = guard
        self._guard_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._due: float | None = None  # when the core is to be called again
        self._is_draining = False

    def start(self) -> None:
        """Begins to take datagrams, or resumes."""
        for port in self._ports:
            self._loop.add_reader(port.fileno(), self._on_readable, port)
        self._finish_turn(clock.now())

    def stop(self) -> None:
        """Takes nothing more. What arrives waits in the sockets."""
        for port in self._ports:
            self._loop.remove_reader(port.fileno())
        for timer in (self._timer, self._report_timer, self._guard_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._report_timer = self._guard_timer = None

    def _read_clock(self) -> float:
        """Returns the time, at the beginning of each turn."""
        now = clock.now()
        suspended_s = self._suspension_watch.look(now)
        if suspended_s:
            self._tell_resumed = self._on_suspension(suspended_s)
        return now

    def _on_readable(self, port: UdpPort) -> None:
        # If more is waiting than is taken, the next poll finds the descriptor readable.
        self._finish_turn(self._take(port))
        if self._guard is not None and self._guard.is_active:
            self._look(self._guard)
        if self._report_timer is None:
            # Set only when something arrives, so that an idle server does nothing.
            self._report_timer = self._loop.call_later(self._report_interval_s, self._on_report_timer)

    def _take(self, port: UdpPort) -> float:
        """Takes what has arrived, about 32 bursts or what some milliseconds are enough for; returns the time.
        Lets the guard look if there may be more."""
        receive, guard = self._core.receive, self._guard
        until = inf
        for _ in range(BURSTS_MAX // BURSTS_OF_PART):
            bursts = port.receive(BURSTS_OF_PART)
            now = self._read_clock()
            for burst in bursts:
                receive(burst, now)
            if guard is not None:
                guard.saw(bursts, now)
            if not port.has_more:
                return now
            until = min(until, now + RECEIVING_S_MAX)
            if clock.now() >= until:
                break
        if guard is not None:
            self._look(guard)
        return now

    def _on_report_timer(self) -> None:
        self._report_timer = None
        self._report()

    def _look(self, guard: FloodGuard) -> None:
        guard.look(self._read_clock())
        if guard.is_learning and self._guard_timer is not None:
            self._guard_timer.cancel()
            self._guard_timer = None
        if guard.is_active and self._guard_timer is None:
            # A filter that is set may keep out all that would wake this loop.
            delay_s = 0.0 if guard.is_learning else OPENING_STEP_S
            self._guard_timer = self._loop.call_later(delay_s, self._on_guard_timer, guard)

    def _on_guard_timer(self, guard: FloodGuard) -> None:
        self._guard_timer = None
        self._look(guard)

    def _on_timer(self) -> None:
        self._timer = None
        self._finish_turn(self._read_clock())

    def _finish_turn(self, now: float) -> None:
        self._go_on(now)
        for _ in range(SLICES_MAX):
            if self._due is None or self._due > now:
                break
            # The rest of a flush, or of what has expired, waits for what has arrived meanwhile.
            for port in self._ports:
                now = self._take(port)
            self._go_on(now)
        due = self._due
        if self._tell_resumed is not None and (due is None or due > now):
            tell, self._tell_resumed = self._tell_resumed, None
            tell()  # all that ended meanwhile has been dealt with
        if self._is_draining and self._core.is_drained(now):
            self.end(Ending.DRAINED)
            return
        # A timer that fires too early costs one look. Moving it at every renewal would cost every turn.
        if due is not None and (self._timer is None or due < self._timer_due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            delay_s = min(due - now + _TIMER_SLACK_S, clock.LOOK_S) if due > now else 0.0
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _go_on(self, now: float) -> None:
        """Lets the core do what is due, and sends a slice."""
        if self._due is not None and self._due <= now:
            self._core.handle_timeout(now)
        self._send(self._core.flush(now))
        self._due = self._core.next_timeout()

    def _send(self, transmits: list[Transmit]) -> None:
        if len(self._ports) == 1:
            self._ports[0].send(transmits)
        elif transmits:
            for port, is_ipv6 in self._families:
                port.send(_of_family(transmits, is_ipv6))

    # --- The end -------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begins draining; called again, ends at once."""
        if self._is_draining:
            self.end(Ending.SIGNAL)
            return
        self._is_draining = True
        now = clock.now()
        self._core.start_drain(now)
        self._finish_turn(now)
        if not self.ending.done():
            self._on_drain()

    def end(self, ending: Ending) -> None:
        """Sets `ending`, unless it is set."""
        if not self.ending.done():
            self.ending.set_result(ending)


def _of_family(transmits: list[Transmit], is_ipv6: bool) -> list[Transmit]:
    """Returns what goes to destinations of one address family."""
    chosen = []
    for transmit in transmits:
        destinations = transmit.destinations
        if len(destinations) == 1:
            if (":" in destinations[0][0]) is is_ipv6:
                chosen.append(transmit)
            continue
        fitting = [address for address in destinations if (":" in address[0]) is is_ipv6]
        if fitting:
            chosen.append(transmit._replace(destinations=fitting))
    return chosen
