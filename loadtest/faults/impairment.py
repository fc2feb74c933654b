"""Bad legs between one client and its servers, inside the client's own process.

So no rights are needed, all backends have the same faults, the same seed has the same fates, and whoever
observes is told of every datagram that was killed. An Impairment stands where a driver expects the core:

    driver -> receive -> [leg out: lost? doubled? held?] -> server cut off? -> core
    driver <- flush   <- server cut off? <- [leg in: lost? doubled? held?] <- core

Legs have their names from the servers' side, as in a scenario: *in* goes from client to server, *out* back.
A server that is cut off neither gets nor sends anything, and lives on. That is judged at the moment at which
a datagram would leave or arrive here, after what time it was held, and comes before its being lost.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf, log, log1p
from random import Random
from typing import NamedTuple, Protocol

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, NONE, PASSED
from kcast.loadtest.faults.plan import DownTimes
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.endpoint import Address, Burst, Endpoint, Transmit, datagrams

HELD_BACK_S = 0.01

_NEVER = 1 << 62
_FATES = {LOST: "lost", CUT_OFF: "cut_off", DUPLICATE: "duplicate"}


class Leg(NamedTuple):
    """What happens to the datagrams of one leg, to each on its own; shares are 0 .. 1 of them.

    `duplicate` comes twice, if it comes at all. All take `delay_s` and, drawn evenly, up to `jitter_s` more:
    with jitter, one may overtake another. `reorder` takes HELD_BACK_S longer, so that whatever follows by
    less overtakes it. What is held comes when the driver's timer next allows: a driver whose timers know
    milliseconds adds one or two.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0


CLEAR = Leg()


def legs(scenario: Scenario) -> tuple[Leg, Leg]:
    """The legs of a scenario, in and out. But for the losses they are alike: a delay counts on each."""
    both = Leg(0.0, scenario.duplicate, scenario.reorder, scenario.delay_ms / 1000, scenario.jitter_ms / 1000)
    return both._replace(loss=scenario.loss_in), both._replace(loss=scenario.loss_out)


class Observer(Protocol):
    """Who is told what became of every datagram, when it passes or would have. Must not raise or block.

    Each call is about a run of datagrams of `segment_bytes` (the last may be shorter) with one fate,
    `injected`, as `kcast.loadtest.capture.schema` numbers them. `server` is -1 where the address is no
    server's.
    """

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        """Datagrams leave for a server, or would have."""

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        """Datagrams have arrived from a server, or would have. `kernel_ns` as in `Burst`.

        Of those that were held it is when the kernel would have taken them, had the network been so slow.
        """


class Impairment:
    """An Endpoint that puts two bad legs, and outages, around another.

    `servers` has the number of each server, by every address of it. `rng` is drawn from only here: each leg
    and fault has a stream of its own, so that one that is switched on changes no draw of the others.

    `counts` tells how many datagrams were `lost_in`, `cut_off_in`, `duplicate_in` and the same with `_out`.
    Raises ValueError for shares outside 0 .. 1 and times below 0.
    """

    def __init__(
        self,
        core: Endpoint,
        *,
        legs_in: Leg = CLEAR,
        legs_out: Leg = CLEAR,
        down: DownTimes | None = None,
        servers: Mapping[Address, int],
        rng: Random,
        observer: Observer | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._core = core
        self._in = _Road(legs_in, rng)
        self._out = _Road(legs_out, rng)
        self._cut: frozenset[int] = frozenset()
        self.set_down(down)
        self._servers = servers
        self._observer = observer

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Takes what has arrived, to let it through now, later or never."""
        server = self._servers.get(burst.source, NONE)
        road = self._out
        pieces = None if road.is_clear else road.enter(burst.data, burst.segment_bytes)
        if pieces is None:
            if now * 1e9 >= self._cut_until_ns:
                self._look(now)
            if server in self._cut:
                self._arrive(burst, server, CUT_OFF, now)
                return
            if self._observer is not None:
                data, segment_bytes, _, kernel_ns = burst
                self._observer.received(now, server, data, segment_bytes, kernel_ns, PASSED)
            self._core.receive(burst, now)
            return
        for held_s, data, fate in pieces:
            kernel_ns = burst.kernel_ns and burst.kernel_ns + int(held_s * 1e9)
            piece = Burst(data, burst.segment_bytes, burst.source, kernel_ns)
            road.hold(now + held_s, _Held(piece, server, fate))
        self._let_in(now)

    def handle_timeout(self, now: float) -> None:
        """Lets the core have what was held until now, and do what is due."""
        if self._out.held:
            self._let_in(now)
        self._core.handle_timeout(now)

    def next_timeout(self) -> float | None:
        """When the core wants to be called, or something held is due."""
        times = [road.held[0][0] for road in (self._in, self._out) if road.held]
        at = self._core.next_timeout()
        if at is not None:
            times.append(at)
        return min(times, default=None)

    def flush(self, now: float) -> list[Transmit]:
        """What is to be sent now, of what the core has sent now or before."""
        transmits = self._core.flush(now)
        road = self._in
        if not transmits and not road.held:
            return transmits
        if now * 1e9 >= self._cut_until_ns:
            self._look(now)
        if road.is_clear and not self._cut:
            if self._observer is not None:
                for data, segment_bytes, destinations in transmits:
                    for address in destinations:
                        server = self._servers.get(address, NONE)
                        self._observer.sent(now, server, data, segment_bytes, PASSED)
            return transmits
        leaving: list[Transmit] = []
        for transmit in transmits:
            for address in transmit.destinations:
                self._send(transmit, address, now, leaving)
        self._let_out(now, leaving)
        return leaving

    # --- What is left at the end ---------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many runs of datagrams are held, of both legs."""
        return len(self._in.held) + len(self._out.held)

    def close(self, now: float) -> None:
        """Gives up what is still held: it is told, and counted, as lost. For when the client has been closed.

        But what concerns a server that is cut off counts as that.
        """
        if now * 1e9 >= self._cut_until_ns:
            self._look(now)
        for held in self._in.due(inf):
            self._leave(held._replace(fate=LOST), now, [])
        for held in self._out.due(inf):
            self._arrive(held.run, held.server, LOST, now)

    # --- The way in ----------------------------------------------------------------------------------

    def _let_in(self, now: float) -> None:
        if now * 1e9 >= self._cut_until_ns:
            self._look(now)
        for held in self._out.due(now):
            self._arrive(held.run, held.server, held.fate, now)

    def _arrive(self, burst: Burst, server: int, fate: int, now: float) -> None:
        if server in self._cut:
            fate = CUT_OFF
        if fate != PASSED:
            self.counts[f"{_FATES[fate]}_out"] += _datagram_count(burst.data, burst.segment_bytes)
        if self._observer is not None:
            data, segment_bytes, _, kernel_ns = burst
            self._observer.received(now, server, data, segment_bytes, kernel_ns, fate)
        if fate in (PASSED, DUPLICATE):
            self._core.receive(burst, now)

    # --- The way out ---------------------------------------------------------------------------------

    def _send(self, transmit: Transmit, address: Address, now: float, leaving: list[Transmit]) -> None:
        data, segment_bytes, destinations = transmit
        server = self._servers.get(address, NONE)
        road = self._in
        pieces = None if road.is_clear else road.enter(data, segment_bytes)
        if pieces is None:
            if server in self._cut:
                self._leave(_Held(Burst(data, segment_bytes, address), server, CUT_OFF), now, leaving)
                return
            if self._observer is not None:
                self._observer.sent(now, server, data, segment_bytes, PASSED)
            alone = len(destinations) == 1
            leaving.append(transmit if alone else Transmit(data, segment_bytes, (address,)))
            return
        for held_s, piece, fate in pieces:
            road.hold(now + held_s, _Held(Burst(piece, segment_bytes, address), server, fate))
        self._let_out(now, leaving)  # before what was sent later

    def _let_out(self, now: float, leaving: list[Transmit]) -> None:
        for held in self._in.due(now):
            self._leave(held, now, leaving)

    def _leave(self, held: "_Held", now: float, leaving: list[Transmit]) -> None:
        (data, segment_bytes, address, _), server, fate = held
        if server in self._cut:
            fate = CUT_OFF
        if fate != PASSED:
            self.counts[f"{_FATES[fate]}_in"] += _datagram_count(data, segment_bytes)
        if self._observer is not None:
            self._observer.sent(now, server, data, segment_bytes, fate)
        if fate in (PASSED, DUPLICATE):
            leaving.append(Transmit(data, segment_bytes, (address,)))

    # --- Outages -------------------------------------------------------------------------------------

    def set_down(self, down: DownTimes | None) -> None:
        """Cuts servers off at these times, and at no others: for a load whose beginning is known only once
        all clients are ready. Not while another thread may be in the client; greenlets and tasks never are.
        """
        self._down = down
        self._cut_until_ns: float = -inf  # the next datagram has it looked up

    def _look(self, now: float) -> None:
        """Which servers are cut off from now on, and until when that holds. The clock never goes back."""
        change_ns = None
        self._cut = frozenset()
        if self._down is not None:
            now_ns = int(now * 1e9)
            self._cut = self._down.down_at(now_ns)
            change_ns = self._down.next_change_ns(now_ns)
        self._cut_until_ns = inf if change_ns is None else change_ns


class _Held(NamedTuple):
    """A run of datagrams from or to `run.source`, and what is to become of it when it is due."""

    run: Burst
    server: int
    fate: int


class _Road:
    """One leg: draws what becomes of datagrams, and holds them until they are due."""

    def __init__(self, leg: Leg, rng: Random) -> None:
        for name, share in (("loss", leg.loss), ("duplicate", leg.duplicate), ("reorder", leg.reorder)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} of a leg is {share}: give a share from 0 to 1")
        for name, time_s in (("delay_s", leg.delay_s), ("jitter_s", leg.jitter_s)):
            if not 0 <= time_s < inf:
                raise ValueError(f"{name} of a leg is {time_s}: give seconds, 0 or more")
        # All seeds are drawn, used or not.
        loss, duplicate, reorder, jitter = (rng.getrandbits(64) for _ in range(4))
        self.is_clear = not any(leg)
        self.held: list[tuple[float, int, _Held]] = []  # a heap; the number keeps those of one time in order
        self._lost = _Chance(leg.loss, loss)
        self._doubled = _Chance(leg.duplicate, duplicate)
        self._reordered = _Chance(leg.reorder, reorder)
        self._delay_s, self._jitter_s = leg.delay_s, leg.jitter_s
        self._is_slow = leg.delay_s > 0 or leg.jitter_s > 0 or leg.reorder > 0
        self._jitter = Random(jitter)
        self._held_count = 0

    def enter(self, data: bytes, segment_bytes: int) -> list[tuple[float, bytes, int]] | None:
        """What becomes of a run: pieces of it with for how long they are held, and their fate.

        None where all of it passes at once.
        """
        count = _datagram_count(data, segment_bytes)
        lost = self._lost.hits(count)
        doubled = self._doubled.hits(count)
        reordered = self._reordered.hits(count)
        if not self._is_slow and not lost and not doubled:
            return None
        if not reordered and not self._jitter_s:
            parts = _split(data, segment_bytes, count, lost, doubled)
            return [(self._delay_s, part, fate) for part, fate in parts]
        pieces = []
        for index, datagram in enumerate(datagrams(data, segment_bytes)):
            held_s = self._delay_s + self._jitter_s * self._jitter.random()
            if index in reordered:
                held_s += HELD_BACK_S
            pieces.append((held_s, datagram, LOST if index in lost else PASSED))
            if index in doubled and index not in lost:
                pieces.append((held_s, datagram, DUPLICATE))
        return pieces

    def hold(self, due: float, held: _Held) -> None:
        """Keeps what is to come out at `due`."""
        self._held_count += 1
        heappush(self.held, (due, self._held_count, held))

    def due(self, now: float) -> Iterator[_Held]:
        """Takes out what is due, in the order of its times."""
        while self.held and self.held[0][0] <= now:
            yield heappop(self.held)[2]


class _Chance:
    """Which of the datagrams that come along meet with something, each with probability `share`.

    What is drawn is how many are spared until the next one is met. That is the same distribution, and most
    bursts cost no more than a subtraction.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._rng = Random(seed)
        self._spared = self._draw()

    def hits(self, count: int) -> Sequence[int]:
        """Which of the next `count` are met, counted from 0."""
        at = self._spared
        if at >= count:
            self._spared = at - count
            return ()
        hits = []
        while at < count:
            hits.append(at)
            at += 1 + self._draw()
        self._spared = at - count
        return hits

    def _draw(self) -> int:
        if self._share == 0:
            return _NEVER
        if self._share == 1:
            return 0
        return int(min(log(1 - self._rng.random()) / log1p(-self._share), _NEVER))


def _datagram_count(data: bytes, segment_bytes: int) -> int:
    return 1 if len(data) <= segment_bytes else -(-len(data) // segment_bytes)


def _split(
    data: bytes, segment_bytes: int, count: int, lost: Sequence[int], doubled: Sequence[int]
) -> Iterator[tuple[bytes, int]]:
    """A run by fates; each part is a run of equal segments again, since none but the last may be shorter."""
    if not lost:
        yield data, PASSED
    else:
        if len(lost) < count:
            ends = [*lost, count]
            starts = [0, *(index + 1 for index in lost)]
            spared = zip(starts, ends, strict=True)
            yield b"".join([data[i * segment_bytes : j * segment_bytes] for i, j in spared]), PASSED
        yield _pick(data, segment_bytes, lost), LOST
        doubled = [index for index in doubled if index not in lost]
    if doubled:
        yield _pick(data, segment_bytes, doubled), DUPLICATE


def _pick(data: bytes, segment_bytes: int, indexes: Sequence[int]) -> bytes:
    return b"".join([data[i * segment_bytes : (i + 1) * segment_bytes] for i in indexes])
