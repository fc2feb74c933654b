"""Losses, delays, duplicates and outages between a client and its servers, made inside the client's process.

Inside the process, impairment needs no privileges, works alike on all backends and repeats with its seed, and
an observer learns the fate of every datagram. An Impairment stands where a driver expects the core:

    driver -> receive -> [leg out: lost? doubled? held?] -> server cut off? -> core
    driver <- flush   <- server cut off? <- [leg in: lost? doubled? held?] <- core

Legs are named from the servers' side, as in a scenario: *in* is from client to server, *out* back. A server
that is cut off goes on running but neither gets nor sends anything. Whether it is cut off is decided at the
moment a datagram would leave or arrive here, after it was held; being cut off counts before being lost.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import groupby
from math import inf, log, log1p
from random import Random
from typing import NamedTuple, Protocol

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, NONE, PASSED
from kcast.loadtest.faults.plan import DownTimes
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.endpoint import Address, Burst, Endpoint, Transmit, datagram_count, datagrams

HELD_BACK_S = 0.01

_NEVER = 1 << 62
_FATES = {LOST: "lost", CUT_OFF: "cut_off", DUPLICATE: "duplicate"}


class Leg(NamedTuple):
    """What happens to the datagrams of one leg, to each independently. Shares are 0 .. 1.

    A duplicated datagram comes twice, unless it is lost. Each takes `delay_s`, and up to `jitter_s` more,
    uniformly distributed: with jitter, one may overtake another. A reordered one takes HELD_BACK_S longer, so
    that those sent shortly after overtake it. What is held leaves when the driver's timer fires, which may be
    one or two milliseconds late.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0


CLEAR = Leg()


def legs(scenario: Scenario) -> tuple[Leg, Leg]:
    """Returns the legs of a scenario, in and out. They differ in loss only; a delay applies to each."""
    both = Leg(0.0, scenario.duplicate, scenario.reorder, scenario.delay_ms / 1000, scenario.jitter_ms / 1000)
    return both._replace(loss=scenario.loss_in), both._replace(loss=scenario.loss_out)


class Observer(Protocol):
    """Learns the fate of every datagram, when it passes or would have passed. Must not raise or block.

    Each call is about a run of datagrams of `segment_bytes` (the last may be shorter) with one fate,
    `injected`, as numbered in `kcast.loadtest.capture.schema`. `server` is -1 for an address of no server.
    """

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        """Datagrams leave for a server, or would have left."""

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        """Datagrams have arrived from a server, or would have. `kernel_ns` is as in `Burst`.

        For those that were held, it is the time at which the kernel would have got them from so slow a
        network.
        """


class Impairment:
    """An Endpoint that puts two impaired legs, and outages, around another.

    Servers that are `down` are cut off; with `are_mute` only the copies that they send are, so that they
    answer as if nothing was wrong. Those that are `away` are cut off in any case. `servers` has the number
    of each server, by each of its addresses. `rng` is used only to seed: each leg and fault has a random
    stream of its own, so that switching one on changes no draw of the others.

    `counts` has the numbers of datagrams `lost_in`, `cut_off_in`, `duplicate_in`, and the same with `_out`.
    Raises ValueError for shares outside 0 .. 1 and times below 0.
    """

    def __init__(
        self,
        core: Endpoint,
        *,
        legs_in: Leg = CLEAR,
        legs_out: Leg = CLEAR,
        down: DownTimes | None = None,
        are_mute: bool = False,
        away: DownTimes | None = None,
        servers: Mapping[Address, int],
        rng: Random,
        observer: Observer | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._core = core
        self._in = _ImpairedLeg(legs_in, rng)
        self._out = _ImpairedLeg(legs_out, rng)
        self._cut: frozenset[int] = frozenset()
        self._mute: frozenset[int] = frozenset()
        self._are_mute, self._away = are_mute, away
        self.set_down(down)
        self._servers = servers
        self._observer = observer

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Takes a burst that has arrived, and passes it to the core now, later or never."""
        server = self._servers.get(burst.source, NONE)
        leg = self._out
        pieces = None if leg.is_clear else leg.enter(burst.data, burst.segment_bytes)
        if pieces is None:
            if now * 1e9 >= self._cut_until_ns:
                self._update_cut(now)
            if server in self._cut or server in self._mute:
                self._arrive(burst, server, PASSED, now)
                return
            if self._observer is not None:
                data, segment_bytes, _, kernel_ns = burst
                self._observer.received(now, server, data, segment_bytes, kernel_ns, PASSED)
            self._core.receive(burst, now)
            return
        for held_s, data, fate in pieces:
            kernel_ns = burst.kernel_ns and burst.kernel_ns + int(held_s * 1e9)
            piece = Burst(data, burst.segment_bytes, burst.source, kernel_ns)
            leg.hold(now + held_s, _HeldRun(piece, server, fate))
        self._let_in(now)

    def handle_timeout(self, now: float) -> None:
        """Passes to the core what was held until now, and lets it do what is due."""
        if self._out.held:
            self._let_in(now)
        self._core.handle_timeout(now)

    def next_timeout(self) -> float | None:
        """Returns when the core wants to be called, or something held is due; None for never."""
        times = [leg.held[0][0] for leg in (self._in, self._out) if leg.held]
        at = self._core.next_timeout()
        if at is not None:
            times.append(at)
        return min(times, default=None)

    def flush(self, now: float) -> list[Transmit]:
        """Returns what is to be sent now, of what the core has sent now or before."""
        transmits = self._core.flush(now)
        leg = self._in
        if not transmits and not leg.held:
            return transmits
        if now * 1e9 >= self._cut_until_ns:
            self._update_cut(now)
        if leg.is_clear and not self._cut:
            if self._observer is not None:
                for data, segment_bytes, destinations, _ in transmits:
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
        """Number of runs of datagrams held on both legs."""
        return len(self._in.held) + len(self._out.held)

    def close(self, now: float) -> None:
        """Drops what is still held, once the client is closed: the observer is told that it was lost.

        Datagrams of a server that is cut off count as cut off.
        """
        if now * 1e9 >= self._cut_until_ns:
            self._update_cut(now)
        for held in self._in.due(inf):
            self._leave(held._replace(fate=LOST), now, [])
        for held in self._out.due(inf):
            self._arrive(held.run, held.server, LOST, now)

    # --- Arriving ------------------------------------------------------------------------------------

    def _let_in(self, now: float) -> None:
        if now * 1e9 >= self._cut_until_ns:
            self._update_cut(now)
        for held in self._out.due(now):
            self._arrive(held.run, held.server, held.fate, now)

    def _arrive(self, burst: Burst, server: int, fate: int, now: float) -> None:
        if server in self._mute:
            for is_answer, some in groupby(datagrams(burst.data, burst.segment_bytes), _is_answer):
                self._tell(burst._replace(data=b"".join(some)), server, fate if is_answer else CUT_OFF, now)
        else:
            self._tell(burst, server, CUT_OFF if server in self._cut else fate, now)

    def _tell(self, burst: Burst, server: int, fate: int, now: float) -> None:
        if fate != PASSED:
            self.counts[f"{_FATES[fate]}_out"] += datagram_count(len(burst.data), burst.segment_bytes)
        if self._observer is not None:
            data, segment_bytes, _, kernel_ns = burst
            self._observer.received(now, server, data, segment_bytes, kernel_ns, fate)
        if fate in (PASSED, DUPLICATE):
            self._core.receive(burst, now)

    # --- Leaving -------------------------------------------------------------------------------------

    def _send(self, transmit: Transmit, address: Address, now: float, leaving: list[Transmit]) -> None:
        data, segment_bytes, destinations, _ = transmit
        server = self._servers.get(address, NONE)
        leg = self._in
        pieces = None if leg.is_clear else leg.enter(data, segment_bytes)
        if pieces is None:
            if server in self._cut:
                self._leave(_HeldRun(Burst(data, segment_bytes, address), server, CUT_OFF), now, leaving)
                return
            if self._observer is not None:
                self._observer.sent(now, server, data, segment_bytes, PASSED)
            alone = len(destinations) == 1
            leaving.append(transmit if alone else Transmit(data, segment_bytes, (address,)))
            return
        for held_s, piece, fate in pieces:
            leg.hold(now + held_s, _HeldRun(Burst(piece, segment_bytes, address), server, fate))
        self._let_out(now, leaving)  # before what was sent later

    def _let_out(self, now: float, leaving: list[Transmit]) -> None:
        for held in self._in.due(now):
            self._leave(held, now, leaving)

    def _leave(self, held: "_HeldRun", now: float, leaving: list[Transmit]) -> None:
        (data, segment_bytes, address, _), server, fate = held
        if server in self._cut:
            fate = CUT_OFF
        if fate != PASSED:
            self.counts[f"{_FATES[fate]}_in"] += datagram_count(len(data), segment_bytes)
        if self._observer is not None:
            self._observer.sent(now, server, data, segment_bytes, fate)
        if fate in (PASSED, DUPLICATE):
            leaving.append(Transmit(data, segment_bytes, (address,)))

    # --- Outages -------------------------------------------------------------------------------------

    def set_down(self, down: DownTimes | None) -> None:
        """Sets the times at which servers are cut off, when it is known at which time the load begins.

        Must not be called while another thread may be in the client; greenlets and tasks never are.
        """
        self._down = down
        self._cut_until_ns: float = -inf  # so the next datagram updates it

    def _update_cut(self, now: float) -> None:
        """Sets which servers are cut off now, and until when that holds. The clock never goes back."""
        nothing = frozenset[int]()
        down, away = (each.down_at(int(now * 1e9)) if each else nothing for each in (self._down, self._away))
        self._cut, self._mute = (away, down - away) if self._are_mute else (down | away, nothing)
        changes = [each.next_change_ns(int(now * 1e9)) for each in (self._down, self._away) if each]
        self._cut_until_ns = min((at_ns for at_ns in changes if at_ns is not None), default=inf)


def _is_answer(datagram: bytes) -> bool:
    """Whether a server's datagram has control lines: it never sends these together with copies."""
    return datagram.startswith(b"%")


class _HeldRun(NamedTuple):
    """A run of datagrams, and the fate it has when it is due. `run.source` is the
    server's address, also on the way to it."""

    run: Burst
    server: int
    fate: int


class _ImpairedLeg:
    """One leg: draws the fates of datagrams, and holds them until they are due."""

    def __init__(self, leg: Leg, rng: Random) -> None:
        for name, share in (("loss", leg.loss), ("duplicate", leg.duplicate), ("reorder", leg.reorder)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} of a leg is {share}: give a share from 0 to 1")
        for name, time_s in (("delay_s", leg.delay_s), ("jitter_s", leg.jitter_s)):
            if not 0 <= time_s < inf:
                raise ValueError(f"{name} of a leg is {time_s}: give seconds, 0 or more")
        # All seeds are drawn, used or not, so that no setting changes the other streams.
        loss, duplicate, reorder, jitter = (rng.getrandbits(64) for _ in range(4))
        self.is_clear = not any(leg)
        self.held: list[tuple[float, int, _HeldRun]] = []  # a heap; the number orders runs of one time
        self._lost = _Sampler(leg.loss, loss)
        self._doubled = _Sampler(leg.duplicate, duplicate)
        self._reordered = _Sampler(leg.reorder, reorder)
        self._delay_s, self._jitter_s = leg.delay_s, leg.jitter_s
        self._is_slow = leg.delay_s > 0 or leg.jitter_s > 0 or leg.reorder > 0
        self._jitter = Random(jitter)
        self._held_count = 0

    def enter(self, data: bytes, segment_bytes: int) -> list[tuple[float, bytes, int]] | None:
        """Draws the fates of a run: pieces of it as (seconds to be held, data, fate).

        Returns None where all of it passes at once.
        """
        count = datagram_count(len(data), segment_bytes)
        lost = self._lost.picks(count)
        doubled = self._doubled.picks(count)
        reordered = self._reordered.picks(count)
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

    def hold(self, due: float, held: _HeldRun) -> None:
        """Holds a run until `due`."""
        self._held_count += 1
        heappush(self.held, (due, self._held_count, held))

    def due(self, now: float) -> Iterator[_HeldRun]:
        """Takes out the runs that are due, in order of time."""
        while self.held and self.held[0][0] <= now:
            yield heappop(self.held)[2]


class _Sampler:
    """Picks each of the datagrams that come along with probability `share`, independently.

    It draws the number of datagrams until the next pick, which is geometrically distributed. So most bursts
    cost no more than a subtraction.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._rng = Random(seed)
        self._passing_count = self._draw()

    def picks(self, count: int) -> Sequence[int]:
        """Returns which of the next `count` datagrams are picked, counted from 0."""
        at = self._passing_count
        if at >= count:
            self._passing_count = at - count
            return ()
        picks = []
        while at < count:
            picks.append(at)
            at += 1 + self._draw()
        self._passing_count = at - count
        return picks

    def _draw(self) -> int:
        if self._share == 0:
            return _NEVER
        if self._share == 1:
            return 0
        return int(min(log(1 - self._rng.random()) / log1p(-self._share), _NEVER))


def _split(
    data: bytes, segment_bytes: int, count: int, lost: Sequence[int], doubled: Sequence[int]
) -> Iterator[tuple[bytes, int]]:
    """Splits a run by fate. Each part is again a run of equal segments: only its last may be shorter."""
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
