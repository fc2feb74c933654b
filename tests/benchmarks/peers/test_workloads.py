"""Workloads, and the ring of messages that are encoded beforehand."""

from collections import Counter
from random import Random

import pytest

from tests.benchmarks.peers.kcast import publish
from tests.benchmarks.peers.workloads import (
    LAST,
    PLAIN,
    SAMPLED,
    SIZE_BYTES_MIN,
    STAMP_DIGITS,
    TOPICS_MAX,
    Ring,
    Workload,
    payload,
)


@pytest.mark.parametrize(
    "workload",
    [
        Workload(1, 1, 1),
        Workload(1, 100, 100),
        Workload(1000, 100, 10),
        Workload(1000, 100, 1),
        Workload(256, 256, 1),
    ],
    ids=repr,
)
def test_each_topic_has_as_many_subscribers_as_its_fan_out(workload: Workload) -> None:
    everyone = [workload.topics_of(number) for number in range(workload.subscriber_count)]
    counts = Counter(topic for topics in everyone for topic in topics)
    assert set(counts.values()) == {workload.fan_out}
    assert len(counts) == workload.topic_count
    assert sum(counts.values()) == workload.lease_count
    assert {len(topics) for topics in everyone} == {workload.lease_count // workload.subscriber_count}


def test_topics_are_equally_long() -> None:
    workload = Workload(TOPICS_MAX, 100, 1)
    assert len({len(workload.topic(number)) for number in (0, 9, 10, TOPICS_MAX - 1)}) == 1
    with pytest.raises(ValueError, match="longer name"):
        workload.topic(TOPICS_MAX)


def test_nothing_is_published_on_idle_topics() -> None:
    ring = Ring(Workload(10, 10, 1, idle_count=7), publish)
    published = {line.partition(b" ")[0] for line in bytes(ring.data).splitlines()}
    assert published == {b"t00000", b"t00001", b"t00002"}


def test_a_payload_has_room_for_a_time() -> None:
    assert len(payload(SIZE_BYTES_MIN)) == SIZE_BYTES_MIN
    with pytest.raises(ValueError, match="no room"):
        payload(SIZE_BYTES_MIN - 1)


def test_frames_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        Ring(Workload(100, 1, 1), lambda topic, payload: topic.strip(b"0") + payload)


def lines(ring: Ring) -> list[bytes]:
    size = ring.message_bytes
    return [bytes(ring.data[start : start + size]) for start in range(0, len(ring.data), size)]


def test_the_share_that_is_sampled_is_marked_and_no_other() -> None:
    ring = Ring(Workload(4, 4, 1), publish)
    ring.sample(0.25, Random(1))
    before = {number for number, line in enumerate(lines(ring)) if SAMPLED in line}
    assert len(before) == ring.message_count // 4
    ring.sample(0.0, Random(2))
    after = {number for number, line in enumerate(lines(ring)) if SAMPLED in line}
    assert len(after) == 1
    assert all(line.count(LAST) == 1 for line in lines(ring))


def test_sampled_messages_tell_when_they_are_due_also_across_the_end_of_the_ring() -> None:
    ring = Ring(Workload(4, 4, 1), publish)
    ring.sample(1.0, Random(1))
    start = 3 * ring.message_count - 5
    ring.stamp(start, start + 10, lambda message: message * 1000)
    for message in range(start, start + 10):
        line = lines(ring)[message % ring.message_count]
        stamp = line.partition(SAMPLED)[2][:STAMP_DIGITS]
        assert int(stamp, 16) == message * 1000


def test_what_is_not_sampled_is_not_touched() -> None:
    ring = Ring(Workload(4, 4, 1), publish)
    ring.sample(0.0, Random(1))
    plain = [line for line in lines(ring) if SAMPLED not in line]
    ring.stamp(0, ring.message_count, lambda message: 0xABC)
    assert [line for line in lines(ring) if SAMPLED not in line] == plain
    assert all(PLAIN * STAMP_DIGITS in line for line in plain)


def test_a_time_wraps_rather_than_grow_longer() -> None:
    ring = Ring(Workload(1, 1, 1), publish)
    ring.sample(1.0, Random(1))
    ring.stamp(0, 1, lambda _: 16**STAMP_DIGITS + 5)
    assert lines(ring)[0].partition(SAMPLED)[2][: STAMP_DIGITS + 1] == b"0" * (STAMP_DIGITS - 1) + b"5."
