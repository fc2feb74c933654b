"""The figures of a benchmark, from what its clients have counted. Sans-IO."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcast.client.events import Outcome
from kcast.loadtest.bench.latencies import Latencies
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.results.percentiles import Percentiles

Told = Mapping[str, Any]  # what a client has counted: `Publisher.figures`, `Subscriber.figures`

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second: of all clients together, and the least, mean and greatest of one; 0 if unknown."""

    all: float
    least: float
    mean: float
    greatest: float


@dataclass(frozen=True, slots=True)
class Published:
    """What the publishers did.

    `attempted` counts all messages that were published, and `messages` those of them that servers may have
    taken: `with_receipt`, `sent` without asking for one, or with `no_answer`. Others were `refused`, or not
    sent for a `queue_full`. `receipts` has how many messages had receipts from how many servers; `reasons`
    how many refusals there were for which reason, of all servers. `behind` is how much later than due
    messages were published, and `until_receipt` how long after that the last receipt came; both only with a
    rate. `cpu_us` is the CPU time of an attempt.
    """

    clients: int
    attempted: int
    messages: int
    bytes: int
    seconds: float
    rates: Rates
    with_receipt: int
    sent: int
    no_answer: int
    refused: int
    queue_full: int
    receipts: Mapping[int, int]
    reasons: Mapping[str, int]
    behind: Percentiles
    until_receipt: Percentiles
    cpu_us: float
    are_servers_lost: bool


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the subscribers received, all together.

    `expected` is what publishers and subscribers of one run lead to, None where the publishers are elsewhere.
    Then `lost` counts what is missing between other messages of a publisher on a topic. `duplicates` are
    copies beyond the first, which clients leave out, and `copies_each` is how many came of each message;
    `twice` are messages that were delivered twice all the same. `foreign` were published by others on these
    topics, and are not counted. `kernel_drops` (datagrams) and `slow_consumer` (messages) came, but this
    machine did not read them in time. `cpu_us` is the CPU time of a message.
    """

    clients: int
    messages: int
    bytes: int
    seconds: float
    rates: Rates
    expected: int | None
    lost: int
    copies: int
    copies_each: float
    duplicates: int
    twice: int
    foreign: int
    kernel_drops: int
    slow_consumer: int
    latency: Percentiles
    cpu_us: float


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What the benchmark's own servers did: their CPU time from the start on, the copies that they sent, and
    what they dropped, by reason (docs/operations.md, Reasons)."""

    cpu_ns: int
    copies: int
    drops: Mapping[str, int]


def published(plan: BenchPlan, clients: Sequence[Told], cpu_ns: int) -> Published:
    """Returns the figures of the publishers, whose processes took this CPU time."""
    outcomes: Counter[str] = Counter()
    receipts: Counter[int] = Counter()
    reasons: Counter[str] = Counter()
    for each in clients:
        outcomes.update(each["outcomes"])
        receipts.update({int(servers): count for servers, count in each["receipts"].items()})
        reasons.update(each["reasons"])
    attempted = sum(each["attempted"] for each in clients)
    # What is left of each client's messages. One whose outcome is not known may have been taken.
    counted = [
        each["attempted"]
        - each["outcomes"].get(Outcome.REFUSED, 0)
        - each["outcomes"].get(Outcome.QUEUE_FULL, 0)
        for each in clients
    ]
    messages = sum(counted)
    begun_ns = min(each["begun_ns"] for each in clients)
    return Published(
        clients=len(clients),
        attempted=attempted,
        messages=messages,
        bytes=messages * plan.size_bytes,
        seconds=(max(each["ended_ns"] for each in clients) - begun_ns) / _NS_PER_S,
        rates=_rates(counted, clients, "begun_ns", "ended_ns"),
        with_receipt=outcomes[Outcome.RECEIPT],
        sent=outcomes[Outcome.SENT],
        no_answer=outcomes[Outcome.NO_ANSWER],
        refused=outcomes[Outcome.REFUSED],
        queue_full=outcomes[Outcome.QUEUE_FULL],
        receipts=dict(sorted(receipts.items())),
        reasons=dict(sorted(reasons.items())),
        behind=_all(clients, "behind"),
        until_receipt=_all(clients, "receipt_times"),
        cpu_us=cpu_ns / 1000 / attempted if attempted else 0.0,
        are_servers_lost=any(each["are_servers_lost"] for each in clients),
    )


def delivered(clients: Sequence[Told], expected_each: int | None, cpu_ns: int) -> Delivered:
    """Returns the figures of the subscribers, whose processes took this CPU time.

    `expected_each` is the number of messages that each of them should have received, if that is known.
    """
    sums = Counter[str]()
    for each in clients:
        sums.update({name: value for name, value in each.items() if isinstance(value, int)})
    messages = sums["delivered"]
    firsts = [each["first_ns"] for each in clients if each["first_ns"] is not None]
    lasts = [each["last_ns"] for each in clients if each["last_ns"] is not None]
    expected = None if expected_each is None else expected_each * len(clients)
    return Delivered(
        clients=len(clients),
        messages=messages,
        bytes=sums["bytes"],
        seconds=(max(lasts) - min(firsts)) / _NS_PER_S if firsts else 0.0,
        # Between n messages, the first to the last, there are n - 1 intervals.
        rates=_rates([max(0, each["delivered"] - 1) for each in clients], clients, "first_ns", "last_ns"),
        expected=expected,
        lost=sums["missing"] if expected is None else max(0, expected - messages),
        copies=sums["copies"],
        copies_each=sums["copies"] / sums["deliveries"] if sums["deliveries"] else 0.0,
        duplicates=sums["duplicates"],
        twice=sums["twice"],
        foreign=sums["foreign"],
        kernel_drops=sums["kernel_drops"],
        slow_consumer=sums["slow_consumer"],
        latency=_all(clients, "latencies"),
        cpu_us=cpu_ns / 1000 / messages if messages else 0.0,
    )


def _rates(counts: Sequence[int], clients: Sequence[Told], begins: str, ends: str) -> Rates:
    begins_ns, ends_ns = ([each[name] for each in clients] for name in (begins, ends))
    of_each = [_rate(*each) for each in zip(counts, begins_ns, ends_ns, strict=True)]
    firsts = [at for at in begins_ns if at is not None]
    lasts = [at for at in ends_ns if at is not None]
    together = _rate(sum(counts), min(firsts), max(lasts)) if firsts else 0.0
    return Rates(together, min(of_each), sum(of_each) / len(of_each), max(of_each))


def _rate(count: int, begins_ns: int | None, ends_ns: int | None) -> float:
    if begins_ns is None or ends_ns is None or ends_ns <= begins_ns:
        return 0.0
    return count * _NS_PER_S / (ends_ns - begins_ns)


def _all(clients: Sequence[Told], name: str) -> Percentiles:
    latencies = Latencies()
    for each in clients:
        latencies.update(Latencies.from_json(each[name]))
    return latencies.percentiles()
