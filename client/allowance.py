"""The CPU time that a client spends on stamps: an allowance for each server, and one for all. Sans-IO.

PROTOCOL §5.11. Nobody knows before paying whether a server keeps the leases that it sells. So all servers
together may cost 10 s, and each of them half of what the others have left of that. What was spent comes back
when a lease that was bought with it is renewed, a while after the purchase. A server that ends such a lease
is in doubt for ten minutes, in which its renewals bring nothing back. What bought nothing comes back after
ten minutes, so that nobody is shut out for ever; so does what it costs to keep leases (§7.9).

So a server that sells and does not keep gets 5 s in ten minutes, at whatever price; the first time twice as
much, if it keeps its leases for a while. Those that keep what they sell cost what they ask, and there is
something left for each of them, though others take all that they can.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

ALL_S = 10.0
PROOF_S = 15.0  # from a purchase to a renewal that counts: no less than most renewal intervals
DOUBT_S = 600.0
TRY_S = 4e-7


@dataclass(slots=True)
class _Cost:
    at: float
    cost_s: float
    server: "Allowance"


class Spending:
    """What all servers together have cost, without what has come back.

    `try_s` is the CPU time that a try takes on this machine: the driver measures it. With 0 nothing is
    bounded.
    """

    def __init__(self, try_s: float = TRY_S) -> None:
        self.try_s = try_s
        self.spent_s = 0.0
        self._costs: deque[_Cost] = deque()

    def add(self, cost: _Cost) -> None:
        """Takes what one server costs from now on."""
        self._costs.append(cost)

    def forget_before(self, at: float) -> None:
        """Brings back what was spent by this time, on whichever server."""
        while self._costs and self._costs[0].at <= at:
            cost = self._costs.popleft()
            cost.server.bring_back(cost)


class Allowance:
    """What may be spent on one server's stamps."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._spent_s = 0.0
        self._costs: deque[_Cost] = deque()
        self._lasting_costs: deque[_Cost] = deque()
        self._bought: dict[bytes, float] = {}  # leases that stand, with the time when they were bought
        self._doubtful_until = -inf

    def is_left(self, now: float) -> bool:
        """Whether there is something to spend."""
        self._spending.forget_before(now - DOUBT_S)
        others_s = self._spending.spent_s - self._spent_s
        return self._spent_s < (ALL_S - others_s) / 2

    def spend(self, tries: int, now: float, *, is_lasting: bool = False) -> None:
        """Notes what was spent; what is lasting comes back with time only."""
        if not tries:
            return
        cost_s = tries * self._spending.try_s
        costs = self._lasting_costs if is_lasting else self._costs
        if not costs or now >= costs[-1].at + 1.0:  # one a second is exact enough
            costs.append(_Cost(now, 0.0, self))
            self._spending.add(costs[-1])
        costs[-1].cost_s += cost_s
        self._spent_s += cost_s
        self._spending.spent_s += cost_s

    def bring_back(self, cost: _Cost) -> None:
        """Notes that this counts no more. Older costs must have come back before."""
        self._spent_s -= cost.cost_s
        self._spending.spent_s -= cost.cost_s
        cost.cost_s = 0.0
        for costs in (self._costs, self._lasting_costs):
            if costs and costs[0] is cost:
                costs.popleft()

    def bought(self, topic: bytes, now: float) -> None:
        """Notes that a lease was bought."""
        self._bought[topic] = now

    def renewed(self, topic: bytes, now: float) -> None:
        """Notes that a lease was renewed; if it was bought, that may bring back what was spent."""
        bought_at = self._bought.get(topic, inf)
        if now < max(bought_at + PROOF_S, self._doubtful_until):
            return
        while self._costs and self._costs[0].at <= bought_at:
            self.bring_back(self._costs[0])

    def ended(self, topics: Iterable[bytes], now: float) -> None:
        """Notes that the server has ended these leases, or let them end."""
        for topic in topics:
            if self._bought.pop(topic, None) is not None:
                self._doubtful_until = now + DOUBT_S

    def unwanted(self, topic: bytes) -> None:
        """Notes that a lease is wanted no more."""
        self._bought.pop(topic, None)
