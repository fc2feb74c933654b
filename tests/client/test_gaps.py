"""client/gaps.py: what is missing, reported once it had its time, withdrawn when it comes. PROTOCOL §9.4."""

import random

import pytest

from kcast.client.events import Gap, GapFilled
from kcast.client.gaps import JUMP_MAX, RUNS_MAX, GapTracker

TOPIC, PUBLISHER = b"t", "p"


def hear(gaps: GapTracker, *seqs: int, now: float = 0.0) -> list[GapFilled]:
    heard = [gaps.heard(TOPIC, PUBLISHER, seq, now) for seq in seqs]
    return [filled for filled in heard if filled is not None]


def settled(gaps: GapTracker, now: float) -> list[tuple[int, int]]:
    return [(gap.first_seq, gap.last_seq) for gap in gaps.settle(now)]


@pytest.fixture
def gaps() -> GapTracker:
    return GapTracker(settling_s=2.0)


def test_first_seq_is_the_baseline(gaps: GapTracker) -> None:
    assert hear(gaps, 500, 501, 502) == []
    assert gaps.next_timeout() is None
    assert settled(gaps, 100.0) == []


def test_gap_is_reported_once_and_exactly_when_it_has_settled(gaps: GapTracker) -> None:
    hear(gaps, 1, 3, now=10.0)
    hear(gaps, 7, now=11.0)
    assert gaps.next_timeout() == 12.0
    assert settled(gaps, 11.999) == []
    assert settled(gaps, 12.0) == [(2, 2)]
    assert gaps.next_timeout() == 13.0
    assert list(gaps.settle(13.0)) == [Gap(TOPIC, PUBLISHER, 4, 6)]
    assert gaps.next_timeout() is None
    assert settled(gaps, 1000.0) == []


def test_what_comes_within_the_settling_time_is_no_gap(gaps: GapTracker) -> None:
    assert hear(gaps, 1, 4, 2, 3) == []
    assert settled(gaps, 2.0) == []


@pytest.mark.parametrize(
    ("late", "left"),
    [((2,), [(3, 6)]), ((6,), [(2, 5)]), ((4,), [(2, 3), (5, 6)]), ((3, 5), [(2, 2), (4, 4), (6, 6)])],
)
def test_run_that_is_filled_in_part_reports_the_rest(
    late: tuple[int, ...], left: list[tuple[int, int]], gaps: GapTracker
) -> None:
    hear(gaps, 1, 7)
    assert hear(gaps, *late, now=1.0) == []
    assert settled(gaps, 2.0) == left


def test_gap_is_withdrawn_when_it_is_filled_once(gaps: GapTracker) -> None:
    hear(gaps, 1, 5)
    assert settled(gaps, 2.0) == [(2, 4)]
    assert hear(gaps, 3, now=3.0) == [GapFilled(TOPIC, PUBLISHER, 3)]
    assert hear(gaps, 3, now=3.0) == []
    assert hear(gaps, 4, 2, now=4.0) == [GapFilled(TOPIC, PUBLISHER, 4), GapFilled(TOPIC, PUBLISHER, 2)]
    assert hear(gaps, 2, 3, 4, 5, 1, now=5.0) == []
    assert settled(gaps, 100.0) == []


def test_jump_of_more_than_1000_restarts_the_baseline(gaps: GapTracker) -> None:
    hear(gaps, 1, 1 + JUMP_MAX)
    assert settled(gaps, 2.0) == [(2, JUMP_MAX)]
    hear(gaps, 2 * JUMP_MAX + 2, now=3.0)
    assert settled(gaps, 100.0) == []
    hear(gaps, 2 * JUMP_MAX + 4, now=100.0)
    assert settled(gaps, 102.0) == [(2 * JUMP_MAX + 3, 2 * JUMP_MAX + 3)]


def test_jump_forgets_what_had_not_settled(gaps: GapTracker) -> None:
    hear(gaps, 1, 3, 10_000)
    assert settled(gaps, 10.0) == []


def test_backwards_jump_restarts_only_once_the_settling_time_has_passed(gaps: GapTracker) -> None:
    """Otherwise one slow server's copies would restart it for ever."""
    hear(gaps, 5000, now=0.0)
    hear(gaps, 1, now=2.0)
    hear(gaps, 5002, now=2.0)
    assert settled(gaps, 4.0) == [(5001, 5001)]
    hear(gaps, 1, now=4.001)
    hear(gaps, 3, now=4.001)
    assert settled(gaps, 6.001) == [(2, 2)]


def test_backwards_within_1000_never_restarts(gaps: GapTracker) -> None:
    hear(gaps, JUMP_MAX + 1)
    hear(gaps, 1, now=100.0)
    hear(gaps, JUMP_MAX + 3, now=100.0)
    assert settled(gaps, 200.0) == [(JUMP_MAX + 2, JUMP_MAX + 2)]


def test_publishers_and_topics_are_apart(gaps: GapTracker) -> None:
    for topic, publisher, seq in ((b"t", "p", 1), (b"t", "q", 3), (b"u", "p", 5), (b"t", "p", 3)):
        gaps.heard(topic, publisher, seq, 0.0)
    assert list(gaps.settle(2.0)) == [Gap(b"t", "p", 2, 2)]


def test_publishers_remembered_are_bounded_and_the_least_recently_heard_goes_first() -> None:
    gaps = GapTracker(settling_s=2.0, publishers_max=3)
    for publisher in "abcade":
        gaps.heard(TOPIC, publisher, 1, 0.0)
        assert len(gaps) <= 3
    for publisher in "ade":
        gaps.heard(TOPIC, publisher, 3, 1.0)
    gaps.heard(TOPIC, "b", 3, 1.0)
    assert [gap.publisher for gap in gaps.settle(3.0)] == ["d", "e"], "a was forgotten for b, b's 1 for d"


def runs_kept(gaps: GapTracker) -> int:
    return max((len(sequence.missing) for sequence in gaps._sequences.values()), default=0)


def test_runs_are_bounded_and_the_youngest_stay(gaps: GapTracker) -> None:
    hear(gaps, *range(1, 2 * (RUNS_MAX + 10) + 2, 2))
    assert runs_kept(gaps) == RUNS_MAX
    reported = settled(gaps, 2.0)
    assert len(reported) == RUNS_MAX
    assert reported[-1] == (2 * (RUNS_MAX + 10), 2 * (RUNS_MAX + 10))


def test_runs_stay_bounded_where_forged_numbers_cut_them_to_pieces(gaps: GapTracker) -> None:
    hear(gaps, 1, *range(JUMP_MAX, 20 * JUMP_MAX, JUMP_MAX))
    for seq in range(2, 19 * JUMP_MAX, 2):
        hear(gaps, seq)
        assert runs_kept(gaps) <= RUNS_MAX


@pytest.mark.parametrize("seed", range(20))
def test_what_is_reported_and_not_withdrawn_is_what_never_came(seed: int) -> None:
    rng = random.Random(seed)
    gaps = GapTracker(settling_s=2.0)
    seqs = [seq for seq in range(1, 120) if seq in (1, 119) or rng.random() < 0.8]
    arrivals = sorted(seqs, key=lambda seq: seq + rng.uniform(0, 12) + 40 * (rng.random() < 0.1))
    missing: set[int] = set()
    baseline, now = arrivals[0], 0.0
    for seq in arrivals:
        now += rng.choice((0.0, 0.2, 1.0))
        for filled in hear(gaps, seq, now=now):
            assert filled.seq in missing
            missing.remove(filled.seq)
        for first, last in settled(gaps, now):
            assert not missing & set(range(first, last + 1)), "each is reported once"
            missing |= set(range(first, last + 1))
        assert not missing & {seq}
    for first, last in settled(gaps, now + 2.0):
        missing |= set(range(first, last + 1))
    assert missing == {seq for seq in range(baseline, 120) if seq not in seqs}
