"""loadtest/bench/plan.py: who publishes what and when, and settings that make no benchmark."""

from collections import Counter
from typing import Any

import pytest

from kcast.client.messages.lines import publish_line
from kcast.loadtest.bench.plan import BenchPlan, message, spread, time_of
from kcast.pubsub.wire import TopicError, encode_topic

S = 1_000_000_000


def plan(**given: Any) -> BenchPlan:
    return BenchPlan(**{"kind": "pubsub", **given})


@pytest.mark.parametrize(("count", "publishers"), [(1, 1), (10, 3), (12, 4), (7, 7), (20_000, 6)])
def test_all_publishers_together_have_the_count(count: int, publishers: int) -> None:
    made = plan(count=count, publishers=publishers)
    parts = [made.part(number).messages for number in range(publishers)]
    assert sum(filter(None, parts)) == count
    assert max(filter(None, parts)) - min(filter(None, parts)) <= 1


def test_without_a_count_only_the_duration_ends_it() -> None:
    assert plan(duration_s=1.0).part(0).messages is None


def test_messages_of_all_publishers_are_due_one_after_the_other() -> None:
    made = plan(count=10, publishers=3, rate=4.0)
    parts = [made.part(number) for number in range(3)]
    due_ns = sorted(part.due_ns(each) for part in parts for each in range(part.messages or 0))
    assert due_ns == [number * S // 4 for number in range(10)]


def test_times_do_not_drift_at_rates_that_no_float_has() -> None:
    part = plan(count=3_000_001, rate=3000.0).part(0)
    assert part.due_ns(3_000_000) == 1000 * S


def test_topics_take_turns_and_each_publisher_begins_with_another_one() -> None:
    made = plan(topic="t", topics=4, publishers=2, count=8)
    assert [made.part(0).topic(number) for number in range(5)] == [b"t/0", b"t/1", b"t/2", b"t/3", b"t/0"]
    assert made.part(1).topic(0) == b"t/1"
    used = Counter(made.part(publisher).topic(number) for publisher in (0, 1) for number in range(4))
    assert used == dict.fromkeys(made.topic_names, 2)


def test_one_topic_has_the_name_itself_in_any_bytes() -> None:
    assert plan(topic="a/b").topic_names == (b"a/b",)
    assert plan(topic="\udcff").topic_names == (b"\xff",)


@pytest.mark.parametrize("time_ns", [0, 1, 2**63])
def test_a_message_tells_its_time(time_ns: int) -> None:
    for size_bytes in (16, 17, 800):
        data = message(time_ns, size_bytes)
        assert (len(data), time_of(data)) == (size_bytes, time_ns)


@pytest.mark.parametrize("data", [b"", b"15 bytes of it.", b"sixteen bytes of it", b"\xff" * 16])
def test_what_others_publish_tells_no_time(data: bytes) -> None:
    assert time_of(data) is None


def test_the_largest_size_fits_and_no_larger_one() -> None:
    with pytest.raises(ValueError, match=r"--size 5000 is too large: on this topic \d+ bytes fit") as refused:
        plan(size_bytes=5000, topics=11)
    fits = int(str(refused.value).split()[8])
    made = plan(size_bytes=fits, topics=11)
    for topic in made.topic_names:
        publish_line(encode_topic(topic), message(2**63, fits), "p" * 11, 10**18 - 1)
    with pytest.raises(ValueError, match="too large"):
        plan(size_bytes=fits + 1, topics=11)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": 2, "publishers": 3}, "--count 2 is less than --publishers 3"),
        ({"rate": 0.1, "duration_s": 2.0}, "--rate 0.1 publishes nothing in 2 s"),
        ({"subscribers": 1000, "topics": 21}, "--subscribers 1000 times --topics 21 is more than 20000"),
    ],
)
def test_settings_that_make_no_benchmark(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan(**given)


def test_a_topic_must_be_one() -> None:
    with pytest.raises(TopicError):
        plan(topic="")
    with pytest.raises(TopicError):
        plan(kind="sub", topic="x" * 256)


def test_a_plan_can_be_told() -> None:
    made = plan(topic="\udcff", rate=2.5, duration_s=1.0, confirm=False)
    assert BenchPlan.from_json(made.as_json()) == made


@pytest.mark.parametrize(
    ("clients", "processes", "spread_out"),
    [(1, 2, [[0]]), (5, 2, [[0, 2, 4], [1, 3]]), (3, 3, [[0], [1], [2]]), (2, 8, [[0], [1]])],
)
def test_clients_share_as_many_processes_as_are_of_use(
    clients: int, processes: int, spread_out: list[list[int]]
) -> None:
    assert spread(clients, processes) == spread_out
