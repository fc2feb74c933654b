"""How long one thing keeps a server busy: measured in its core, without sockets.

`python -m tests.attacks.costs PREFIX` measures strangers' datagrams, also in a version of another time.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.process import rare_collections
from kcast.pubsub.server import Server
from tests.attacks.costs import COSTS_PROGRAM
from tests.attacks.figures import Figure, at_most, told
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.rows.floods import OLD
from tests.support.trees import HERE, NoHistory, Tree, tree_of

TIMES = 10  # what a datagram of a stranger may cost, against the cheapest of 0.1.0
TRIES = 4  # what else a machine does makes some kinds dearer for a moment, and none cheaper
LEASES = 100_000
AUDIENCE = 20_000
START = 1000.0
SEGMENT_BYTES = 1200  # of what the kernel hands over at once


def costs_of(tree: Tree) -> dict[str, float]:
    """Returns the CPU time that a datagram of each kind takes of a core, in microseconds."""
    more = ("more",) if tree is HERE else ()
    done = subprocess.run(
        (sys.executable, "-c", COSTS_PROGRAM, tree.prefix, str(HERE.folder), *more),
        env=tree.environment,
        cwd=tree.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def strangers(lab: Lab) -> Iterator[Figure]:
    """A datagram of each kind comes from a source that has shown nothing."""
    costs = costs_of(lab.tree)
    try:
        old = tree_of(OLD, lab.scratch)
        least_us = min(costs_of(old).values())
    except NoHistory:
        old, least_us = None, min(costs.values())
    for _ in range(TRIES - 1):
        if max(costs.values()) <= TIMES * least_us:
            break
        again = costs_of(lab.tree)
        costs = {kind: min(cost_us, again[kind]) for kind, cost_us in costs.items()}
        least_us = min(least_us, *(costs if old is None else costs_of(old)).values())
    yield told("the cheapest of 0.1.0" if old else "the cheapest (the clone has no history)", least_us, "us")
    for kind, cost_us in costs.items():
        yield at_most(kind, cost_us / least_us, TIMES, "times")


class _Core:
    """A server core with 100,000 leases, which is stepped like a driver does."""

    def __init__(self) -> None:
        # With room beside them, else leases have a price.
        limits = Limits(leases=2 * LEASES, leases_per_prefix=2 * LEASES, challenges_per_s=0)
        self.core = Server(secret=bytes(32), limits=limits, ttl_s=60)
        self.now = START
        self.renewals: list[tuple[Address, bytes]] = []

    def fill(self) -> None:
        """Lets 5 audiences of 20,000 subscribe, each address once, and 63 topics by one."""
        for number in range(LEASES - 63):
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1000
            topic = b"topic%d" % (number // AUDIENCE)
            self._lease(address, [topic], is_kept=number < 100)
        self._lease(("10.99.9.9", 1000), [b"own%d" % number for number in range(63)], is_kept=True)
        self.publisher: Address = ("10.200.1.1", 1000)
        self._lease(self.publisher, [])

    def _lease(self, address: Address, topics: list[bytes], *, is_kept: bool = False) -> None:
        vouch = wire.Vouch(b"v", self._cookie(address), None)
        datagram = wire.request_datagram(vouch, [topic + b"\n" for topic in topics])
        self.core.receive(Burst(datagram, len(datagram), address), self.now)
        self.core.flush(self.now)
        if is_kept:
            self.renewals.append((address, datagram))

    def _cookie(self, address: Address) -> bytes:
        ask = wire.request_datagram(wire.Ask(b"ask"))
        self.core.receive(Burst(ask, len(ask), address), self.now)
        (answer,) = self.core.flush(self.now)
        reply = wire.parse_reply(answer.data.split(b"\n")[0])
        assert isinstance(reply, wire.Challenge)
        return reply.cookie

    def renew_half(self) -> None:
        """Lets half of each audience be renewed half a ttl later."""
        self.core.handle_timeout(self.now)
        self.now += 30
        for number in range(0, LEASES - 63, 2):
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1000
            self.core.leases.renew(b"topic%d" % (number // AUDIENCE), address, self.now)

    def vouched(self, address: Address, lines: bytes) -> tuple[Address, bytes]:
        """A datagram with a cookie for these lines."""
        return address, wire.request_datagram(wire.Vouch(b"v", self._cookie(address), None), [lines])

    def open_publish_leases(self) -> None:
        """Lets 90,000 addresses have publish leases."""
        for number in range(90_000):
            address = f"12.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1000
            self._lease(address, [])

    def longest_ms(self, datagrams: list[tuple[Address, bytes]]) -> float:
        """Gives it datagrams, one a turn; returns the longest time in one go, until all is sent."""
        longest_s = 0.0

        def step(function: Callable[[], object]) -> None:
            nonlocal longest_s
            began = time.thread_time()
            function()
            longest_s = max(longest_s, time.thread_time() - began)

        with rare_collections():  # as in a server
            for address, datagram in datagrams:
                burst = Burst(datagram, min(len(datagram), SEGMENT_BYTES), address)
                step(partial(self.core.receive, burst, self.now))
                for _ in range(10_000):
                    before = self._progress()
                    due = self.core.next_timeout()
                    if due is not None and due <= self.now:
                        step(lambda: self.core.handle_timeout(self.now))
                    step(lambda: self.core.flush(self.now))
                    if before == self._progress():
                        break
        return 1000 * longest_s

    def _progress(self) -> tuple[int, int, int]:
        counts = self.core.counts
        return counts["copies_sent"], counts["leases_expired"], len(self.core.publish_leases)


def proven(lab: Lab) -> Iterator[Figure]:
    """Those with leases do what costs most, at 100,000 leases and audiences of 20,000."""
    if lab.tree is not HERE:
        raise Skipped("it is measured with this version alone")
    core = _Core()
    core.fill()
    yield told("leases", len(core.core.leases))
    small, large = b"topic0 x\n", b"topic1 ".ljust(1199, b".") + b"\n"
    many = b"".join(b"topic%d x%d\n" % (number % 5, number) for number in range(64))
    cases = {
        "a short publish to 20,000": [(core.publisher, small)],
        "a publish of 1200 B to 20,000": [(core.publisher, large)],
        "64 publishes to 20,000 each": [(core.publisher, many)],
        "renewals": core.renewals,
        "64 x 64 pings of a known address": [(core.publisher, b"%~ a\n" * 64 * 64)],
    }
    for name, datagrams in cases.items():
        times = []
        copies = core.core.counts["copies_sent"]
        for _ in range(3):
            times.append(core.longest_ms(datagrams))
            core.now += 2
        copies = core.core.counts["copies_sent"] - copies
        yield at_most(f"{name} ({copies // 3:,} copies)", min(times), 10, "ms")
    # Half of the leases of each audience end, and then all; so do 90,000 publish leases.
    core.open_publish_leases()
    core.renew_half()
    yield told("leases of which half have ended", len(core.core.leases))
    five = b"".join(b"topic%d x\n" % number for number in range(5))
    vouched = core.vouched(core.publisher, five)
    yield at_most(
        "publishes to 5 audiences half of which have just ended", core.longest_ms([vouched]), 10, "ms"
    )
    core.now += 100
    yield at_most("expiry of all", core.longest_ms([(("10.201.1.1", 1), b"x\n")]), 10, "ms")
    yield at_most("leases left", len(core.core.leases), 0)


ROWS = (
    # Their bars depend on a machine's caches, so CI leaves them out: tests of the core hold what they show.
    Row("work-for-strangers", "10 times the cheapest of 0.1.0", strangers, in_short=False),
    Row("work-for-the-proven", "10 ms of CPU time in one go", proven, in_short=False),
)
