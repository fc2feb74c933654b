"""loadtest/users/schedule.py: streams are the same in every process, and in whatever pieces they are read."""

from itertools import pairwise
from math import sqrt

import numpy as np

from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.schedule import BLOCK_MESSAGES_MIN, BLOCKS_KEPT, Messages, Schedule

S = 1_000_000_000
SEED = 20


def scenario(**changes: object) -> Scenario:
    return Scenario(seed=SEED, publishers=2, rate=50.0, topics=10, topics_per_subscriber=4).with_(**changes)


def rows(messages: Messages) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in messages), strict=True))


def test_pieces_make_the_whole_wherever_they_are_cut() -> None:
    for arrivals in ["poisson", "constant"]:
        whole = rows(Schedule(scenario(arrivals=arrivals)).messages(3, 0, 60 * S))
        rng = np.random.default_rng(SEED)
        cuts = sorted({0, 60 * S, *rng.integers(60 * S, size=300).tolist(), *(t for _, t, _ in whole[::50])})
        pieces = Schedule(scenario(arrivals=arrivals))
        got = [row for a, b in pairwise(cuts) for row in rows(pieces.messages(3, a, b))]
        assert got == whole
        assert [seq for seq, _, _ in whole] == list(range(len(whole)))
        times = [t for _, t, _ in whole]
        assert times == sorted(times)
        assert all(0 <= t < 60 * S for t in times)


def test_a_burst_is_messages_of_one_time_and_topic_at_the_same_rate() -> None:
    for arrivals in ["poisson", "constant"]:
        alone = rows(Schedule(scenario(arrivals=arrivals, rate=10.0)).messages(0, 0, 60 * S))
        bursts = rows(Schedule(scenario(arrivals=arrivals, rate=70.0, burst=7)).messages(0, 0, 60 * S))
        assert [seq for seq, _, _ in bursts] == list(range(len(bursts)))
        groups = [bursts[at : at + 7] for at in range(0, len(bursts), 7)]
        assert all(len(each) == 7 and len({row[1:] for row in each}) == 1 for each in groups)
        few = BLOCK_MESSAGES_MIN // 7  # the first block's
        assert [each[0][1] for each in groups[:few]] == [t_ns for _, t_ns, _ in alone[:few]]


def test_reading_an_earlier_part_again_gives_the_same_though_its_blocks_are_gone() -> None:
    schedule = Schedule(scenario())
    first = rows(schedule.messages(0, 0, S))
    far_ns = 2 * BLOCKS_KEPT * BLOCK_MESSAGES_MIN * S // 50
    later = rows(schedule.messages(0, far_ns, far_ns + S))
    assert rows(schedule.messages(0, 0, S)) == first
    assert rows(schedule.messages(0, far_ns, far_ns + S)) == later
    assert rows(Schedule(scenario()).messages(0, far_ns, far_ns + S)) == later


def test_old_blocks_are_forgotten() -> None:
    schedule = Schedule(scenario())
    for second in range(1200):
        schedule.messages(0, second * S, (second + 1) * S)
    assert len(schedule._streams[0]._blocks) <= BLOCKS_KEPT + 1


def test_publishers_and_seeds_differ() -> None:
    schedule = Schedule(scenario())
    times = [tuple(schedule.messages(pub_id, 0, 5 * S).t_ns.tolist()) for pub_id in range(20)]
    times.append(tuple(Schedule(scenario(seed=SEED + 1)).messages(0, 0, 5 * S).t_ns.tolist()))
    assert len(set(times)) == len(times)
    assert Schedule(scenario(seed=-1)).count(0, 0, S)  # any whole number will do


def test_poisson_arrivals_are_a_poisson_process() -> None:
    t_s = Schedule(scenario()).messages(0, 0, 2000 * S).t_ns / 1e9
    gaps = np.diff(t_s)
    count = len(t_s)
    assert abs(count - 100_000) < 5 * sqrt(100_000)
    # Exponential: mean and deviation alike, and memoryless; each within five deviations of its estimate.
    assert abs(gaps.mean() * 50 - 1) < 5 / sqrt(count)
    assert abs(gaps.std() * 50 - 1) < 5 * sqrt(2 / count)
    assert abs((gaps > 0.04).mean() - np.exp(-2)) < 5 * sqrt(np.exp(-2) / count)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 5 / sqrt(count)
    # Also where one block follows another.
    seams = gaps[BLOCK_MESSAGES_MIN - 1 :: BLOCK_MESSAGES_MIN]
    assert abs(seams.mean() * 50 - 1) < 5 / sqrt(len(seams))


def test_constant_arrivals_are_even_and_begin_at_random() -> None:
    schedule = Schedule(scenario(arrivals="constant"))
    phases = []
    for pub_id in range(200):
        t_ns = schedule.messages(pub_id, 0, 20 * S).t_ns
        assert len(t_ns) == 1000
        assert set(np.diff(t_ns).tolist()) <= {19_999_999, 20_000_000, 20_000_001}
        phases.append(t_ns[0] / 2e7)
    assert abs(np.mean(phases) - 0.5) < 5 / sqrt(12 * 200)


def test_topics_are_drawn_evenly() -> None:
    topics = Schedule(scenario()).messages(1, 0, 1000 * S).topic_id
    counts = np.bincount(topics, minlength=10)
    assert len(counts) == 10
    assert abs(counts - len(topics) / 10).max() < 5 * sqrt(len(topics) / 10)


def test_subscribers_draw_their_topics() -> None:
    schedule = Schedule(scenario())
    drawn = [schedule.topics_of(sub_id) for sub_id in range(1000)]
    assert all(len(set(topics)) == 4 and list(topics) == sorted(topics) for topics in drawn)
    counts = np.bincount([topic for topics in drawn for topic in topics], minlength=10)
    assert abs(counts - 400).max() < 5 * sqrt(400 * 0.6)
    assert [Schedule(scenario()).topics_of(sub_id) for sub_id in range(1000)] == drawn


def test_counts_are_of_what_is_in_the_window() -> None:
    schedule = Schedule(scenario())
    for window in ((0, 3 * S), (2 * S, 2 * S), (S, 100 * S)):
        assert schedule.count(5, *window) == len(rows(schedule.messages(5, *window)))


def test_a_slow_publisher_may_have_nothing_to_publish() -> None:
    quiet = Schedule(scenario(rate=0.001)).messages(0, 0, S // 1000)
    assert rows(quiet) == []
    assert quiet.topic_id.dtype == np.int32
