"""What the clients of a benchmark count, and the figures of all together. Sans-IO."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from kcast.loadtest.bench.plan import WARM_UP_NS, BenchPlan, time_of
from kcast.loadtest.results.percentiles import SIGNIFICANT_FIGURES, Percentiles

SEQUENCES_MAX = 20_000  # of a topic and a publisher; further ones are counted, but not looked at for gaps
JUMP_MAX = 100_000  # what is further away is no gap: the publisher, or somebody in its name, begins anew
GAPS_MAX = 1_000_000  # numbers that one subscriber misses; beyond them each gap counts as a beginning anew

_NS_PER_S = 1_000_000_000

Figures = dict[str, Any]  # by the names that `kcast bench --json` has; docs/bench.md says what they are


class Latencies(Counter[int]):
    """Times in ns by how often each occurs, to three significant figures: memory does not grow with their
    number. Those below 0 count as 0."""

    def add(self, time_ns: int) -> None:
        """Adds a time."""
        unit = 10 ** max(0, len(str(time_ns)) - SIGNIFICANT_FIGURES)
        self[max(0, (time_ns + unit // 2) // unit * unit)] += 1


def percentiles(several: Iterable[Latencies]) -> Percentiles:
    """Returns the percentiles of all times of several collections."""
    counts = Counter[int]()
    for each in several:
        counts.update(each)
    values = sorted(counts)
    sum_ns = sum(value * count for value, count in counts.items())
    return Percentiles.of_counts(values, [counts[value] for value in values], sum_ns)


class Counts:
    """What one client has counted: `numbers` by the names of figures, and times.

    A publisher has `receipts`, messages by the number of servers that gave one, and the `reasons` of
    refusals. `began_ns` and `ended_ns` are when its publishing began and the last receipt came (with a rate,
    when anybody's next message was due), or when the first and the last message came; None where none did.
    """

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.receipts: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self.behind = Latencies()  # how much later than due messages were published
        self.until_receipt = Latencies()  # from when they were due until their outcome was known
        self.latency = Latencies()
        self.began_ns: int | None = None
        self.ended_ns: int | None = None


class Received(Counts):
    """What one subscriber counts.

    Those messages count that `publishers` have published, or anybody where that is None, but no warm-up, and
    none that had come before. Others are `foreign` and `twice`. Where publishers are given, messages tell a
    time of this machine's clock. `missing` are between others of their publisher on their topic.
    """

    def __init__(self, publishers: Collection[str] | None = None) -> None:
        super().__init__()
        self._publishers = publishers
        self._spans: dict[tuple[bytes, str], tuple[int, int]] = {}  # the lowest and the highest number
        self._gaps: dict[tuple[bytes, str], set[int]] = {}

    def take(self, topic: bytes, publisher: str | None, seq: int | None, payload: bytes, now_ns: int) -> None:
        """Takes a message; `publisher` and `seq` are None where it is raw."""
        numbers, is_known = self.numbers, self._publishers is not None
        if self._publishers is not None and publisher not in self._publishers:
            numbers["foreign"] += 1
            return
        if publisher is not None and seq is not None and not self._is_new((topic, publisher), seq):
            numbers["twice"] += 1
            return
        time_ns = time_of(payload)
        if time_ns == WARM_UP_NS:
            return
        if self.began_ns is None:
            self.began_ns = now_ns
        self.ended_ns = now_ns
        numbers["messages"] += 1
        numbers["bytes"] += len(payload)
        if is_known and time_ns is not None:
            self.latency.add(now_ns - time_ns)

    def forget_numbers(self) -> None:
        """Forgets which numbers have come: nothing more will."""
        self._spans.clear()
        self._gaps.clear()

    def _is_new(self, key: tuple[bytes, str], seq: int) -> bool:
        low, high = self._spans.get(key, (seq, seq - 1))
        if seq == high + 1:  # as mostly
            if key in self._spans or len(self._spans) < SEQUENCES_MAX:
                self._spans[key] = low, seq
            return True
        gaps = self._gaps.setdefault(key, set())
        if low <= seq <= high:
            is_missing = seq in gaps
            gaps.discard(seq)
            self.numbers["missing"] -= is_missing
            return is_missing
        missed = range(high + 1, seq) if seq > high else range(seq + 1, low)
        if len(missed) > JUMP_MAX or self.numbers["missing"] + len(missed) > GAPS_MAX:
            self._spans[key] = seq, seq
            gaps.clear()
        else:
            self._spans[key] = min(low, seq), max(high, seq)
            gaps.update(missed)
            self.numbers["missing"] += len(missed)
        return True


# --- Of all clients together -------------------------------------------------------------------------

_PUBLISHED = ("attempted", "with_receipt", "sent", "no_answer", "refused", "queue_full")
_DELIVERED = (
    "messages",
    "bytes",
    "copies",
    "duplicates",
    "twice",
    "foreign",
    "kernel_drops",
    "slow_consumer",
)


def published(plan: BenchPlan, clients: Sequence[Counts], cpu_ns: int) -> Figures:
    """Returns the figures of the publishers, whose processes took this CPU time."""
    numbers, reasons, receipts = Counter[str](), Counter[str](), Counter[int]()
    for each in clients:
        # Servers may have taken the others; one whose outcome is not known is among them.
        each.numbers["messages"] = sum(
            sign * each.numbers[name]
            for name, sign in (("attempted", 1), ("refused", -1), ("queue_full", -1))
        )
        numbers.update(each.numbers)
        reasons.update(each.reasons)
        receipts.update(each.receipts)
    return {
        **{name: numbers[name] for name in _PUBLISHED},
        "messages": numbers["messages"],
        "bytes": numbers["messages"] * plan.size_bytes,
        "receipts": dict(sorted(receipts.items())),
        "reasons": dict(sorted(reasons.items())),
        "behind": asdict(percentiles(each.behind for each in clients)),
        "until_receipt": asdict(percentiles(each.until_receipt for each in clients)),
        "are_servers_lost": bool(numbers["servers_lost"]),
        "cpu_us": cpu_ns / 1000 / numbers["attempted"] if numbers["attempted"] else 0.0,
        **_rate([(each.numbers["messages"], each.began_ns, each.ended_ns) for each in clients]),
    }


def delivered(clients: Sequence[Counts], cpu_ns: int, expected_each: int | None) -> Figures:
    """Returns the figures of the subscribers, whose processes took this CPU time.

    `expected_each` is the number of messages that each of them should have received, if that is known.
    """
    numbers = Counter[str]()
    for each in clients:
        numbers.update(each.numbers)
    messages, expected = numbers["messages"], None if expected_each is None else expected_each * len(clients)
    return {
        **{name: numbers[name] for name in _DELIVERED},
        "expected": expected,
        "lost": numbers["missing"] if expected is None else max(0, expected - messages),
        "copies_each": numbers["copies"] / numbers["deliveries"] if numbers["deliveries"] else 0.0,
        "latency": asdict(percentiles(each.latency for each in clients)),
        "cpu_us": cpu_ns / 1000 / messages if messages else 0.0,
        # Between n messages, the first to the last, there are n - 1 intervals.
        **_rate([(max(0, each.numbers["messages"] - 1), each.began_ns, each.ended_ns) for each in clients]),
    }


def _rate(clients: Sequence[tuple[int, int | None, int | None]]) -> Figures:
    """Returns how many clients there are, the seconds from the first begin to the last end, and the messages
    a second of all together; 0 if unknown."""
    began_ns = min((began for _, began, _ in clients if began is not None), default=0)
    ended_ns = max((ended for _, _, ended in clients if ended is not None), default=0)
    seconds = (ended_ns - began_ns) / _NS_PER_S
    per_s = sum(count for count, _, _ in clients) / seconds if seconds > 0 else 0.0
    return {"clients": len(clients), "seconds": seconds, "messages_per_s": per_s}
