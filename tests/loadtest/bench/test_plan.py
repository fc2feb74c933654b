"""loadtest/bench/plan.py: who publishes what and when, and settings that make no benchmark."""

from typing import Any

import pytest

from kcast.client.messages.lines import publish_line
from kcast.loadtest.bench.plan import BenchPlan, spread, time_of
from kcast.loadtest.scenario import payload
from kcast.pubsub.wire import TopicError, encode_topic

S = 1_000_000_000


def plan(**given: Any) -> BenchPlan:
    return BenchPlan(**{"kind": "pubsub", **given})


def test_all_publishers_together_have_the_count() -> None:
    for count, publishers in ((1, 1), (10, 3), (12, 4), (7, 7), (20_000, 6)):
        made = plan(count=count, publishers=publishers)
        parts = [made.messages_of(number) or 0 for number in range(publishers)]
        assert sum(parts) == count
        assert max(parts) - min(parts) <= 1
    assert plan(duration_s=1.0).messages_of(0) is None


def test_messages_of_all_publishers_are_due_one_after_the_other() -> None:
    made = plan(count=10, publishers=3, rate=4.0)
    due_ns = sorted(made.due_ns(one, each) for one in range(3) for each in range(made.messages_of(one) or 0))
    assert due_ns == [number * S // 4 for number in range(10)]


def test_times_do_not_drift_at_rates_that_no_float_has() -> None:
    assert plan(count=3_000_001, rate=3000.0).due_ns(0, 3_000_000) == 1000 * S


def test_topics_are_numbered_and_one_has_the_name_itself_in_any_bytes() -> None:
    assert plan(topic="t", topics=3).topic_names == (b"t/0", b"t/1", b"t/2")
    assert plan(topic="a/b").topic_names == (b"a/b",)
    assert plan(topic="\udcff").topic_names == (b"\xff",)


def test_a_message_tells_its_time_and_what_others_publish_does_not() -> None:
    for time_ns in (0, 1, 2**63):
        for size_bytes in (16, 17, 800):
            assert time_of(payload(time_ns, size_bytes)) == time_ns
    for data in (b"", b"15 bytes of it.", b"sixteen bytes of it", b"\xff" * 16):
        assert time_of(data) is None


def test_the_largest_size_fits_and_no_larger_one() -> None:
    with pytest.raises(ValueError, match=r"--size 5000 is too large: on this topic \d+ bytes fit") as refused:
        plan(size_bytes=5000, topics=11)
    fits = int(str(refused.value).split()[8])
    made = plan(size_bytes=fits, topics=11)
    for topic in made.topic_names:
        publish_line(encode_topic(topic), payload(2**63, fits), "p" * 11, 10**18 - 1)
    with pytest.raises(ValueError, match="too large"):
        plan(size_bytes=fits + 1, topics=11)


def test_settings_that_make_no_benchmark() -> None:
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"count": 2, "publishers": 3}, "--count 2 is less than --publishers 3"),
        ({"rate": 0.1, "duration_s": 2.0}, "--rate 0.1 publishes nothing in 2 s"),
        ({"subscribers": 1000, "topics": 21}, "--subscribers 1000 times --topics 21 is more than 20000"),
    )
    for given, words in refused:
        with pytest.raises(ValueError, match=words):
            plan(**given)
    for given in ({"topic": ""}, {"kind": "sub", "topic": "x" * 256}):
        with pytest.raises(TopicError):
            plan(**given)


def test_clients_share_as_many_processes_as_are_of_use() -> None:
    assert spread(1, 2) == [[0]]
    assert spread(5, 2) == [[0, 2, 4], [1, 3]]
    assert spread(3, 3) == [[0], [1], [2]]
    assert spread(2, 8) == [[0], [1]]
