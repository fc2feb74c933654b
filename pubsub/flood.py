"""Notices that more arrives than a server can take, and lets the kernel drop a part of the strangers' share.

The sign is the receive buffer: what waits in it is late, and when it is full, datagrams are lost, whoever
sent them. While more than an eighth of it is in use, `kcast.pubsub.kernel_filter` closes step by step;
afterwards it opens step by step, which shows whether the flood is over. Once a second, and when somebody is
found who floods, it learns anew who is known: in slices, so that the server receives in between. If the
buffer fills all the same, some of those who are known flood: `FloodingSources` tells who. Where all that
arrives is from others who are known, or from exempt loopback, there is nothing to sift, and no filter is set.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from random import Random
from typing import Protocol

from kcast.pubsub.endpoint import Address, Burst, datagram_count
from kcast.pubsub.kernel_filter import KernelFilter, Kind, kind_of
from kcast.pubsub.networks import Networks, Share

PRESSURE_SHARE = 1 / 8
OVERFLOW_SHARE = 1 / 2
HARD_STEPS = 5  # at once when somebody is found who floods: the buffer is full of that
STEP_S = 0.01  # between steps of closing: as long as it takes to see what the last one did
OPENING_STEP_S = 0.25  # and of opening, after so long without pressure
KNOWING_S = 1.0  # between looks at who is known
SLICE = 512  # known sources that one look deals with: some milliseconds, for IPv6
TELLING_S = 60.0
RETRY_S = 10.0  # after the kernel has refused even the shortest filter

PAUSE_S_MIN = 4.0
PAUSE_S_MAX = 64.0
FORGET_S = 300.0  # after the end of a pause; the next one is the shortest again
DEMOTED_MAX = 256  # the oldest gives way
OUTSTANDING_FACTOR = 4  # times what networks send on average; or more than half of all

_TOLD = "flooded: the kernel drops a part of what strangers send, and who floods"
_TOLD_REFUSED = (
    "flooded, and the kernel takes no filter, so all that strangers send reaches the server: "
    "net.core.optmem_max may be too small"
)


class Port(Protocol):
    """A socket as this module sees it."""

    @property
    def waiting_share(self) -> float:
        """How full its receive buffer is."""

    def sift(self, program: bytes | None) -> bool:
        """Sets or removes a filter. Returns False if it could not; then no filter is set."""


class Guarded(Protocol):
    """A server core as this module sees it."""

    @property
    def strangers(self) -> Mapping[Kind, int]:
        """Counts datagrams of strangers."""

    def known_sources(self, random: Random) -> Iterable[Address]:
        """Sources that have shown a cookie, beginning at any place."""


def _nobody(_: str) -> None:
    pass


class FloodGuard:
    """Sets filters on `ports`. `tell` is told in a sentence that a flood began, once a minute at most."""

    def __init__(
        self,
        core: Guarded,
        ports: Sequence[Port],
        random: Random,
        *,
        passes_loopback: bool = True,
        tell: Callable[[str], None] = _nobody,
    ) -> None:
        self._core = core
        self._random = random
        self._ports = ports
        self._filter = KernelFilter(random, passes_loopback=passes_loopback)
        self._flooding = FloodingSources(Networks(exempts_loopback=passes_loopback))
        self._tell = tell
        self._seen: dict[Kind, int] = {}
        self._pressed_at = self._opened_at = self._known_at = self._told_at = float("-inf")
        self._resting_until = float("-inf")
        self._coming: list[Address] | None = None  # known sources that the next filter has not learned yet
        self._is_ready = False  # whether the filter knows whom to pass
        self._is_crowded = False  # whether there may be more of them than it has room for

    @property
    def is_active(self) -> bool:
        """Whether a filter is set or floods are watched. If so, `look` is to be called now and then."""
        return self._flooding.is_watching or not self._filter.is_open

    @property
    def is_learning(self) -> bool:
        """Whether a filter is being made. If so, `look` is to be called again as soon as there is time."""
        return self._coming is not None

    def saw(self, bursts: Iterable[Burst], now: float) -> None:
        """Takes note of what has arrived."""
        flooding = self._flooding
        if flooding:
            # Also where no filter is set: who is demoted counts as soon as the buffer fills again.
            if now >= flooding.forget_at:
                flooding.forget(now)
            flooding.saw(bursts)

    def look(self, now: float) -> None:
        """Closes or opens the filter by a step, if it is time. Call it when much arrives, and while active.

        A filter that is to know many sources is made in slices, one in each call.
        """
        if now < self._resting_until:
            return
        is_changed = self._coming is not None and self._learn()
        # A step could not be seen to work before the filter knows whom to pass.
        if not is_changed and (self._is_ready or self._coming is None):
            is_changed = self._step(now)
        if is_changed and self._is_ready:
            self._set(now)

    def _step(self, now: float) -> bool:
        """Closes or opens the filter, if it is time. Returns whether it did."""
        if now < self._pressed_at + STEP_S:
            return False
        waiting_share = max((port.waiting_share for port in self._ports), default=0.0)
        if waiting_share > PRESSURE_SHARE:
            was_quiet = not self.is_active and now >= self._pressed_at + OPENING_STEP_S
            self._pressed_at = now
            is_overflowing = waiting_share > OVERFLOW_SHARE
            arrived = self._arrived()
            if was_quiet:
                return False  # what has arrived since the last flood tells nothing of this one
            is_found = is_overflowing and self._flooding.demote(sum(arrived.values()), now)
            self._flooding.is_watching = is_overflowing
            if is_found:
                arrived = self._flooding.arrived()
                self._is_ready = False
            # Where nobody is sifted, a filter would keep out nobody but who comes next.
            if any(arrived.values()):
                for _ in range(HARD_STEPS if is_found else 1):
                    self._filter.press(arrived)
            if self.is_active:
                self._know(now)
            else:
                self._forget()
            return not self._filter.is_open
        if self.is_active and now >= max(self._pressed_at, self._opened_at) + OPENING_STEP_S:
            self._opened_at = now
            self._flooding.is_watching = False
            self._arrived()
            self._filter.relax()
            self._know(now)
            return True
        return False

    def _set(self, now: float) -> None:
        if self._filter.is_open:
            if not self._flooding.is_watching:
                self._remove()
            return
        while not self._attach(self._filter.program()):
            # A port that kept an older filter would go on keeping out those who are new.
            if not self._filter.shrink():
                self._remove()
                self._resting_until = now + RETRY_S
                self._tell_sometimes(_TOLD_REFUSED, now)
                return
            self._is_ready = False
            self._know(now)
            if not self._is_ready:
                return
        if now < self._pressed_at + OPENING_STEP_S:
            self._tell_sometimes(_TOLD, now)

    def _attach(self, program: bytes) -> bool:
        return all(port.sift(program) for port in self._ports)

    def _remove(self) -> None:
        self._filter.open()
        self._flooding.is_watching = False
        self._forget()
        for port in self._ports:
            port.sift(None)

    def _forget(self) -> None:
        """Forgets who is known, and what of it was learned."""
        self._coming = None
        self._is_ready = False

    def _tell_sometimes(self, text: str, now: float) -> None:
        if now >= self._told_at + TELLING_S:
            self._told_at = now
            self._tell(text)

    def _know(self, now: float) -> None:
        """Begins to learn who is known, if it is time or something depends on it."""
        if self._is_ready and (self._coming is not None or now < self._known_at + KNOWING_S):
            return
        self._known_at = now
        self._coming = list(islice(self._core.known_sources(self._random), self._filter.sources_max))
        self._is_crowded = len(self._coming) == self._filter.sources_max
        self._flooding.begin(now)
        self._filter.begin()
        if len(self._coming) <= SLICE:
            self._learn()

    def _learn(self) -> bool:
        """Learns a slice of who is known. Returns whether it was the last."""
        assert self._coming is not None
        some = self._coming[:SLICE]
        del self._coming[:SLICE]
        self._filter.add(self._flooding.add(some))
        if self._coming:
            return False
        self._coming = None
        self._flooding.complete()
        self._filter.complete()
        self._is_ready = True
        return True

    def _arrived(self) -> Mapping[Kind, int]:
        """Returns how many datagrams that a filter would sift have arrived since the last step: of strangers
        and of those demoted; or else of those who are known, and for whom the filter has no room."""
        before, self._seen = self._seen, dict(self._core.strangers)
        demoted, others = self._flooding.arrived(), self._flooding.others()
        arrived = {
            kind: self._seen.get(kind, 0) - before.get(kind, 0) + demoted.get(kind, 0) for kind in Kind
        }
        return others if self._is_crowded and not any(arrived.values()) else arrived


class _Pause:
    __slots__ = ("length_s", "until")

    def __init__(self) -> None:
        self.length_s = PAUSE_S_MIN / 2
        self.until = 0.0


class FloodingSources:
    """Which of the known sources flood, and so are no longer let past the filter for a while: counts what
    they send while `is_watching`, and tells who is `demoted`.

    A party needs one lease to be known, or the address of somebody who has one. So when the receive buffer
    fills though strangers are filtered, it is counted which of the known send most. The network, or the
    single address, that stands out counts as a stranger for some seconds, and each further time for twice as
    long. What it sends still passes by chance, as much as can be taken.

    From `forget_at` on, some of those whose pause ended long ago are to be forgotten, by `forget`.
    """

    def __init__(self, networks: Networks) -> None:
        self.is_watching = False
        self.forget_at = inf
        self._networks = networks
        self._known: frozenset[Address] = frozenset()
        self._coming: list[Address] = []  # will be known
        self._paused: set[Share] = set()
        self._counts: Counter[tuple[Address, Kind]] = Counter()  # datagrams
        self._demoted: OrderedDict[Share, _Pause] = OrderedDict()
        self._arrived: Counter[Kind] = Counter()  # from those who are demoted
        self._others: Counter[Kind] = Counter()  # from those who are neither known nor demoted

    def __bool__(self) -> bool:
        """Whether `saw` is to be called with what arrives."""
        return self.is_watching or bool(self._demoted)

    def know(self, sources: Iterable[Address], now: float) -> frozenset[Address]:
        """Takes the known sources; returns those of them that are not demoted."""
        self.begin(now)
        self.add(sources)
        self.complete()
        return self._known

    def begin(self, now: float) -> None:
        """Begins to take the known sources anew, by `add`. Until `complete` those remain that were known."""
        self.forget(now)
        self._paused = {share for share, pause in self._demoted.items() if pause.until > now}
        self._coming = []

    def forget(self, now: float) -> None:
        """Forgets those whose pause ended long ago. Nobody else's bursts are looked at for them any more."""
        ends = {share: pause.until + FORGET_S for share, pause in self._demoted.items()}
        for share in [share for share, at in ends.items() if at <= now]:
            del self._demoted[share], ends[share]
        self.forget_at = min(ends.values(), default=inf)

    def add(self, sources: Iterable[Address]) -> Iterable[Address]:
        """Takes some of the known sources; returns those of them that are not demoted.

        Those on exempt loopback are left out: they pass without being known, so to demote them is no use.
        """
        of = self._networks.of
        sources = [source for source in sources if of(source[0])]
        if self._paused:
            sources = [source for source in sources if self._paused.isdisjoint(self._shares_of(source))]
        self._coming.extend(sources)
        return sources

    def complete(self) -> None:
        """Holds the sources that were added for known, and no others."""
        self._known, self._coming = frozenset(self._coming), []
        if self._paused:
            self._counts.clear()  # those who are demoted may have been counted until now

    def saw(self, bursts: Iterable[Burst]) -> None:
        """Counts what has arrived."""
        for data, segment_bytes, source, _ in bursts:
            count = datagram_count(len(data), segment_bytes)
            if source in self._known:
                if self.is_watching:
                    self._counts[source, kind_of(data)] += count
            elif self._demoted and not self._demoted.keys().isdisjoint(self._shares_of(source)):
                self._arrived[kind_of(data)] += count
            elif self.is_watching and self._networks.of(source[0]):
                self._others[kind_of(data)] += count

    def arrived(self) -> Mapping[Kind, int]:
        """Returns how many datagrams of demoted sources have arrived since the last call."""
        arrived, self._arrived = self._arrived, Counter()
        return arrived

    def others(self) -> Mapping[Kind, int]:
        """Returns how many datagrams of others, who are not exempt, have arrived since the last call, while
        it watched: of strangers, and of those whom the server knows and the filter has no room for."""
        others, self._others = self._others, Counter()
        return others

    def demote(self, strangers: int, now: float) -> bool:
        """Demotes who stands out among those who were counted, and begins to count anew. Returns whether
        anybody did. `strangers` is how many datagrams of theirs have arrived meanwhile."""
        counts, self._counts = self._counts, Counter()
        of_networks: Counter[Share] = Counter()
        for (source, _), count in counts.items():
            of_networks[self._shares_of(source)[-1]] += count
        if not of_networks:
            return False
        network, most = of_networks.most_common(1)[0]
        total = of_networks.total()
        if most <= strangers or (2 * most <= total and most * len(of_networks) <= OUTSTANDING_FACTOR * total):
            return False
        within: Counter[Share] = Counter()
        for (source, _), count in counts.items():
            shares = self._shares_of(source)
            if shares[-1] == network:
                within[shares[0]] += count
        narrowest, its = within.most_common(1)[0]
        share = narrowest if 2 * its > most else network
        self._pause(share, now)
        for (source, kind), count in counts.items():
            if share in self._shares_of(source):
                self._arrived[kind] += count
        return True

    def _pause(self, share: Share, now: float) -> None:
        pause = self._demoted.setdefault(share, _Pause())
        self._demoted.move_to_end(share)
        pause.length_s = min(2 * pause.length_s, PAUSE_S_MAX)
        pause.until = now + pause.length_s
        self.forget_at = min(self.forget_at, pause.until + FORGET_S)
        if len(self._demoted) > DEMOTED_MAX:
            self._demoted.popitem(last=False)

    def _shares_of(self, source: Address) -> tuple[Share, ...]:
        """Returns the IP or /64 of a source, and its networks, the widest last."""
        return tuple([share for share, _ in self._networks.shares_of(source)])
