"""What each subscriber may still be sent: credit, and rates of bytes. PROTOCOL §5.7.

The threat: whoever has subscribed may have gone, or another may have its address by now, and the copies go on
until the lease ends. So the server bounds the bytes that it forwards without a sign of life: at most 64 KiB,
or what the address has shown to take within the last ttl, if that is more (compare RFC 7641 §4.5.1 for CoAP,
which bounds notifications between acknowledgements, and RFC 9000 §8.1 for QUIC).

Only a cookie shows that a client received something: it cannot have one that was minted after it left. So the
server notes how much it had sent when it minted one. When a renewal shows that cookie, or a later one, all
that was sent before counts as taken. An older cookie shows nothing new, so a replay brings no credit.

    credit = max(64 KiB, what was taken within the last ttl) - what was sent since the noted cookie
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from math import inf

from kcast.pubsub import wire
from kcast.pubsub.by_network import ByNetwork
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Transmit
from kcast.pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    COOKIE_TIME_STEP_S,
    CREDIT_BYTES_MIN,
    HEADER_BYTES,
    Limits,
)
from kcast.pubsub.networks import Networks, Share
from kcast.pubsub.rates import EvenParts, Rate, Want

EXPIRED_MAX = 1000  # forgotten in one go
FORMER_MAX = 2  # as many addresses as a table has leases: half of those remembered have none any more


class _Subscriber:
    """What is kept about one address. Byte counts are of payload, since it was first leased to."""

    __slots__ = (
        "kept_until",
        "marked_at",
        "marked_bytes",
        "proven_bytes",
        "rates",
        "sent_bytes",
        "taken_bytes",
        "taken_since",
        "window_bytes",
    )

    def __init__(self, rates: tuple[Rate, ...], now: float) -> None:
        self.rates = rates
        self.sent_bytes = 0
        self.marked_at = inf  # when the noted cookie was minted, and what had been sent by then
        self.marked_bytes = 0
        self.proven_bytes = 0
        self.taken_bytes = [0, 0, 0]  # in this half of a ttl, and in the two before
        self.taken_since = now
        self.window_bytes: float = CREDIT_BYTES_MIN
        self.kept_until = now

    @property
    def credit_bytes(self) -> float:
        return self.window_bytes - (self.sent_bytes - self.proven_bytes)

    def prove(self, ttl_s: float, now: float) -> None:
        """Takes it that all arrived that was sent before the noted cookie was minted."""
        halves = int((now - self.taken_since) / (ttl_s / 2))
        if halves:
            self.taken_bytes = ([0] * min(halves, 3) + self.taken_bytes)[:3]
            self.taken_since += halves * (ttl_s / 2)
        self.taken_bytes[0] += self.marked_bytes - self.proven_bytes
        self.proven_bytes = self.marked_bytes
        self.marked_at = inf
        self.window_bytes = max(CREDIT_BYTES_MIN, sum(self.taken_bytes))


class Subscribers:
    """The addresses that hold leases, or did a moment ago; not those that are in no network.

    Copies that are not sent are counted in `drops`. Besides credit, each IP and network has its share of
    `limits.egress_bytes_per_s`, headers included. Who is sent little is sent it all, whoever shares it.
    """

    def __init__(self, networks: Networks, limits: Limits, ttl_s: float, drops: Counter[Drop]) -> None:
        self._networks = networks
        self._limits = limits
        self._ttl_s = ttl_s
        # A cookie that was given while it was known must have lost its value when it is forgotten. Else the
        # cookie would bring the credit of a newcomer. Where there are more addresses than leases, it may.
        self._kept_s = max(ttl_s, COOKIE_LEASE_LIFE_S)
        self._drops = drops
        self.refused = 0  # copies that were not sent
        self._subscribers: OrderedDict[Address, _Subscriber] = OrderedDict()  # by `kept_until`
        self._rates: dict[Share, Rate] = {}
        self._rate_users: Counter[Share] = Counter()
        self._parts = EvenParts()
        self.sources = ByNetwork(networks)
        """The addresses, by their networks."""

    def __len__(self) -> int:
        return len(self._subscribers)

    def __contains__(self, address: Address) -> bool:
        return address in self._subscribers

    # --- Leases and cookies --------------------------------------------------------------------------

    def leased(self, address: Address, now: float, *, is_bare: bool = False) -> None:
        """Takes note that a lease of this address was opened or renewed; `is_bare` if no cookie was shown.

        Who has shown none, at an open server, has rates but no credit: nothing would ever refill it.
        """
        subscriber = self._subscribers.get(address)
        if subscriber is None:
            if not self._networks.of(address[0]):
                return
            subscriber = self._subscribers[address] = _Subscriber(self._rates_of(address), now)
            if is_bare:
                subscriber.window_bytes = inf
            self.sources.add(address)
            if len(self._subscribers) > FORMER_MAX * self._limits.leases:
                self._forget_oldest()
        elif not is_bare and subscriber.window_bytes == inf:
            subscriber.window_bytes, subscriber.proven_bytes = CREDIT_BYTES_MIN, subscriber.sent_bytes
        self._keep(address, subscriber, now)

    def showed(self, address: Address, minted_at: float, now: float) -> None:
        """Takes note that a renewal has shown a cookie that was minted at that time."""
        subscriber = self._subscribers.get(address)
        if subscriber is not None and minted_at >= subscriber.marked_at:
            subscriber.prove(self._ttl_s, now)

    def minted(self, address: Address, now: float) -> None:
        """Takes note that a cookie is minted for this address."""
        subscriber = self._subscribers.get(address)
        if subscriber is None:
            return
        if subscriber.marked_at == inf:
            # The noted cookie stays until it, or a later one, is shown. If each new one took its place, a
            # client with many requests under way would never show it.
            subscriber.marked_at = now - COOKIE_TIME_STEP_S
            subscriber.marked_bytes = subscriber.sent_bytes
        if len(self._subscribers) <= self._limits.leases:
            # Else somebody lets cookies be minted for ever more addresses that had a lease once.
            self._keep(address, subscriber, now)

    def credit_bytes(self, address: Address) -> int | None:
        """Returns the bytes that this address is still sent without a sign of life; None if unbounded."""
        subscriber = self._subscribers.get(address)
        if subscriber is None or subscriber.window_bytes == inf:
            return None
        return max(0, int(subscriber.credit_bytes))

    def next_expiry(self) -> float | None:
        """Returns when the first address is forgotten; None if there is none."""
        first = next(iter(self._subscribers.values()), None)
        return None if first is None else first.kept_until

    def expire(self, now: float) -> None:
        """Forgets addresses whose leases and cookies have ended, a bounded number of them."""
        for _ in range(EXPIRED_MAX):
            address, subscriber = next(iter(self._subscribers.items()), (None, None))
            if address is None or subscriber is None or subscriber.kept_until > now:
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        address, _ = self._subscribers.popitem(last=False)
        self.sources.remove(address)
        for share, _ in self._networks.shares_of(address):
            self._rate_users[share] -= 1
            if not self._rate_users[share]:
                del self._rate_users[share], self._rates[share]

    def _keep(self, address: Address, subscriber: _Subscriber, now: float) -> None:
        subscriber.kept_until = now + self._kept_s
        self._subscribers.move_to_end(address)

    def _rates_of(self, address: Address) -> tuple[Rate, ...]:
        rates = []
        for share, factor in self._networks.shares_of(address):
            self._rate_users[share] += 1
            rate = self._rates.get(share)
            if rate is None:
                rate = self._rates[share] = Rate(self._limits.egress_bytes_per_s * factor)
            rates.append(rate)
        return tuple(rates)

    # --- Copies --------------------------------------------------------------------------------------

    def granted(self, transmit: Transmit, now: float) -> Iterator[Transmit]:
        """Yields what may be sent of a transmit, and charges its destinations for it."""
        data, segment_bytes, destinations, line_count = transmit
        size_bytes = len(data)
        wire_bytes = size_bytes + -(-size_bytes // segment_bytes) * HEADER_BYTES
        granted: list[Address] = []
        for address in destinations:
            subscriber = self._subscribers.get(address)
            if subscriber is None:
                granted.append(address)
                continue
            unproven_bytes = subscriber.sent_bytes - subscriber.proven_bytes
            fitting_bytes = size_bytes
            if unproven_bytes + size_bytes > CREDIT_BYTES_MIN:
                credit_bytes = subscriber.credit_bytes
                if credit_bytes < size_bytes:
                    fitting_bytes = max(0, int(credit_bytes)) // segment_bytes * segment_bytes
                    self._refuse(Drop.CREDIT, data[fitting_bytes:])
            if fitting_bytes and not self._is_within_rates(address, subscriber, wire_bytes, now):
                self._refuse(Drop.EGRESS_RATE, data[:fitting_bytes])
                continue
            subscriber.sent_bytes += fitting_bytes
            if fitting_bytes == size_bytes:
                for rate in subscriber.rates:
                    rate.charge(wire_bytes, now)
                granted.append(address)
            elif fitting_bytes:
                for rate in subscriber.rates:
                    rate.charge(fitting_bytes, now)
                fitting = data[:fitting_bytes]
                yield Transmit(fitting, segment_bytes, (address,), len(wire.split_lines(fitting)[0]))
        if granted:
            yield Transmit(data, segment_bytes, granted, line_count)

    def _is_within_rates(
        self, address: Address, subscriber: _Subscriber, size_bytes: int, now: float
    ) -> bool:
        if not any(rate.left(now) <= 0 for rate in subscriber.rates):
            return True
        wants = []
        member: Hashable = address
        for rate, (share, _) in zip(subscriber.rates, self._networks.shares_of(address), strict=True):
            if rate.left(now) <= 0:
                wants.append(Want(share, member, size_bytes / rate.per_s))
            member = share
        return self._parts.take(wants, now)

    def _refuse(self, drop: Drop, data: bytes) -> None:
        copies = len(wire.split_lines(data)[0])
        self._drops[drop] += copies
        self.refused += copies
