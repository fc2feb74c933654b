"""Floods of junk, and what honest traffic gets meanwhile.

1x is what version 0.1.0 takes of a kind with one whole core, measured in the same run.
"""

import time
from collections.abc import Iterator
from functools import partial

from tests.attacks.figures import Figure, at_least, at_most, percent, told
from tests.attacks.honest import Honest
from tests.attacks.junk import KINDS
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer
from tests.support import known_flood
from tests.support.trees import HERE, NoHistory, tree_of

OLD = "b490d10"  # 0.1.0
TTL_S = 4
CALIBRATION_S = 1.5
STARTING_S = 0.4  # until the flooder, a process of Python, sends
SHORT_KINDS = ("64-pings",)

# A flood that is less than this shows nothing.
FLOOD_MIN = 0.7  # of 1x
LONG_FLOOD_PER_S_MIN = 5_000
KNOWN_FLOOD_PER_S_MIN = 10_000

# Datagrams a second that 0.1.0 takes with a core of an older Xeon, for clones without the history.
_RECORDED = {
    "random-bytes": 150_000,
    "forged-cookies": 60_000,
    "bare-publishes": 100_000,
    "asks": 55_000,
    "64-pings": 9_000,
    "64-asks": 9_000,
    "64-pings-with-attributes": 4_500,
}


def one_x(lab: Lab, kind: str) -> tuple[float, float, str]:
    """Returns how many datagrams of a kind 0.1.0 takes in a second of CPU time, how many a flooder can send
    to it, 0 where that is not known, and how all this is known."""
    try:
        old = tree_of(OLD, lab.scratch)
    except NoHistory:
        return _RECORDED[kind], 0.0, "1x (recorded, not of this machine: the clone has no history)"
    server = lab.serve(tree=old, has_metrics=False)
    spent_s = server.cpu_s
    told_by_flooder = lab.flood(server.address, kind, seconds=CALIBRATION_S).result()
    time.sleep(0.5)  # for what waits in its buffer
    taken = told_by_flooder["sent"] - server.kernel_drops
    return taken / (server.cpu_s - spent_s), told_by_flooder["per_s"], "1x"


def under_flood(lab: Lab, kind: str, rate: float, seconds: float) -> tuple[Honest, float]:
    """Returns what honest traffic got during a flood, and the flood's rate."""
    server = lab.serve("--ttl", str(TTL_S))
    honest = lab.honest(server.address, seconds + 1.5)
    time.sleep(0.5)
    began = time.monotonic()
    flood = lab.flood(server.address, kind, rate=rate, seconds=seconds)
    per_s = flood.result()["per_s"]
    ended = time.monotonic()
    result = honest.result()
    server.end()
    return result.within(began + STARTING_S, ended - 0.1), per_s


def _junk(lab: Lab, kind: str) -> Iterator[Figure]:
    rate, possible_per_s, how = one_x(lab, kind)
    yield told(how, rate, "datagrams/s")
    yield told("a flooder can send", possible_per_s / rate, "x")
    seconds = 10.0 if lab.is_full else TTL_S + 1.0
    honest, per_s = under_flood(lab, kind, rate, seconds)
    first = per_s / rate
    yield at_least("the flood of 1x", first, FLOOD_MIN, "x")
    yield at_least(f"delivered at {first:.1f}x", honest.delivered_percent, 99, "%")
    yield at_most(f"p50 at {first:.1f}x", honest.p50_ms, 20, "ms")
    lost = honest.leases_lost
    honest, per_s = under_flood(lab, kind, 10 * rate, seconds)
    factor = per_s / rate
    # Where a flooder can hardly send 1x, it sends no more now.
    yield at_least("the flood of 10x", factor, first if possible_per_s > 2 * rate else FLOOD_MIN, "x")
    yield at_least(f"delivered at {factor:.1f}x", honest.delivered_percent, 90, "%")
    yield told(f"p50 at {factor:.1f}x", honest.p50_ms, "ms")
    yield at_most("leases lost", lost + honest.leases_lost, 0)


def _longer_than_a_ttl(lab: Lab) -> Iterator[Figure]:
    """64 x `%?`, for more than two ttls."""
    honest, per_s = under_flood(lab, "64-asks", 0, 2.5 * TTL_S if lab.is_full else 1.5 * TTL_S)
    yield at_least("flood", per_s, LONG_FLOOD_PER_S_MIN, "datagrams/s")
    yield at_least("delivered", honest.delivered_percent, 90, "%")
    yield at_most("leases lost", honest.leases_lost, 0)


def _renewals(lab: Lab) -> Iterator[Figure]:
    """`%?`, as many as one core can send, while somebody renews a lease 20 times a second."""
    seconds = 10.0 if lab.is_full else 4.0
    server = lab.serve("--ttl", str(TTL_S))
    with WirePeer(server.address, "127.5.5.5") as peer:
        renewal = peer.lease(b"t")
        flood = lab.flood(server.address, "asks", seconds=seconds + 1)
        time.sleep(STARTING_S)
        asked, answered = 0, set[bytes]()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            peer.say(renewal.replace(b"%! r ", b"%%! %d " % asked, 1))
            asked += 1
            time.sleep(0.05)
            answered |= {data.split(b" ")[1] for data in peer.take() if data.startswith(b"%+ ")}
        time.sleep(0.5)
        answered |= {data.split(b" ")[1] for data in peer.take() if data.startswith(b"%+ ")}
    yield at_least("flood", flood.result()["per_s"], LONG_FLOOD_PER_S_MIN, "datagrams/s")
    yield at_least("renewals", asked, 15 * seconds)
    yield at_least("answered by a receipt", percent(len(answered), asked), 99, "%")


def _known(lab: Lab) -> Iterator[Figure]:
    """A client that has a lease sends as many random bytes as one core can."""
    if lab.tree is not HERE:
        raise Skipped("it is measured with this version alone")
    outcome = known_flood.measure(known_flood.FLOODS["random bytes"], 8.0 if lab.is_full else 3.0)
    yield at_least("flood", outcome.flood_per_s, KNOWN_FLOOD_PER_S_MIN, "datagrams/s")
    yield at_least("delivered", percent(outcome.arrived, outcome.sent), 90, "%")
    yield told("p50", outcome.p50_ms, "ms")


ROWS = (
    *(
        Row(
            f"junk-{kind}",
            "1x: 99 %, p50 20 ms; 10x: 90 %; leases lost: 0",
            partial(_junk, kind=kind),
            in_short=kind in SHORT_KINDS,
        )
        for kind in KINDS
    ),
    Row("flood-longer-than-a-ttl", "90 %; leases lost: 0", _longer_than_a_ttl),
    Row("renewals-in-a-flood", "99 % answered", _renewals, in_short=False),
    Row("known-flood", "90 %", _known, in_short=False),
)
