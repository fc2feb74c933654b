"""pubsub/driver.py: turns, timers, several sockets, and the ways to end."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kcast.pubsub import clock
from kcast.pubsub.driver import BURSTS_OF_PART, RECEIVING_S_MAX, Ending, run
from kcast.pubsub.endpoint import Address, Burst, Transmit
from kcast.pubsub.flood import OPENING_STEP_S
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.serve_process import NEEDS_IPV6, WAIT_S, Peer

pytestmark = pytest.mark.world


class Echo:
    """A core that sends back what it gets, and asks for a timeout now and then.

    Once it drains it asks for a timeout `drain_s` later, and is drained then.
    """

    def __init__(
        self,
        timeout_after_s: float | None = None,
        on_timeout: Callable[[], object] = int,
        drain_s: float = 0.0,
    ) -> None:
        self.turns: list[list[Burst]] = [[]]
        self.timeouts: list[tuple[float, float]] = []
        self.drains = 0
        self._after_s = timeout_after_s
        self._on_timeout = on_timeout
        self._drain_s = drain_s
        self._drained_at: float | None = None
        self._due: float | None = None
        self._now = 0.0

    def receive(self, burst: Burst, now: float) -> None:
        assert now >= self._now
        self._now = now
        self.turns[-1].append(burst)
        if self._after_s is not None and self._due is None:
            self._due = now + self._after_s

    def handle_timeout(self, now: float) -> None:
        if self._due is None:
            return
        self.timeouts.append((self._due, now))
        self._due = None
        self._on_timeout()

    def next_timeout(self) -> float | None:
        return min((at for at in (self._due, self._drained_at) if at is not None), default=None)

    def flush(self, now: float) -> list[Transmit]:
        bursts = self.turns[-1]
        self.turns.append([])
        return [Transmit(burst.data, burst.segment_bytes, (burst.source,)) for burst in bursts]

    def start_drain(self, now: float) -> None:
        self.drains += 1
        self._drained_at = now + self._drain_s

    def is_drained(self, now: float) -> bool:
        return self._drained_at is not None and now >= self._drained_at


class Relay(Echo):
    """Sends what it gets to fixed destinations."""

    def __init__(self, destinations: Sequence[Address]) -> None:
        super().__init__()
        self._destinations = destinations

    def flush(self, now: float) -> list[Transmit]:
        return [each._replace(destinations=self._destinations) for each in super().flush(now)]


def kill(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def ports() -> Iterator[Callable[[str], UdpPort]]:
    """Opens ports; a test that would run for ever is ended."""
    watchdog = threading.Timer(2 * WAIT_S, kill)
    watchdog.start()
    opened = []

    def open_port(host: str = "127.0.0.1") -> UdpPort:
        opened.append(UdpPort(open_socket(host, 0), batching=False))
        return opened[-1]

    try:
        yield open_port
    finally:
        watchdog.cancel()
        for port in opened:
            port.close()


@pytest.fixture
def port(ports: Callable[[], UdpPort]) -> UdpPort:
    return ports()


@pytest.fixture(params=["uvloop", "asyncio"])
def _either_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)  # makes importing it fail
    else:
        pytest.importorskip("uvloop")


# --- Suspensions -------------------------------------------------------------------------------------


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Suspends the machine, as far as the driver can tell. The loop's timers stand still meanwhile."""
    suspended_s = 0.0
    watch, now = clock.SuspensionWatch, clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + suspended_s)
    monkeypatch.setattr(clock, "SuspensionWatch", lambda: watch(lambda: suspended_s))

    def suspend_for(seconds: float) -> None:
        nonlocal suspended_s
        suspended_s += seconds

    return suspend_for


@pytest.mark.usefixtures("_either_loop")
def test_what_fell_due_in_a_suspension_is_done_before_it_is_told(
    port: UdpPort, suspend: Callable[[float], None]
) -> None:
    happened: list[str] = []
    core = Echo(timeout_after_s=100.0, on_timeout=lambda: happened.append("timeout"))

    def told() -> None:
        happened.append("resumed")
        kill()

    def on_suspension(seconds: float) -> Callable[[], None]:
        happened.append(f"suspended for {seconds:.0f} s")
        return told

    with Peer(port.address) as peer:

        def speak() -> None:
            peer.say(b"before")
            peer.hear()
            suspend(500.0)
            peer.say(b"after")

        speaker = threading.Thread(target=speak)
        run(core, [port], on_ready=speaker.start, on_suspension=on_suspension)
        speaker.join(WAIT_S)
    assert happened == ["suspended for 500 s", "timeout", "resumed"]


@pytest.mark.usefixtures("_either_loop")
def test_a_server_to_which_nobody_speaks_looks_at_the_clock(
    port: UdpPort, suspend: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timer has stood still, and would end 100 s after the machine has resumed."""
    monkeypatch.setattr(clock, "LOOK_S", 0.05)
    core = Echo(timeout_after_s=100.0, on_timeout=kill)
    with Peer(port.address) as peer:

        def speak() -> None:
            peer.say(b"before")
            peer.hear()
            suspend(500.0)

        speaker = threading.Thread(target=speak)
        assert run(core, [port], on_ready=speaker.start) is Ending.SIGNAL
        speaker.join(WAIT_S)
    assert len(core.timeouts) == 1


# --- Turns -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_either_loop")
def test_what_waits_is_taken_in_turns_of_at_most_32_calls(port: UdpPort) -> None:
    core: Any = Echo()
    with Peer(port.address) as peer:
        for number in range(80):
            peer.say(b"%d" % number)

        def hear_all() -> None:
            try:
                echoes.extend(peer.hear() for _ in range(80))
            finally:
                kill()

        echoes: list[bytes] = []
        listener = threading.Thread(target=hear_all)
        assert run(core, [port], on_ready=listener.start) is Ending.SIGNAL
        listener.join(WAIT_S)
    assert echoes == [b"%d" % number for number in range(80)]
    assert max(len(turn) for turn in core.turns) <= 32
    assert len([turn for turn in core.turns if turn]) <= 4


@pytest.mark.usefixtures("_either_loop")
def test_what_takes_long_to_read_is_taken_bit_by_bit_and_the_guard_looks(port: UdpPort) -> None:
    class Slow(Echo):
        def receive(self, burst: Burst, now: float) -> None:
            super().receive(burst, now)
            time.sleep(RECEIVING_S_MAX / 2)

    class Guard:
        is_active = is_learning = False
        looks = 0

        def saw(self, bursts: Sequence[Burst], now: float) -> None:
            assert len(bursts) <= BURSTS_OF_PART

        def look(self, now: float) -> None:
            self.looks += 1

    guard: Any = Guard()
    core, count = Slow(), 3 * BURSTS_OF_PART + 1
    with Peer(port.address) as peer:
        for _ in range(count):
            peer.say(b"x")

        def hear() -> None:
            try:
                for _ in range(count):
                    peer.hear()
            finally:
                kill()

        hearer = threading.Thread(target=hear)
        run(core, [port], on_ready=hearer.start, guard=guard)
        hearer.join(WAIT_S)
    assert sum(map(len, core.turns)) == count
    assert max(map(len, core.turns)) == BURSTS_OF_PART
    assert guard.looks == 3


def test_a_timeout_comes_when_due(port: UdpPort) -> None:
    core = Echo(timeout_after_s=0.05, on_timeout=kill)
    with Peer(port.address) as peer:
        peer.say(b"start")
        run(core, [port])
    ((due, now),) = core.timeouts
    assert due <= now < due + WAIT_S
    # One turn for the datagram and one for the timeout; a timer that fires too early would make it more.
    assert len(core.turns) - 1 <= 3


# --- Two sockets -------------------------------------------------------------------------------------


@NEEDS_IPV6
@pytest.mark.usefixtures("_either_loop")
def test_each_family_has_its_socket(ports: Callable[[str], UdpPort]) -> None:
    serving = [ports("127.0.0.1"), ports("::1")]
    with Peer(serving[0].address) as four, Peer(serving[1].address) as six:
        core = Relay((four.address, six.address))

        def speak() -> None:
            try:
                for peer, text in ((four, b"from four"), (six, b"from six")):
                    peer.say(text)
                    heard.extend((four.hear(), six.hear()))
            finally:
                kill()

        heard: list[bytes] = []
        speaker = threading.Thread(target=speak)
        run(core, serving, on_ready=speaker.start)
        speaker.join(WAIT_S)
    assert heard == [b"from four"] * 2 + [b"from six"] * 2
    assert not any(port.send_errors for port in serving)


# --- The end -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_either_loop")
def test_sigterm_ends_what_has_nothing_to_drain(port: UdpPort) -> None:
    told: list[str] = []
    core = Echo()
    ending = run(
        core, [port], on_ready=lambda: kill(signal.SIGTERM), on_drain=lambda: told.append("draining")
    )
    assert (ending, core.drains, told) == (Ending.DRAINED, 1, [])


@pytest.mark.usefixtures("_either_loop")
def test_sigterm_drains_and_forwarding_goes_on(port: UdpPort) -> None:
    echoes: list[bytes] = []
    with Peer(port.address) as peer:

        def speak() -> None:
            peer.say(b"still there?")
            echoes.append(peer.hear())

        speaker = threading.Thread(target=speak)
        began = time.monotonic()
        ending = run(Echo(drain_s=0.3), [port], on_ready=lambda: kill(signal.SIGTERM), on_drain=speaker.start)
        speaker.join(WAIT_S)
    assert ending is Ending.DRAINED
    assert echoes == [b"still there?"]
    assert 0.3 <= time.monotonic() - began < WAIT_S


def test_where_sighup_is_ignored_it_stays_so(port: UdpPort) -> None:
    """As under nohup."""

    def hang_up_and_interrupt() -> None:
        kill(signal.SIGHUP)
        kill(signal.SIGINT)

    core, before = Echo(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ending = run(core, [port], on_ready=hang_up_and_interrupt)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ending, core.drains) == (Ending.SIGNAL, 0)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_draining(port: UdpPort, second: signal.Signals) -> None:
    core = Echo(drain_s=3600)
    ending = run(core, [port], on_ready=lambda: kill(signal.SIGTERM), on_drain=lambda: kill(second))
    assert (ending, core.drains) == (Ending.SIGNAL, 1)


@pytest.mark.usefixtures("_either_loop")
def test_the_end_of_the_lifeline_is_the_end(port: UdpPort) -> None:
    lifeline, owner = os.pipe()
    try:
        ending = run(Echo(), [port], on_ready=lambda: os.close(owner), lifeline=lifeline)
    finally:
        os.close(lifeline)
    assert ending is Ending.ORPHANED


# --- Reports -----------------------------------------------------------------------------------------


def test_a_report_follows_what_arrives_once(port: UdpPort) -> None:
    """However much arrives it is one for each interval, and none where nothing does."""
    reports: list[float] = []
    interval_s = 0.2
    with Peer(port.address) as peer:

        def speak() -> None:
            try:
                for _ in range(2):
                    time.sleep(2.5 * interval_s)  # in which nothing is to happen
                    for _ in range(20):
                        peer.say(b"x")
                        peer.hear()
                time.sleep(2.5 * interval_s)
            finally:
                kill()

        speaker = threading.Thread(target=speak)
        run(
            Echo(),
            [port],
            on_ready=speaker.start,
            report=lambda: reports.append(time.monotonic()),
            report_interval_s=interval_s,
        )
        speaker.join(WAIT_S)
    assert len(reports) == 2
    assert reports[1] - reports[0] >= interval_s


@pytest.mark.usefixtures("_either_loop")
def test_a_filter_that_is_being_made_is_gone_on_with_at_once_and_between_what_arrives(port: UdpPort) -> None:
    core = Echo()

    class Learning:
        """As a guard that needs 50 looks, and then has a filter."""

        is_active = True
        looks = 0
        turns_at_end = 0

        @property
        def is_learning(self) -> bool:
            return 0 < self.looks < 50

        def saw(self, bursts: Sequence[Burst], now: float) -> None:
            pass

        def look(self, now: float) -> None:
            self.looks += 1
            if self.looks == 25:
                peer.say(b"meanwhile")
                time.sleep(0.05)  # it is there before the next look
            if self.looks == 50:
                self.turns_at_end = len([burst for turn in core.turns for burst in turn])
                kill()

    guard: Any = Learning()
    with Peer(port.address) as peer:
        begun = time.monotonic()
        run(core, [port], on_ready=lambda: peer.say(b"first"), guard=guard)
        took_s = time.monotonic() - begun
    assert guard.looks >= 50 and guard.turns_at_end == 2
    assert took_s < 25 * OPENING_STEP_S
