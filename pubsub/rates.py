"""Token buckets: how much an address, a network, or all together may ask of a server per second.

A bucket fills at its rate and holds a second's worth, unless told otherwise. A request that finds anything in
it is served whole, so the bucket may go below empty: a burst larger than the bucket is paid for by waiting
afterwards, and not refused for ever. Rates are kept only for proven addresses (PROTOCOL §6). If they were
kept for addresses that can be forged, anyone could use up the rate of others, as is possible at open servers.

Those who share a bucket are served as they come while there is anything in it: the ports of an IP, the IPs of
a network. Once it is empty, half of its rate is divided evenly among them (`EvenParts`), so that who
asks for little is served beside others who ask for all.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import inf
from typing import NamedTuple

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S, Limits
from kcast.pubsub.networks import SHARES_MAX, Networks

LONG_S = 1e9  # in which any debt is paid
KEPT = 0.5  # of a bucket's rate: what is divided evenly once the bucket is empty
MEMBERS_MAX = 256  # of an empty bucket, told apart in a second
EMPTY_MAX = 4096  # empty buckets whose members are remembered


class Rate:
    """One bucket that gets `per_s` tokens per second and holds those of `burst_s`; 0 is no limit."""

    __slots__ = ("_at", "_most", "_tokens", "per_s")

    def __init__(self, per_s: float, burst_s: float = 1.0) -> None:
        self.per_s = per_s
        # There may be as many rates as addresses, so one object serves where one does.
        self._most = per_s if burst_s == 1 else per_s * burst_s
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

    def charge(self, amount: float, now: float, *, owed_max: float = inf) -> None:
        """Takes `amount` tokens whether there are any or not; no more than `owed_max` are owed then."""
        if now > self._at:
            self.left(now)
        self._tokens = max(self._tokens - amount, -owed_max)

    def ready_at(self, now: float) -> float:
        """Returns when the bucket has something in it; `now` if it has."""
        left = self.left(now)
        return now if left > 0 else now + max(-left, 1.0) / self.per_s


class Want(NamedTuple):
    """What a member of an empty bucket asks of it, where 1.0 is all that the bucket gets in a second."""

    bucket: Hashable
    member: Hashable
    amount: float


class EvenParts:
    """What empty buckets give nevertheless, as debt: in a second half of their rate, in even parts.

    The members that divide it are those that asked while it was empty, in this second or the one before. One
    alone gets nothing. Of a bucket's members a bounded number are told apart, the others share one part. Only
    the buckets that were empty last are remembered; others begin anew.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, wants: Sequence[Want], now: float) -> bool:
        """Takes what is wanted of these buckets; or nothing of any, if it is more than one of them gives."""
        kept = [self._kept_of(want.bucket, now) for want in wants]
        pairs = list(zip(kept, wants, strict=True))
        given = [each.gives(want.member, want.amount) for each, want in pairs]
        if not all(given):
            return False
        for each, want in pairs:
            each.take(want.member, want.amount)
        return True

    def _kept_of(self, bucket: Hashable, now: float) -> "_Kept":
        kept = self._kept.get(bucket)
        if kept is None:
            if len(self._kept) >= EMPTY_MAX:
                self._kept.popitem(last=False)
            kept = self._kept[bucket] = _Kept(now)
        else:
            self._kept.move_to_end(bucket)
            kept.go_on(now)
        return kept


class _Kept:
    """The even parts of one bucket, in one second."""

    __slots__ = ("_count", "_given", "_since", "_taken")

    def __init__(self, now: float) -> None:
        self._since = now
        self._count = 1  # of the members that are reckoned with
        self._given = 0.0
        self._taken: dict[Hashable, float] = {}  # by member

    def go_on(self, now: float) -> None:
        seconds = int(now - self._since)
        if seconds >= 1:
            # Not at once fewer than before: whoever comes every other second would meet large parts.
            self._count = max(1, max(len(self._taken), self._count // 2) >> seconds - 1)
            self._since, self._given, self._taken = now, 0.0, {}

    def gives(self, member: Hashable, amount: float) -> bool:
        taken = self._taken.setdefault(self._told_apart(member), 0.0)
        count = max(self._count, len(self._taken))
        return count > 1 and taken + amount <= KEPT / count and self._given + amount <= KEPT

    def take(self, member: Hashable, amount: float) -> None:
        self._taken[self._told_apart(member)] += amount
        self._given += amount

    def _told_apart(self, member: Hashable) -> Hashable:
        return None if len(self._taken) >= MEMBERS_MAX and member not in self._taken else member


class Demand(NamedTuple):
    """What publishes ask for: lines, the copies that they cause, and the bytes of these.

    If they can leave as they came, `topic` is the one that all are of. `is_vouched` says whether a cookie was
    shown with them: nobody else can have sent them.
    """

    lines: int
    copies: int
    size_bytes: int
    topic: bytes | None = None
    is_vouched: bool = False


class _Full(NamedTuple):
    """What full buckets hold, and get in a second; infinite where there is no limit."""

    lines: float
    copies: float
    size_bytes: float


class _Buckets:
    """Three rates (`Rate`) that are filled together: of lines, copies and bytes."""

    __slots__ = ("_at", "_copies", "_full", "_lines", "_size_bytes")

    def __init__(self, full: _Full) -> None:
        self._full = full
        self._lines, self._copies, self._size_bytes = full
        self._at = -inf

    def has_any(self, now: float) -> bool:
        if now > self._at:
            self._fill(now)
        return self._lines > 0 and self._copies > 0 and self._size_bytes > 0

    def charge(self, demand: Demand, now: float) -> None:
        if now > self._at:
            self._fill(now)
        lines, copies, size_bytes, _, _ = demand
        self._lines -= lines
        self._copies -= copies
        self._size_bytes -= size_bytes

    def _fill(self, now: float) -> None:
        seconds = now - self._at
        if seconds > LONG_S:
            seconds = LONG_S
        self._at = now
        full_lines, full_copies, full_bytes = self._full
        lines = self._lines + seconds * full_lines
        copies = self._copies + seconds * full_copies
        size_bytes = self._size_bytes + seconds * full_bytes
        # `min` would cost as much again as all of this, for each burst.
        self._lines = lines if lines < full_lines else full_lines
        self._copies = copies if copies < full_copies else full_copies
        self._size_bytes = size_bytes if size_bytes < full_bytes else full_bytes


class _Budget(NamedTuple):
    """The buckets of an IP or a network: for all its lines, and again for those with a cookie."""

    whole: _Buckets
    vouched: _Buckets


class PublishRates:
    """What each IP and each network may publish a second, all ports together: a network a multiple of an IP's
    (`networks.shares_of`). On loopback each port has a rate of its own.

    Lines without a cookie may be forged, and must not shut out those who show one. So lines with a cookie are
    refused only for what others with a cookie took; but bare lines for what all took.

    Remembers those of the addresses that published last, `limits.publishers` of them. A forgotten one begins
    with full buckets.
    """

    def __init__(self, limits: Limits, networks: Networks) -> None:
        self._limits = limits
        self._networks = networks
        self._budgets: OrderedDict[Hashable, _Budget] = OrderedDict()
        self._full: dict[int, _Full] = {}  # by factor: the same object for all buckets that have it
        self._parts = EvenParts()
        self._overdrawn_at: OrderedDict[Address, float] = OrderedDict()

    def __len__(self) -> int:
        return max(len(self._budgets), len(self._overdrawn_at))

    def is_large(self, demand: Demand) -> bool:
        """Whether this is more than full buckets hold."""
        return self._seconds_of(demand) > 1

    def take(self, address: Address, demand: Demand, now: float) -> bool:
        """Whether this address may publish so much now; if so, it and its networks are charged."""
        is_vouched = demand.is_vouched
        budgets, wants = [], []
        member: Hashable = address
        for share, factor in self._networks.shares_of(address):
            budget = self._budget(share, factor)
            if not (budget.vouched if is_vouched else budget.whole).has_any(now):
                wants.append(Want((share, is_vouched), member, self._seconds_of(demand) / factor))
            budgets.append(budget)
            member = share
        if wants and not self._parts.take(wants, now):
            if not is_vouched:
                self.note_overdrawn(address, now)
            return False
        for whole, vouched in budgets:
            whole.charge(demand, now)
            if is_vouched:
                vouched.charge(demand, now)
        return True

    def note_overdrawn(self, address: Address, now: float) -> None:
        """Takes note that bare lines of this address are refused."""
        self._overdrawn_at[address] = now
        self._overdrawn_at.move_to_end(address)
        if len(self._overdrawn_at) > self._limits.publishers:
            self._overdrawn_at.popitem(last=False)

    def was_overdrawn(self, address: Address, now: float) -> bool:
        """Whether bare lines of this address were refused in the last 10 s."""
        return now - self._overdrawn_at.get(address, -inf) < OVERDRAWN_S

    def _budget(self, share: Hashable, factor: int) -> _Budget:
        budget = self._budgets.get(share)
        if budget is None:
            if len(self._budgets) >= SHARES_MAX * self._limits.publishers:
                self._budgets.popitem(last=False)
            full = self._full.get(factor) or self._full_of(factor)
            budget = self._budgets[share] = _Budget(_Buckets(full), _Buckets(full))
        else:
            self._budgets.move_to_end(share)
        return budget

    def _full_of(self, factor: int) -> _Full:
        limits = self._limits
        per_s = limits.publishes_per_s, limits.copies_per_s, limits.egress_bytes_per_s
        return self._full.setdefault(factor, _Full(*[each * factor or inf for each in per_s]))

    def _seconds_of(self, demand: Demand) -> float:
        """Returns in how many seconds an IP gets so much."""
        limits = self._limits
        return max(
            demand.lines / (limits.publishes_per_s or inf),
            demand.copies / (limits.copies_per_s or inf),
            demand.size_bytes / (limits.egress_bytes_per_s or inf),
        )
