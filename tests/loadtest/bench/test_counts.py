"""loadtest/bench/counts.py: what came, however it is mixed up on its way, and the figures of all together."""

from random import Random
from typing import Any

import numpy as np

from kcast.loadtest.bench import counts as module
from kcast.loadtest.bench.counts import (
    JUMP_MAX,
    Counts,
    Latencies,
    Received,
    delivered,
    percentiles,
    published,
)
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.scenario import payload

S = 1_000_000_000
TOPIC, PUB = b"t", "p"
PLAN = BenchPlan(kind="pubsub", publishers=2, subscribers=2, count=1000, size_bytes=100)


# --- Latencies ---------------------------------------------------------------------------------------


def test_percentiles_are_those_of_all_times_at_once() -> None:
    rng = Random(1)
    times_ns = [int(rng.lognormvariate(13, 2)) for _ in range(20_000)] + [-5, 0]
    parts = [Latencies(), Latencies()]
    for number, time_ns in enumerate(times_ns):
        parts[number % 2].add(time_ns)
    expected, found = Percentiles.of(np.array(times_ns, np.int64)), percentiles(parts)
    for name in ("count", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"):
        assert getattr(found, name) == getattr(expected, name)
    assert percentiles([]).count == percentiles([Latencies()]).count == 0


def test_memory_does_not_grow_with_the_number_of_times() -> None:
    latencies = Latencies()
    for time_ns in range(100_000):
        latencies.add(1_000_000 + time_ns % 1000)
    assert len(latencies) <= 2


# --- Subscribers -------------------------------------------------------------------------------------


def take(into: Received, *seqs: int) -> None:
    for seq in seqs:
        into.take(TOPIC, PUB, seq, payload(1, 16), 1)


def test_numbers_are_as_a_set_has_them() -> None:
    for seed in range(50):
        rng = Random(seed)
        numbers = [number for number in range(1, 200) if rng.random() < 0.8]
        numbers += rng.choices(numbers, k=20)  # those come twice
        into, seen, twice = Received(), set[int](), 0
        for number in sorted(numbers, key=lambda number: number + rng.uniform(0, 30)):
            take(into, number)
            twice += number in seen
            seen.add(number)
            assert into.numbers["twice"] == twice
            assert into.numbers["missing"] == max(seen) - min(seen) + 1 - len(seen)


def test_a_publisher_that_begins_anew_loses_nothing() -> None:
    into = Received()
    take(into, 1, 3, 3 + JUMP_MAX + 2)
    assert into.numbers["missing"] == 1  # from before
    take(into, 3 + JUMP_MAX + 4, 1)
    assert (into.numbers["missing"], into.numbers["twice"]) == (2, 0)
    take(into, 1)
    assert into.numbers["twice"] == 1


def test_what_strangers_can_make_grow_has_a_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "GAPS_MAX", 100)
    monkeypatch.setattr(module, "SEQUENCES_MAX", 2)
    into = Received()
    take(into, *range(1, 1000, 10))
    assert into.numbers["missing"] <= 100
    for publisher in "abc":
        into.take(TOPIC, publisher, 1, payload(1, 16), 1)
    assert len(into._spans) == 2 and into.numbers["messages"] == 103


def test_it_counts_messages_bytes_and_times() -> None:
    into = Received({PUB})
    for seq, (time_ns, now_ns) in enumerate([(1000, 3_001_000), (2000, 5_002_000)], 1):
        into.take(TOPIC, PUB, seq, payload(time_ns, 40), now_ns)
    assert into.numbers == {"messages": 2, "bytes": 80}
    assert (into.began_ns, into.ended_ns) == (3_001_000, 5_002_000)
    times = percentiles([into.latency])
    assert (times.count, times.p50_ms, times.max_ms) == (2, 3.0, 5.0)


def test_messages_of_each_publisher_and_topic_are_numbered_by_themselves() -> None:
    into = Received()
    for topic, publisher, seq in ((b"t", "p", 1), (b"u", "p", 1), (b"t", "q", 1), (b"t", "p", 4)):
        into.take(topic, publisher, seq, payload(1, 16), 1)
    assert (into.numbers["messages"], into.numbers["missing"], into.numbers["twice"]) == (4, 2, 0)


def test_a_warm_up_does_not_count_but_its_number_is_not_missed() -> None:
    into = Received({PUB})
    for seq, time_ns in ((1, 5), (2, 0), (3, 5)):
        into.take(TOPIC, PUB, seq, payload(time_ns, 16), 10)
    assert (into.numbers["messages"], into.numbers["missing"]) == (2, 0)
    assert percentiles([into.latency]).count == 2


def test_what_others_publish_is_foreign() -> None:
    into = Received({PUB})
    into.take(TOPIC, "other", 1, payload(1, 16), 1)
    into.take(TOPIC, None, None, b"raw", 1)
    assert (into.numbers, into.began_ns) == ({"foreign": 2}, None)


def test_of_anybody_also_raw_messages_count_and_no_clock_is_believed() -> None:
    into = Received()
    into.take(TOPIC, None, None, b"raw", 1)
    into.take(TOPIC, None, None, b"raw", 1)
    into.take(TOPIC, "other", 9, payload(1, 16), 1)
    assert into.numbers == {"messages": 3, "bytes": 22}
    assert percentiles([into.latency]).count == 0


# --- All together ------------------------------------------------------------------------------------


def counts(began_ns: int | None, ended_ns: int | None, **numbers: int) -> Counts:
    made = Counts()
    made.began_ns, made.ended_ns = began_ns, ended_ns
    made.numbers.update(numbers)
    return made


def test_rates_of_publishers() -> None:
    clients = [
        counts(1 * S, 3 * S, attempted=500, with_receipt=500),
        counts(2 * S, 6 * S, attempted=500, with_receipt=500),
    ]
    made = published(PLAN, clients, cpu_ns=30_000_000)
    assert (made["clients"], made["attempted"], made["messages"], made["bytes"]) == (2, 1000, 1000, 100_000)
    assert made["seconds"] == 5
    assert made["messages_per_s"] == 200
    assert made["cpu_us"] == 30


def test_what_was_refused_was_attempted_but_is_no_message() -> None:
    client = counts(1 * S, 3 * S, attempted=500, with_receipt=300, refused=150, no_answer=40, queue_full=10)
    client.reasons["rate"] = 450
    made = published(PLAN, [client], cpu_ns=0)
    assert (made["attempted"], made["messages"], made["messages_per_s"]) == (500, 340, 170)
    assert (made["with_receipt"], made["refused"]) == (300, 150)
    assert (made["no_answer"], made["queue_full"], made["reasons"]) == (40, 10, {"rate": 450})


def test_rates_and_losses_of_subscribers() -> None:
    clients = [
        counts(1 * S, 3 * S, messages=1001, copies=3003, deliveries=1001, missing=7),
        counts(1 * S, 5 * S, messages=901, copies=2703, deliveries=901, missing=2),
    ]
    clients[0].latency.add(4_000_000)
    clients[1].latency.add(9_000_000)
    made = delivered(clients, cpu_ns=0, expected_each=1001)
    assert (made["messages"], made["expected"], made["lost"]) == (1902, 2002, 100)
    assert made["seconds"] == 4 and made["messages_per_s"] == 475
    assert (made["latency"]["count"], made["latency"]["max_ms"]) == (2, 9)
    assert made["copies_each"] == 3
    elsewhere = delivered(clients, expected_each=None, cpu_ns=0)
    assert (elsewhere["expected"], elsewhere["lost"]) == (None, 9)


def test_clients_that_got_nothing_or_one_message_have_no_rate() -> None:
    made = delivered([counts(None, None), counts(S, S, messages=1)], expected_each=1, cpu_ns=0)
    assert (made["messages"], made["lost"], made["messages_per_s"], made["seconds"]) == (1, 1, 0, 0)
    made = delivered([counts(None, None)], expected_each=1, cpu_ns=5)
    assert (made["messages"], made["cpu_us"], made["latency"]["count"]) == (0, 0, 0)
