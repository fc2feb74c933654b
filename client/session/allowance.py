"""The CPU time that a client spends on stamps: an allowance for each server, and one for all. Sans-IO.

PROTOCOL §7.8. Nobody knows before paying whether a server keeps the leases that it sells. So all servers
together may cost 10 s, and each of them half of what the others have left of that. What was spent comes back
after ten minutes, so that nobody is shut out for ever. What the stamp of a lease cost comes back sooner, when
that lease is renewed a while after its purchase; but a server that ends such a lease is in doubt for ten
minutes, in which nothing comes back so. A search that bought nothing comes back after ten minutes only.

What comes back sooner, and what it costs to keep leases (§7.9), is 0.9 % of a core in all for each server,
and a second that was saved. Keeping goes first. It does not hang on the allowance, so that leases which stand
are kept whatever new ones cost; and at all servers together no more than 4.5 % of a core are planned.

So no server gets more than 11.4 s in ten minutes, at whatever price, and whatever it keeps or ends. One that
sells and does not keep gets 5 s.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

ALL_S = 10.0
PROOF_S = 15.0  # from a purchase to a renewal that counts: no less than most renewal intervals
DOUBT_S = 600.0
TRY_S = 4e-7

SHARE = 0.009  # of a core, for one server: what comes back sooner, and what keeping costs
SHARE_OF_ALL = 5 * SHARE  # for keeping at all servers
SAVED_S_MAX = 1.0  # of its share, what a server may save; the half of it is for keeping alone
PAUSE_S = 2.0  # after the share was used up
PLANNED = 0.75  # of a share: stamps may take longer than on average
KEEPER_S = 60.0  # a server for which nothing was planned for so long needs no share

FOUND_MAX = 16  # stamps that have bought nothing yet


@dataclass(slots=True)
class _Cost:
    at: float
    cost_s: float
    server: "Allowance"


@dataclass(slots=True)
class _Part:
    """What a search has added to a cost."""

    cost: _Cost
    cost_s: float


@dataclass(slots=True)
class _Purchase:
    """When a lease was bought, and what its stamp cost; leases that had one stamp share the list."""

    at: float
    parts: list[_Part]


class Spending:
    """What all servers together have cost for new leases, without what has come back.

    `try_s` is the CPU time that a try takes on this machine: the driver measures it. With 0 nothing is
    bounded.
    """

    def __init__(self, try_s: float = TRY_S) -> None:
        self.try_s = try_s
        self.spent_s = 0.0
        self._costs: deque[_Cost] = deque()
        self._keepers: dict[Allowance, float] = {}  # with the time when something was planned for them

    def measured(self, cpu_s: float, tries: int) -> None:
        """Takes the CPU time that some tries have taken."""
        self.try_s += (cpu_s / tries - self.try_s) / 8

    def add(self, cost: _Cost) -> None:
        """Takes what one server costs from now on."""
        self._costs.append(cost)

    def forget_before(self, at: float) -> None:
        """Brings back what was spent by this time, on whichever server."""
        while self._costs and self._costs[0].at <= at:
            cost = self._costs.popleft()
            cost.server.bring_back(cost)

    def share(self, keeper: "Allowance", now: float) -> float:
        """Returns the part of a core with which leases may be kept at this server."""
        self._keepers[keeper] = now
        for other, at in list(self._keepers.items()):
            if at <= now - KEEPER_S:
                del self._keepers[other]
        return min(SHARE, SHARE_OF_ALL / len(self._keepers))


class Allowance:
    """What may be spent on one server's stamps."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._spent_s = 0.0
        self._costs: deque[_Cost] = deque()
        self._search: list[_Part] = []  # what the present search has cost
        self._found: dict[bytes, list[_Part]] = {}  # what each stamp cost
        self._bought: dict[bytes, _Purchase] = {}  # leases that stand
        self._proven: deque[_Part] = deque()  # what comes back sooner
        self._doubtful_until = -inf
        self._saved_s = SAVED_S_MAX  # of the share; less than nothing where a stamp took long
        self._saved_at = inf

    # --- New leases ----------------------------------------------------------------------------------

    def is_left(self, now: float) -> bool:
        """Whether there is something to spend on new leases."""
        self._spending.forget_before(now - DOUBT_S)
        self._save(now)
        others_s = self._spending.spent_s - self._spent_s
        return self._spent_s < (ALL_S - others_s) / 2

    def begin_search(self) -> None:
        """Notes that a stamp is looked for from now on; what the one before cost comes back with time."""
        self._search = []

    def spend(self, tries: int, now: float) -> None:
        """Notes what was spent on new leases."""
        if not tries:
            return
        cost_s = tries * self._spending.try_s
        if not self._costs or now >= self._costs[-1].at + 1.0:  # one a second is exact enough
            self._costs.append(_Cost(now, 0.0, self))
            self._spending.add(self._costs[-1])
        cost = self._costs[-1]
        cost.cost_s += cost_s
        self._spent_s += cost_s
        self._spending.spent_s += cost_s
        if not self._search or self._search[-1].cost is not cost:
            self._search.append(_Part(cost, 0.0))
        self._search[-1].cost_s += cost_s

    def found(self, stamp: bytes) -> None:
        """Notes that the search has found this stamp."""
        self._found[stamp], self._search = self._search, []
        if len(self._found) > FOUND_MAX:
            del self._found[next(iter(self._found))]

    def bring_back(self, cost: _Cost) -> None:
        """Notes that this counts no more. Older costs must have come back before."""
        self._bring_back_part(cost, cost.cost_s)
        if self._costs and self._costs[0] is cost:
            self._costs.popleft()

    def _bring_back_part(self, cost: _Cost, cost_s: float) -> None:
        self._spent_s -= cost_s
        self._spending.spent_s -= cost_s
        cost.cost_s -= cost_s

    def bought(self, topic: bytes, stamp: bytes, now: float) -> None:
        """Notes that a lease was bought with this stamp."""
        self._bought[topic] = _Purchase(now, self._found.get(stamp, []))

    def renewed(self, topic: bytes, now: float) -> None:
        """Notes that a lease was renewed; if it was bought, that may bring back what its stamp cost."""
        purchase = self._bought.get(topic)
        if purchase is None or now < max(purchase.at + PROOF_S, self._doubtful_until):
            return
        self._save(now)
        self._proven += purchase.parts
        purchase.parts.clear()

    def ended(self, topics: Iterable[bytes], now: float) -> None:
        """Notes that the server has ended these leases, or let them end."""
        for topic in topics:
            if self._bought.pop(topic, None) is not None:
                self._doubtful_until = now + DOUBT_S

    def unwanted(self, topic: bytes) -> None:
        """Notes that a lease is wanted no more, or not to be kept."""
        self._bought.pop(topic, None)

    # --- Leases that stand ---------------------------------------------------------------------------

    def may_renew(self, now: float) -> bool:
        """Whether there is something to spend on keeping leases."""
        self._save(now)
        return self._saved_s > 0

    def renews_again_at(self, now: float) -> float:
        """Returns when there is something to spend again."""
        return now + max(PAUSE_S, -self._saved_s / SHARE)

    def spend_on_renewals(self, tries: int) -> None:
        """Notes what was spent on keeping leases. `may_renew` must have been asked before."""
        self._saved_s -= tries * self._spending.try_s

    def tries_for_renewals(self, interval_s: float, now: float) -> float:
        """Returns the number of tries that may be planned for keeping leases in this time."""
        share = self._spending.share(self, now)
        return PLANNED * share * interval_s / self._spending.try_s if self._spending.try_s else inf

    def _save(self, now: float) -> None:
        """Adds the share of the time that has passed; brings back what may come back of it."""
        self._saved_s += SHARE * max(0.0, now - self._saved_at)
        self._saved_at = now
        while self._proven and (free_s := self._saved_s - SAVED_S_MAX / 2) > 0:
            part = self._proven[0]
            back_s = min(part.cost_s, part.cost.cost_s, free_s)
            self._bring_back_part(part.cost, back_s)
            self._saved_s -= back_s
            part.cost_s -= back_s
            if part.cost_s <= 0 or part.cost.cost_s <= 0:
                self._proven.popleft()
        self._saved_s = min(self._saved_s, SAVED_S_MAX)
