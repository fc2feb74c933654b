"""What each subscriber may still be sent: credit, and rates of bytes. PROTOCOL §5.7.

The threat: whoever has subscribed may have gone, or another may have its address by now, and the copies go on
until the lease ends. So the server bounds the bytes that it forwards without a sign of life: at most 64 KiB,
or what the address has shown to take within the last ttl, if that is more (compare RFC 7641 §4.5.1 for CoAP,
which bounds notifications between acknowledgements, and RFC 9000 §8.1 for QUIC).

Only a cookie shows that a client received something: it cannot have one that was minted after it left. So the
server notes how much it had sent when it minted one. When a renewal shows that cookie, or a later one, all
that was sent before counts as taken. An older cookie shows nothing new, so a replay brings no credit.

    credit = max(64 KiB, what was taken within the last ttl) - what was sent since the noted cookie

Nothing is noted before the first copy is sent: until then there is nothing to prove, whatever cookies were
made. So who only holds leases takes no memory here.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from math import inf

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.holders import Holders
from kcast.pubsub.limits import COOKIE_TIME_STEP_S, CREDIT_BYTES_MIN, HEADER_BYTES, Limits
from kcast.pubsub.networks import Networks, Share
from kcast.pubsub.rates import EvenParts, Rate, Want

EXPIRED_MAX = 1000  # forgotten in one go


class _ShareRate(Rate):
    """The rate of an IP or a network, and that of the next wider one."""

    __slots__ = ("share", "users", "wider")

    def __init__(self, share: Share, per_s: int, wider: "_ShareRate | None") -> None:
        super().__init__(per_s)
        self.share = share
        self.wider = wider
        self.users = 0  # addresses, or narrower rates


class _Credit:
    """What one address was sent and has taken. Byte counts are of payload, since the first copy."""

    __slots__ = (
        "marked_at",
        "marked_bytes",
        "proven_bytes",
        "rate",
        "sent_bytes",
        "taken_bytes",
        "taken_since",
        "window_bytes",
    )

    def __init__(self, rate: _ShareRate, window_bytes: float, now: float) -> None:
        self.rate = rate
        self.sent_bytes = 0
        self.marked_at = inf  # when the noted cookie was minted, and what had been sent by then
        self.marked_bytes = 0
        self.proven_bytes = 0
        self.taken_bytes = 0, 0, 0  # in this half of a ttl, and in the two before
        self.taken_since = now
        self.window_bytes = window_bytes

    @property
    def left_bytes(self) -> float:
        return self.window_bytes - (self.sent_bytes - self.proven_bytes)

    def prove(self, ttl_s: float, now: float) -> None:
        """Takes it that all arrived that was sent before the noted cookie was minted."""
        halves = int((now - self.taken_since) / (ttl_s / 2))
        latest, *former = (*[0] * min(halves, 3), *self.taken_bytes)[:3]
        self.taken_since += halves * (ttl_s / 2)
        latest += self.marked_bytes - self.proven_bytes
        self.taken_bytes = latest, former[0], former[1]
        self.proven_bytes = self.marked_bytes
        self.marked_at = inf
        self.window_bytes = max(CREDIT_BYTES_MIN, sum(self.taken_bytes))


class Subscribers:
    """The `holders` of leases, or of some a moment ago, and what they may be sent; not those in no network.

    At an open server (`is_open`) it is noted at once who has shown a cookie. Who has not has rates but no
    credit: nothing would ever refill it.

    Copies that are not sent are counted in `drops`. Besides credit, each IP and network has its share of
    `limits.egress_bytes_per_s`, headers included. Who is sent little is sent it all, whoever shares it.
    """

    def __init__(
        self,
        holders: Holders,
        networks: Networks,
        limits: Limits,
        ttl_s: float,
        drops: Counter[Drop],
        *,
        is_open: bool = False,
    ) -> None:
        self._holders = holders
        self._networks = networks
        self._limits = limits
        self._ttl_s = ttl_s
        self._drops = drops
        self._is_open = is_open
        self.refused = 0  # copies that were not sent
        self._credits: dict[Address, _Credit] = {}
        self._rates: dict[Share, _ShareRate] = {}
        self._per_s: dict[int, int] = {}  # by factor: the same object for all rates that have it
        self._parts = EvenParts()
        # A cookie that was made while an address was known has lost its value when it is forgotten. Else it
        # would bring the credit of a newcomer.
        holders.forgotten = self._forget

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, address: Address) -> bool:
        return address in self._holders

    @property
    def sources(self) -> Holders:
        """The addresses, by their networks."""
        return self._holders

    # --- Leases and cookies --------------------------------------------------------------------------

    def leased(self, address: Address, now: float, *, is_bare: bool = False) -> None:
        """Takes note that a lease of this address was opened or renewed; `is_bare` if no cookie was shown."""
        credit = self._credits.get(address)
        if credit is None:
            if self._is_open:
                self._begin(address, inf if is_bare else CREDIT_BYTES_MIN, now)
        elif not is_bare and credit.window_bytes == inf:
            credit.window_bytes, credit.proven_bytes = CREDIT_BYTES_MIN, credit.sent_bytes

    def showed(self, address: Address, minted_at: float, now: float) -> None:
        """Takes note that a renewal has shown a cookie that was minted at that time."""
        credit = self._credits.get(address)
        if credit is not None and minted_at >= credit.marked_at:
            credit.prove(self._ttl_s, now)

    def minted(self, address: Address, now: float) -> None:
        """Takes note that a cookie is minted for this address."""
        credit = self._credits.get(address)
        if credit is None:
            return
        if credit.marked_at == inf:
            # The noted cookie stays until it, or a later one, is shown. If each new one took its place, a
            # client with many requests under way would never show it.
            credit.marked_at = now - COOKIE_TIME_STEP_S
            credit.marked_bytes = credit.sent_bytes
        if len(self._credits) <= self._limits.leases:
            # Else somebody lets cookies be minted for ever more addresses that had a lease once.
            self._holders.keep(address, now)

    def credit_bytes(self, address: Address) -> int | None:
        """Returns the bytes that this address is still sent without a sign of life; None if unbounded."""
        credit = self._credits.get(address)
        if credit is None:
            return CREDIT_BYTES_MIN if address in self._holders else None
        return None if credit.window_bytes == inf else max(0, int(credit.left_bytes))

    def next_expiry(self) -> float | None:
        """Returns when the first address is forgotten; None if all hold leases."""
        return self._holders.next_expiry()

    def expire(self, now: float) -> None:
        """Forgets addresses whose leases and cookies have ended, a bounded number of them."""
        self._holders.expire(now, EXPIRED_MAX)

    def _begin(self, address: Address, window_bytes: float, now: float) -> _Credit | None:
        """Begins to count what an address is sent; None if that is no matter."""
        if address not in self._holders:
            return None
        rate = self._rate_of(address)
        rate.users += 1
        credit = self._credits[address] = _Credit(rate, window_bytes, now)
        return credit

    def _forget(self, address: Address) -> None:
        credit = self._credits.pop(address, None)
        rate = None if credit is None else credit.rate
        while rate is not None:
            rate.users -= 1
            if rate.users:
                return
            del self._rates[rate.share]
            rate = rate.wider

    def _rate_of(self, address: Address) -> _ShareRate:
        """Returns the rate of the narrowest of an address's shares."""
        wider: _ShareRate | None = None
        for share, factor in reversed(self._networks.shares_of(address)):
            rate = self._rates.get(share)
            if rate is None:
                per_s = self._per_s.setdefault(factor, self._limits.egress_bytes_per_s * factor)
                rate = self._rates[share] = _ShareRate(share, per_s, wider)
                if wider is not None:
                    wider.users += 1
            wider = rate
        assert wider is not None
        return wider

    # --- Copies --------------------------------------------------------------------------------------

    def granted(self, transmit: Transmit, now: float) -> Iterator[Transmit]:
        """Yields what may be sent of a transmit, and charges its destinations for it."""
        data, segment_bytes, destinations, line_count = transmit
        size_bytes = len(data)
        wire_bytes = size_bytes + -(-size_bytes // segment_bytes) * HEADER_BYTES
        granted: list[Address] = []
        for address in destinations:
            credit = self._credits.get(address) or self._begin(address, CREDIT_BYTES_MIN, now)
            if credit is None:
                granted.append(address)
                continue
            unproven_bytes = credit.sent_bytes - credit.proven_bytes
            fitting_bytes = size_bytes
            if unproven_bytes + size_bytes > CREDIT_BYTES_MIN:
                left_bytes = credit.left_bytes
                if left_bytes < size_bytes:
                    fitting_bytes = max(0, int(left_bytes)) // segment_bytes * segment_bytes
                    self._refuse(Drop.CREDIT, data[fitting_bytes:])
            if fitting_bytes and not self._is_within_rates(address, credit.rate, wire_bytes, now):
                self._refuse(Drop.EGRESS_RATE, data[:fitting_bytes])
                continue
            credit.sent_bytes += fitting_bytes
            if fitting_bytes == size_bytes:
                _charge(credit.rate, wire_bytes, now)
                granted.append(address)
            elif fitting_bytes:
                _charge(credit.rate, fitting_bytes, now)
                fitting = data[:fitting_bytes]
                yield Transmit(fitting, segment_bytes, (address,), len(wire.split_lines(fitting)[0]))
        if granted:
            yield Transmit(data, segment_bytes, granted, line_count)

    def _is_within_rates(self, address: Address, narrowest: _ShareRate, size_bytes: int, now: float) -> bool:
        wants = []
        member: Hashable = address
        rate: _ShareRate | None = narrowest
        while rate is not None:
            if rate.left(now) <= 0:
                wants.append(Want(rate.share, member, size_bytes / rate.per_s))
            member, rate = rate.share, rate.wider
        return not wants or self._parts.take(wants, now)

    def _refuse(self, drop: Drop, data: bytes) -> None:
        copies = len(wire.split_lines(data)[0])
        self._drops[drop] += copies
        self.refused += copies


def _charge(rate: _ShareRate | None, size_bytes: int, now: float) -> None:
    while rate is not None:
        rate.charge(size_bytes, now)
        rate = rate.wider
