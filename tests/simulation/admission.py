"""Checkers of what a server lets in, and of what it then has promised: limits, rates, work, leases, draining.

As the others they judge by the ledger. Work is checked by an account of PROTOCOL §5.11 of its own.
"""

import math
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from kcast.client.events import LeasesChanged
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Share
from kcast.pubsub.rates import KEPT
from tests.simulation.checker import Checker
from tests.simulation.ledger import (
    NETWORKS,
    ROUNDING,
    Allowance,
    Boot,
    ClientTurn,
    Deadlines,
    Lease,
    Request,
    ServerTurn,
    lines_of,
    prefix_of,
    reply_in,
    topic_of,
)

if TYPE_CHECKING:
    from tests.simulation.hosts import ServerHost
    from tests.simulation.world import World

DRAIN_MARGIN_S = 5.0
KEPT_FREE = 8
KEEP_BITS_MAX = 18
NEARLY_FULL = 0.7  # of a table: with less, nothing costs more than at first
LOOK_EVERY = 32


def worth_bits(request: Request) -> int:
    """Leading zero bits of the work that a vouched request shows; -1 without a stamp."""
    cookie, stamp = request.lines[0].split(b" ")[2:4]
    if stamp == b"-":
        return -1
    work = blake2b(digest_size=8, person=b"kcastwk1")
    work.update(cookie)
    for topic in request.subscribes():
        work.update(topic)
        work.update(b"\n")
    work.update(stamp)
    return 64 - int.from_bytes(work.digest(), "big").bit_length()


class WorkPaid(Checker):
    """Where leases have a price, none is opened or kept without work worth what was quoted with the cookie,
    and none refused that is paid for."""

    name = "work-paid"

    def server_turn(self, turn: ServerTurn) -> None:
        for request in turn.requests:
            quote = request.quote
            if quote is None:
                continue
            # Perhaps all of the first few were among those that were renewed.
            kept_count = max(0, request.renewed_count - KEPT_FREE) if quote.keep_bits else 0
            count = len(request.opened) + kept_count
            if quote.bits and count:
                due_bits = quote.bits + math.ceil(math.log2(count))
                self._compare(turn, request, due_bits if request.opened else min(due_bits, KEEP_BITS_MAX))
            if request.reason == b"work":
                most = quote.bits + math.ceil(math.log2(len(set(request.subscribes()))))
                if worth_bits(request) >= most:
                    self.fail(f"{turn.host.name} finds {most} bits too little for {request.packet.data!r}")

    def _compare(self, turn: ServerTurn, request: Request, due_bits: int) -> None:
        worth = worth_bits(request)
        if worth < due_bits:
            self.fail(
                f"{turn.host.name} opens {len(request.opened)} leases and renews {request.renewed_count}, "
                f"which costs {due_bits} bits, for {worth}: {request.packet.data!r}"
            )


class PricesTrue(Checker):
    """Prices rise only in a table that is nearly full, and surely there; they stay within bounds."""

    name = "prices-true"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._held: dict[Boot, set[Lease]] = {}  # after the turn before
        self._changes: dict[Boot, int] = {}  # of the leases, at that time

    def server_turn(self, turn: ServerTurn) -> None:
        self._check(turn)
        live, changes = turn.boot.possible.live(turn.now), turn.boot.possible.changes
        if self._changes.get(turn.boot) != changes:
            self._held[turn.boot], self._changes[turn.boot] = set(live), changes

    def _check(self, turn: ServerTurn) -> None:
        load: _Load | None = None
        for request in turn.requests:
            for line in lines_of(request.answer or b""):
                reply = reply_in(line)
                if isinstance(reply, wire.Challenge | wire.Receipt):
                    load = load or self._load(turn)
                    keep_bits = int(reply.attributes.get("keep", 0))
                    if not self._holds(load, request.packet.source, reply.bits, keep_bits):
                        self.fail(f"{turn.host.name}, with {(load.least, load.most)} taken, says {line!r}")

    def _holds(self, load: "_Load", address: Address, bits: int, keep_bits: int) -> bool:
        least, most = load.least, load.most
        work_bits = self.world.options.work_bits
        is_raised = max(work_bits, 8) <= bits <= max(work_bits, KEEP_BITS_MAX)
        if most < NEARLY_FULL and (bits != work_bits or keep_bits):
            return False
        if least >= 0.75 and not is_raised:
            return False
        if not is_raised:
            return bits == work_bits and not keep_bits
        if not keep_bits:
            return True
        held = sum(address == holder for holder, _ in load.possible)
        return keep_bits == min(bits, KEEP_BITS_MAX) and held > KEPT_FREE

    def _load(self, turn: ServerTurn) -> "_Load":
        limits, boot, now = self.world.options.limits, turn.boot, turn.now
        granted = sum(len(set(request.subscribes())) for request in turn.requests)
        least = (len(boot.promised.live(now)) - granted) / limits.leases
        live, held = boot.possible.live(now), self._held.get(boot, set())
        # Each lease may be counted twice here. Where even so there are few, it does not matter which.
        bound = (len(live) + len(turn.evicted) + len(held)) / min(limits.leases, limits.topics)
        if bound < NEARLY_FULL:
            return _Load(least, bound, set())
        possible = {*live, *turn.evicted, *held}
        most = max(len(possible) / limits.leases, len({topic for _, topic in possible}) / limits.topics)
        return _Load(least, most, possible)


class _Load(NamedTuple):
    """The part of the table that was taken in a turn, at least and at most; and by which leases, where the
    table was nearly full."""

    least: float
    most: float
    possible: set[Lease]


class PushedOutRightly(Checker):
    """Leases end before their time only where a table, or what their network may have, is full, and never
    those that are surely established."""

    name = "pushed-out-rightly"

    def server_turn(self, turn: ServerTurn) -> None:
        if turn.unfair:
            self.fail(f"{turn.host.name} pushes out {turn.unfair}, which are established")
        if not turn.broken:
            return
        limits, counts = self.world.options.limits, _counts(turn.boot.possible, turn.now, turn.evicted)
        topics = counts["topics"].total()  # nobody here knows who has opened which
        if counts["all"].total() >= limits.leases or topics >= min(limits.topics, limits.topics_per_prefix):
            return
        for address, topic in turn.broken:
            if counts["prefix"][prefix_of(address[0])] < limits.leases_per_prefix:
                self.fail(f"{turn.host.name} pushes out {topic!r} of {address}, and is not full: {counts}")


class LimitsHold(Checker):
    """No more leases at a time than are allowed: in all, of an address, of a prefix; nor topics."""

    name = "limits-hold"

    def server_turn(self, turn: ServerTurn) -> None:
        if not any(request.opened for request in turn.requests):
            return
        limits, counts = self.world.options.limits, _counts(turn.boot.promised, turn.now, [])
        for what, bound in (
            ("all", limits.leases),
            ("address", limits.leases_per_address),
            ("prefix", limits.leases_per_prefix),
            ("topics", limits.topics),
        ):
            most = max(counts[what].values(), default=0)
            if most > bound:
                self.fail(f"{turn.host.name} has promised {most} ({what}), at most {bound}: {counts[what]}")


def _counts(leases: Deadlines, now: float, others: list[Lease]) -> dict[str, Counter[object]]:
    """How many leases there are in all, with these others, by address and by prefix; and how many topics."""
    live = {*leases.live(now), *others}
    return {
        "all": Counter("all" for _ in live),
        "address": Counter(address for address, _ in live),
        "prefix": Counter(prefix_of(address[0]) for address, _ in live),
        "topics": Counter("topics" for _ in {topic for _, topic in live}),
    }


class RefusalsTrue(Checker):
    """Whatever is refused is refused for a reason that holds; leases that stand are never refused."""

    name = "refusals-true"

    def server_turn(self, turn: ServerTurn) -> None:
        # What is let in later in a turn can only add to what is held.
        counts: dict[str, Counter[object]] | None = None
        for request in turn.requests:
            if request.reason:
                if counts is None:
                    counts = _counts(turn.boot.possible, turn.now, turn.evicted)
                if not self._may_refuse_live(turn, request):
                    self.fail(
                        f"{turn.host.name} refuses {request.refused_live}, leases of "
                        f"{request.packet.source} that stand: {request.answer!r}"
                    )
                if not self._holds(turn, request, counts):
                    self.fail(f"{turn.host.name} says {request.answer!r} to {request.packet.data!r}")

    def _may_refuse_live(self, turn: ServerTurn, request: Request) -> bool:
        source, boot = request.packet.source, turn.boot
        refused = {topic for topic in request.refused_live if (source, topic) not in turn.evicted}
        if not refused or request.reason in (b"rate", b"size"):
            return True
        # Those beyond the first few may have a price.
        held = sum(source == holder for holder, _ in [*boot.possible.live(turn.now), *turn.evicted])
        is_dear = request.quote is not None and request.quote.keep_bits > 0
        return is_dear and request.reason == b"work" and held - len(refused) >= KEPT_FREE

    def _holds(self, turn: ServerTurn, request: Request, counts: dict[str, Counter[object]]) -> bool:
        limits, source = self.world.options.limits, request.packet.source
        match request.reason:
            case b"topic":
                return not wire.is_topic(request.refused[0])
            case b"work":
                return request.quote is not None and request.quote.bits > 0
            case b"drain":
                return turn.boot.draining_since is not None
            case b"rate":
                return not request.is_within_rate
            case b"size":
                return len(request.lines) > limits.lines_per_datagram
            case b"full":
                return counts["all"].total() >= limits.leases
            case b"address":
                return counts["address"][source] >= limits.leases_per_address
            case b"prefix":
                return counts["prefix"][prefix_of(source[0])] >= limits.leases_per_prefix
            case b"topics":
                return counts["topics"].total() >= min(limits.topics, limits.topics_per_prefix)
        return False


class AudienceTrue(Checker):
    """A receipt tells the audience where only publishes are answered, and it is as large as leases stand."""

    name = "audience-true"

    def server_turn(self, turn: ServerTurn) -> None:
        for request in turn.requests:
            if request.is_granted and request.answer is not None:
                receipt = reply_in(lines_of(request.answer)[0])
                assert isinstance(receipt, wire.Receipt)
                told = receipt.attributes.get("audience")
                topics = {topic_of(line) for line in request.publishes()}
                is_due = bool(topics) and not request.subscribes()
                if (told is not None) is not is_due or not self._holds(turn, topics, told):
                    self.fail(f"{turn.host.name} says {request.answer!r} to {request.packet.data!r}")

    def _holds(self, turn: ServerTurn, topics: set[bytes], told: str | None) -> bool:
        """Leases of this very turn may have come before or after the request, and gone."""
        if told is None:
            return True
        boot, now = turn.boot, turn.now
        gone = set(turn.evicted)
        least = max(
            sum((address, topic) not in gone for address in boot.audience(topic, now)) for topic in topics
        )
        perhaps = gone.union(boot.possible.live(now))
        most = max(sum(leased == topic for _, leased in perhaps) for topic in topics)
        return least <= int(told) <= most


class RatesHold(Checker):
    """Of one IP or network no more lines are forwarded than a bucket of one second's worth gives.

    Whoever comes while anything is in it is served whole, and pays by waiting: what comes in a turn may be
    one burst, so it is asked only whether there was anything left before it. While nothing is, its members
    get even parts of half of its rate.
    """

    name = "rates-hold"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._taken: dict[tuple[Boot, Share, bool], Allowance] = {}
        self._kept: dict[tuple[Boot, Share, bool], Allowance] = {}

    def server_turn(self, turn: ServerTurn) -> None:
        boot, limits = turn.boot, self.world.options.limits
        # A server that has heard more addresses than it remembers may have forgotten this one's.
        if not self.world.options.limits_rates or len(boot.offered) > limits.publishers:
            return
        copies = {line for _, line in turn.copies}
        sources: dict[bytes, list[tuple[Address, bool]]] = {}
        for request in turn.requests if copies else ():
            for line in request.publishes() if request.may_forward else ():
                if line in copies:
                    sources.setdefault(line, []).append((request.packet.source, request.is_vouched))
        lines = Counter(who[0] for who in sources.values() if len(set(who)) == 1 for _ in who[:1])
        shares: Counter[tuple[Share, int, bool]] = Counter()
        for (source, is_vouched), count in lines.items():
            for share, factor in NETWORKS.shares_of(source):
                shares[share, factor, is_vouched] += count
        for (share, factor, is_vouched), count in shares.items():
            per_s = factor * limits.publishes_per_s
            who = boot, share, is_vouched
            taken = self._taken.setdefault(who, Allowance(per_s, turn.now))
            if taken.left(turn.now) < -ROUNDING:
                # The parts of a second may be taken at its end, and those of the next at its beginning.
                kept = self._kept.setdefault(who, Allowance(KEPT * per_s, turn.now, most_s=2.0))
                kept.charge(count, turn.now)
                if kept.left(turn.now) < -ROUNDING:
                    self.fail(
                        f"{turn.host.name} forwards {count} lines of {share!r}, which may publish "
                        f"{per_s} a second and is {-taken.left(turn.now):.3f} over that"
                    )
            taken.charge(count, turn.now)


class LeasesKept(Checker):
    """A lease that a receipt promised is never gone before its time while its server lives; and where no
    server or datagram gets lost, no client believes in a lease that was not promised."""

    name = "leases-kept"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._seen: dict[Boot, tuple[int, ...]] = {}
        self._turns = 0

    def server_turn(self, turn: ServerTurn) -> None:
        leases, counts = turn.host.core.leases, turn.host.core.counts
        seen = len(leases), counts["leases_evicted"], counts["leases_expired"]
        self._turns += 1
        if seen == self._seen.get(turn.boot) and self._turns % LOOK_EVERY:
            return
        self._seen[turn.boot] = seen
        for address, topic in turn.boot.promised.live(turn.now):
            if address not in leases.subscribers(topic, turn.now):
                until = turn.boot.promised.at[address, topic]
                self.fail(
                    f"{turn.host.name} has promised {address} to forward {topic!r} for "
                    f"{until - turn.now:.3f} s more, and holds no such lease"
                )

    def client_turn(self, turn: ClientTurn) -> None:
        world, host = self.world, turn.host
        self._turns += 1
        has_news = any(isinstance(event, LeasesChanged) for event in turn.events)
        if not has_news and self._turns % LOOK_EVERY:
            return
        if not world.is_calm or any(server.is_restarting for server in world.servers):
            return
        for topic in host.subscribed:
            believed = host.core.lease_counts(topic)[0]
            really = len(world.leased_at(host, topic) | world.pushed_out_at(host, topic) | world.hostile)
            if believed > really:
                self.fail(f"{host.name} believes in {believed} leases on {topic!r}, and has {really}")


class Draining(Checker):
    """A draining server says so in each answer, opens no lease, and ends neither too early nor too late."""

    name = "draining"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._over: set[Boot] = set()

    @property
    def _lasts_s(self) -> float:
        return self.world.options.renewal_interval_s + DRAIN_MARGIN_S

    def server_turn(self, turn: ServerTurn) -> None:
        since = turn.boot.draining_since
        for request in turn.requests:
            if request.answer is not None:
                says_so = b"drain=1" in lines_of(request.answer)[0].split(b" ")
                if says_so != (since is not None):
                    self.fail(f"{turn.host.name} is draining since {since}, and says {request.answer!r}")
            if since is not None and request.opened:
                self.fail(f"{turn.host.name} opens {request.opened} for {request.packet.source}; it drains")
        if since is not None and turn.now > since + self._lasts_s + ROUNDING:
            if turn.boot in self._over:
                self.fail(f"{turn.host.name} has been draining for {turn.now - since:.3f} s")
            self._over.add(turn.boot)

    def server_ended(self, host: "ServerHost", boot: Boot) -> None:
        now = host.now
        if boot.draining_since is None:
            self.fail(f"{host.name} ends, and was not told to")
        if boot.promised.live(now) and now < boot.draining_since + self._lasts_s - ROUNDING:
            self.fail(
                f"{host.name} ends after {now - boot.draining_since:.3f} s, with promises to keep: "
                f"{list(boot.promised.live(now))}"
            )
