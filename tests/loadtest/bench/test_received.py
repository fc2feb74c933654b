"""loadtest/bench/received.py: what is missing, and what came twice, however it is mixed up on its way."""

from random import Random

import pytest

from kcast.loadtest.bench.plan import message
from kcast.loadtest.bench.received import JUMP_MAX, Received, Sequence

TOPIC, PUB = b"t", "p"


@pytest.mark.parametrize("seed", range(50))
def test_a_sequence_is_as_a_set_has_it(seed: int) -> None:
    rng = Random(seed)
    numbers = [number for number in range(1, 200) if rng.random() < 0.8]
    numbers += rng.choices(numbers, k=20)  # those come twice
    order = sorted(numbers, key=lambda number: number + rng.uniform(0, 30))
    sequence, seen = Sequence(order[0]), {order[0]}
    for number in order[1:]:
        assert sequence.take(number) == (number not in seen)
        seen.add(number)
        assert sequence.missing == max(seen) - min(seen) + 1 - len(seen)


def test_a_publisher_that_begins_anew_loses_nothing() -> None:
    sequence = Sequence(1)
    sequence.take(3)
    assert sequence.take(3 + JUMP_MAX + 1)
    assert sequence.missing == 1  # from before
    assert sequence.take(3 + JUMP_MAX + 3)
    assert sequence.missing == 2
    assert sequence.take(1)
    assert sequence.missing == 2
    assert not sequence.take(1)


def received(**options: bool) -> Received:
    return Received({PUB}, **options)


def test_it_counts_messages_bytes_and_times() -> None:
    into = received(wants_latencies=True)
    for seq, (time_ns, now_ns) in enumerate([(1000, 3_001_000), (2000, 5_002_000)], 1):
        into.take(TOPIC, PUB, seq, message(time_ns, 40), now_ns)
    assert (into.delivered, into.bytes, into.missing, into.twice) == (2, 80, 0, 0)
    assert (into.first_ns, into.last_ns) == (3_001_000, 5_002_000)
    times = into.latencies.percentiles()
    assert (times.count, times.p50_ms, times.max_ms) == (2, 3.0, 5.0)


def test_a_message_of_each_publisher_and_topic_is_numbered_by_itself() -> None:
    into = Received()
    for topic, publisher, seq in ((b"t", "p", 1), (b"u", "p", 1), (b"t", "q", 1), (b"t", "p", 4)):
        into.take(topic, publisher, seq, message(1, 16), 1)
    assert (into.delivered, into.missing, into.twice) == (4, 2, 0)


def test_what_comes_twice_counts_once() -> None:
    into = received()
    for _ in range(3):
        into.take(TOPIC, PUB, 7, message(1, 16), 1)
    assert (into.delivered, into.twice) == (1, 2)


def test_a_warm_up_does_not_count_but_its_number_is_not_missed() -> None:
    into = received(wants_latencies=True)
    for seq, time_ns in ((1, 5), (2, 0), (3, 5)):
        into.take(TOPIC, PUB, seq, message(time_ns, 16), 10)
    assert (into.delivered, into.missing, into.latencies.percentiles().count) == (2, 0, 2)


def test_what_others_publish_is_foreign() -> None:
    into = received()
    into.take(TOPIC, "other", 1, message(1, 16), 1)
    into.take(TOPIC, None, None, b"raw", 1)
    assert (into.foreign, into.delivered, into.first_ns) == (2, 0, None)


def test_of_anybody_also_raw_messages_count_and_no_clock_is_believed() -> None:
    into = Received()
    into.take(TOPIC, None, None, b"raw", 1)
    into.take(TOPIC, None, None, b"raw", 1)
    into.take(TOPIC, "other", 9, message(1, 16), 1)
    assert (into.delivered, into.twice, into.bytes, into.foreign) == (3, 0, 22, 0)
    assert into.latencies.percentiles().count == 0
