"""Which of the known sources flood, and so are no longer let past the filter for a while. Sans-IO.

Whom a server knows passes the filter of a flood (`kcast.pubsub.flood`). A party needs one lease to be known,
or the address of somebody who has one. So when the receive buffer fills though strangers are sifted, it is
counted which of the known send most. The network, or the single address, that stands out counts as a stranger
for some seconds, and each further time for twice as long. What it sends still passes by chance, as much as
can be taken.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from math import inf

from kcast.pubsub.endpoint import Address, Burst, datagram_count
from kcast.pubsub.networks import Networks, Share
from kcast.pubsub.sieve import Kind, kind_of

PAUSE_S_MIN = 4.0
PAUSE_S_MAX = 64.0
FORGET_S = 300.0  # after the end of a pause; the next one is the shortest again
DEMOTED_MAX = 256  # the oldest gives way
OUTSTANDING_FACTOR = 4  # times what networks send on average; or more than half of all


class _Pause:
    __slots__ = ("length_s", "until")

    def __init__(self) -> None:
        self.length_s = PAUSE_S_MIN / 2
        self.until = 0.0


class Heavy:
    """Counts what known sources send while `is_watching`, and tells who is `demoted`.

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
