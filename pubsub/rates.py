"""Token buckets: how much an address, a network, or all together may ask of a server per second.

A bucket fills at its rate and holds a second's worth, unless told otherwise. A request that finds anything in
it is served whole, so the bucket may go below empty: a burst larger than the bucket is paid for by waiting
afterwards, and not refused for ever. Rates are kept only for proven addresses (PROTOCOL §6). If they were
kept for addresses that can be forged, anyone could use up the rate of others, as is possible at open servers.
"""

from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S, Limits
from kcast.pubsub.networks import SHARES_MAX, Networks


class Rate:
    """One bucket that gets `per_s` tokens per second and holds those of `burst_s`; 0 is no limit."""

    __slots__ = ("_at", "_most", "_tokens", "per_s")

    def __init__(self, per_s: float, burst_s: float = 1.0) -> None:
        self.per_s = per_s
        self._most = per_s * burst_s
        self._tokens = self._most
        self._at = -inf

    def left(self, now: float) -> float:
        """Returns the tokens in the bucket, below 0 where it was overdrawn; infinite without a limit."""
        if not self.per_s:
            return inf
        if now > self._at:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self.per_s)
            self._at = now
        return self._tokens

    def take(self, amount: float, now: float) -> bool:
        """Takes `amount` tokens if the bucket has any; else takes nothing and returns False."""
        if self.left(now) <= 0:
            return False
        self._tokens -= amount
        return True

    def charge(self, amount: float, now: float) -> None:
        """Takes `amount` tokens, also from an empty bucket; what is owed is a second's worth at most."""
        self._tokens = max(self.left(now) - amount, -self.per_s)

    def ready_at(self, now: float) -> float:
        """Returns when the bucket has something in it; `now` if it has."""
        left = self.left(now)
        return now if left > 0 else now + max(-left, 1.0) / self.per_s


class Demand(NamedTuple):
    """What publishes ask for: lines, the copies that they cause, and the bytes of these.

    `is_vouched` says whether a cookie was shown with them: nobody else can have sent them. `unwanted` are
    topics among them without a subscriber.
    """

    lines: int
    copies: int
    size_bytes: int
    is_vouched: bool = False
    unwanted: tuple[bytes, ...] = ()


class _Budget:
    __slots__ = ("copies", "lines", "size_bytes")

    def __init__(self, limits: Limits, factor: int) -> None:
        self.lines = Rate(limits.publishes_per_s * factor)
        self.copies = Rate(limits.copies_per_s * factor)
        self.size_bytes = Rate(limits.egress_bytes_per_s * factor)

    def has_any(self, now: float) -> bool:
        return self.lines.left(now) > 0 and self.copies.left(now) > 0 and self.size_bytes.left(now) > 0

    def charge(self, demand: Demand, now: float) -> None:
        self.lines.take(demand.lines, now)
        self.copies.take(demand.copies, now)
        self.size_bytes.take(demand.size_bytes, now)


class PublishRates:
    """What each IP and each network may publish a second, all ports together: a network a multiple of an IP's
    (`networks.shares_of`). On loopback each port has a rate of its own.

    Remembers those of the addresses that published last, `limits.publishers` of them. A forgotten one begins
    with full buckets.
    """

    def __init__(self, limits: Limits, networks: Networks) -> None:
        self._limits = limits
        self._networks = networks
        self._budgets: OrderedDict[Hashable, _Budget] = OrderedDict()
        self._overdrawn_at: OrderedDict[Address, float] = OrderedDict()

    def __len__(self) -> int:
        return max(len(self._budgets), len(self._overdrawn_at))

    def is_large(self, demand: Demand) -> bool:
        """Whether this is more than full buckets hold."""
        limits = self._limits
        return (
            demand.lines > limits.publishes_per_s > 0
            or demand.copies > limits.copies_per_s > 0
            or demand.size_bytes > limits.egress_bytes_per_s > 0
        )

    def take(self, address: Address, demand: Demand, now: float) -> bool:
        """Whether this address may publish so much now; if so, it and its networks are charged."""
        budgets = [self._budget(share, factor) for share, factor in self._networks.shares_of(address)]
        for budget in budgets:
            if not budget.has_any(now):
                self.note_overdrawn(address, now)
                return False
        for budget in budgets:
            budget.charge(demand, now)
        return True

    def note_overdrawn(self, address: Address, now: float) -> None:
        """Takes note that this address is refused something."""
        self._overdrawn_at[address] = now
        self._overdrawn_at.move_to_end(address)
        if len(self._overdrawn_at) > self._limits.publishers:
            self._overdrawn_at.popitem(last=False)

    def was_overdrawn(self, address: Address, now: float) -> bool:
        """Whether this address was refused anything in the last 10 s."""
        return now - self._overdrawn_at.get(address, -inf) < OVERDRAWN_S

    def _budget(self, share: Hashable, factor: int) -> _Budget:
        budget = self._budgets.get(share)
        if budget is None:
            if len(self._budgets) >= SHARES_MAX * self._limits.publishers:
                self._budgets.popitem(last=False)
            budget = self._budgets[share] = _Budget(self._limits, factor)
        else:
            self._budgets.move_to_end(share)
        return budget
