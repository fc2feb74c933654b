"""Token buckets: how much an address, or all strangers together, may ask of a server per second.

A bucket fills at its rate and holds one second's worth. A request that finds anything in it is served whole,
so the bucket may go below empty: a burst larger than the bucket is paid for by waiting afterwards, and not
refused for ever. Rates are kept only for proven addresses (PROTOCOL §6). If they were kept for addresses
that can be forged, anyone could use up the rate of others, as is possible at open servers.
"""

from collections import OrderedDict
from math import inf

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S


class Rate:
    """One bucket that gets `per_s` tokens per second; 0 is no limit."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._tokens = per_s
        self._at = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Takes `amount` tokens if the bucket has any; else takes nothing and returns False."""
        if not self.per_s:
            return True
        self._tokens = min(self.per_s, self._tokens + (now - self._at) * self.per_s)
        self._at = now
        if self._tokens <= 0:
            return False
        self._tokens -= amount
        return True


class _Budget:
    __slots__ = ("at", "copies", "overdrawn_at", "publishes")

    def __init__(self, publishes: float, copies: float, now: float) -> None:
        self.publishes = publishes
        self.copies = copies
        self.at = now
        self.overdrawn_at = -inf


class PublishRates:
    """What each address may publish: lines per second, and the copies per second that they cause.

    Remembers the `capacity` addresses that published last. A forgotten address begins with full buckets.
    """

    def __init__(self, publishes_per_s: float, copies_per_s: float, capacity: int) -> None:
        self.publishes_per_s = publishes_per_s
        self.copies_per_s = copies_per_s
        self.capacity = capacity
        self._budgets: OrderedDict[Address, _Budget] = OrderedDict()

    def __len__(self) -> int:
        return len(self._budgets)

    def is_large(self, lines: int, copies: int) -> bool:
        """Whether this is more than full buckets hold."""
        return lines > self.publishes_per_s > 0 or copies > self.copies_per_s > 0

    def take(self, address: Address, lines: int, copies: int, now: float) -> bool:
        """Whether this address may publish `lines`, which cause `copies`, now; if so, it is charged."""
        budget = self._budgets.get(address)
        if budget is None:
            if len(self._budgets) >= self.capacity:
                self._budgets.popitem(last=False)
            budget = self._budgets[address] = _Budget(self.publishes_per_s, self.copies_per_s, now)
        else:
            self._budgets.move_to_end(address)
            gone_s = now - budget.at
            budget.at = now
            budget.publishes = min(self.publishes_per_s, budget.publishes + gone_s * self.publishes_per_s)
            budget.copies = min(self.copies_per_s, budget.copies + gone_s * self.copies_per_s)
        if (self.publishes_per_s and budget.publishes <= 0) or (self.copies_per_s and budget.copies <= 0):
            budget.overdrawn_at = now
            return False
        budget.publishes -= lines
        budget.copies -= copies
        return True

    def was_overdrawn(self, address: Address, now: float) -> bool:
        """Whether this address was refused anything in the last 10 s."""
        budget = self._budgets.get(address)
        return budget is not None and now - budget.overdrawn_at < OVERDRAWN_S
