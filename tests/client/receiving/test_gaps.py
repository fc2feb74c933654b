"""client/receiving/gaps.py: what is missing is reported in time, and withdrawn when it comes.

PROTOCOL §9.4. A jump counts where three numbers in a row stand behind it.
"""

import random
from bisect import bisect_left
from itertools import accumulate, count

import pytest

from kcast.client.events import Gap, GapFilled
from kcast.client.messages.sequence import (
    GOING_ON_S_MIN,
    JUMP_MAX,
    RESTART_S,
    RUNS_MAX,
    Sequence,
)
from kcast.client.receiving.gaps import PUBLISHERS_MAX, GapTracker
from tests.support.forms import Seeds, few_of

WAIT_S = 2.0 + GOING_ON_S_MIN  # for messages that follow closely

TOPIC, PUBLISHER = b"t", "p"


def hear(gaps: GapTracker, *seqs: int, now: float = 0.0) -> list[GapFilled]:
    heard = [gaps.heard((TOPIC, PUBLISHER), seq, now) for seq in seqs]
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
    hear(gaps, 1, 3, 4, 5, now=10.0)
    hear(gaps, 7, 8, 9, now=11.0)
    assert gaps.next_timeout() == 10.0 + WAIT_S
    assert settled(gaps, 9.999 + WAIT_S) == []
    assert settled(gaps, 10.0 + WAIT_S) == [(2, 2)]
    at = gaps.next_timeout()
    assert at is not None
    assert list(gaps.settle(at)) == [Gap(TOPIC, PUBLISHER, 6, 6)]
    assert 11.0 + WAIT_S <= at <= 11.0 + WAIT_S + 2
    assert gaps.next_timeout() is None
    assert settled(gaps, 1000.0) == []


@pytest.mark.parametrize("numbers", [(3,), (3, 4), (3, 5, 7, 9)])
def test_jump_that_nobody_continues_is_not_believed(numbers: tuple[int, ...], gaps: GapTracker) -> None:
    hear(gaps, 1, *numbers)
    assert settled(gaps, 1000.0) == []
    hear(gaps, 2, 3, now=1000.0)
    assert settled(gaps, 2000.0) == []


def test_baseline_that_somebody_made_up_gives_way_to_what_goes_on(gaps: GapTracker) -> None:
    """Whoever forged a line a second, beginning before the publisher's first, once hid all its gaps."""
    far = 10**17
    hear(gaps, far, now=0.0)
    for number in range(1, 60):
        if number not in (20, 40):
            hear(gaps, number, now=number / 2)
        if number % 2:
            hear(gaps, far + 1 + number // 2, now=number / 2 + 0.9)
    reported = []
    while (at := gaps.next_timeout()) is not None:
        reported += settled(gaps, at)
    assert reported == [(20, 20), (40, 40)]


def test_successor_that_comes_late_confirms_at_once(gaps: GapTracker) -> None:
    hear(gaps, 1, 3)
    assert settled(gaps, 50.0) == []
    hear(gaps, 4, 5, now=50.0)
    assert gaps.next_timeout() == WAIT_S
    assert settled(gaps, 50.0) == [(2, 2)]


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
    hear(gaps, 1, 7, 8, 9)
    assert hear(gaps, *late, now=1.0) == []
    assert settled(gaps, 10.0) == left


def test_gap_is_withdrawn_when_it_is_filled_once(gaps: GapTracker) -> None:
    hear(gaps, 1, 5, 6, 7)
    assert settled(gaps, WAIT_S) == [(2, 4)]
    assert hear(gaps, 3, now=3.0) == [GapFilled(TOPIC, PUBLISHER, 3)]
    assert hear(gaps, 3, now=3.0) == []
    assert hear(gaps, 4, 2, now=4.0) == [GapFilled(TOPIC, PUBLISHER, 4), GapFilled(TOPIC, PUBLISHER, 2)]
    assert hear(gaps, 2, 3, 4, 5, 1, now=5.0) == []
    assert settled(gaps, 100.0) == []


def test_jump_of_more_than_1000_is_a_new_start(gaps: GapTracker) -> None:
    hear(gaps, 1, 1 + JUMP_MAX, 2 + JUMP_MAX, 3 + JUMP_MAX)
    assert settled(gaps, WAIT_S) == [(2, JUMP_MAX)]
    far = 2 * JUMP_MAX + 4
    hear(gaps, far, far + 1, far + 2, now=3.0)
    assert settled(gaps, 3.0 + RESTART_S) == []
    hear(gaps, far + 4, far + 5, far + 6, now=20.0)
    assert settled(gaps, 60.0) == [(far + 3, far + 3)]


@pytest.mark.parametrize("start", [1, 3000, 20_000])
def test_new_start_counts_where_the_former_sequence_does_not_go_on(start: int, gaps: GapTracker) -> None:
    hear(gaps, 9998, 9999, 10_000)
    hear(gaps, start, start + 1, start + 2, now=1.0)
    hear(gaps, 10_001, now=5.0)
    hear(gaps, *range(10_003, 10_010), now=6.0)
    reported = [each for at in range(6, 60) for each in settled(gaps, at)]
    assert reported == [(10_002, 10_002)]
    hear(gaps, start + 3, start + 4, start + 5, now=60.0)
    settled(gaps, 120.0)
    hear(gaps, start + 7, start + 8, start + 9, now=120.0)
    assert settled(gaps, 200.0) == [(start + 6, start + 6)]


def test_backwards_within_1000_never_restarts(gaps: GapTracker) -> None:
    hear(gaps, JUMP_MAX + 1)
    hear(gaps, 1, 2, 3, 4, now=100.0)
    hear(gaps, *range(JUMP_MAX + 3, JUMP_MAX + 6), now=100.0)
    assert settled(gaps, 200.0) == [(JUMP_MAX + 2, JUMP_MAX + 2)]


def test_publishers_remembered_are_bounded_and_the_least_recently_heard_goes_first() -> None:
    gaps = GapTracker(settling_s=2.0, publishers_max=3)
    for publisher in "abcade":
        gaps.heard((TOPIC, publisher), 1, 0.0)
        assert len(gaps) <= 3
    for publisher in "adeb":
        for seq in (3, 4, 5):
            gaps.heard((TOPIC, publisher), seq, 0.0)
    reported = [gap.publisher for gap in gaps.settle(3.0)]
    assert reported == ["d", "e"], "a was forgotten for b, b's 1 for d"


@pytest.mark.parametrize("made_up_per_s", [100, 50_000])
def test_made_up_publishers_hide_no_gap_of_one_that_has_been_heard_for_a_while(made_up_per_s: int) -> None:
    """Each name is new, so that a bounded memory without parts forgets the publisher between two messages."""
    gaps = GapTracker(settling_s=2.0)
    made_up = count()
    reported = []
    numbers = [*range(1, 26), *range(27, 60)]
    for tick, seq in enumerate(numbers):
        now = tick / 2
        gaps.heard((TOPIC, PUBLISHER), seq, now)
        if now >= 11:
            for _ in range(made_up_per_s // 2):
                gaps.heard((TOPIC, f"x{next(made_up)}"), 7, now)
        reported += list(gaps.settle(now))
        assert len(gaps) <= PUBLISHERS_MAX
    assert reported == [Gap(TOPIC, PUBLISHER, 26, 26)]


def runs_kept(gaps: GapTracker) -> int:
    return max((max(len(each.missing), len(each.runs)) for each in gaps.sequences()), default=0)


def test_runs_are_bounded_and_the_youngest_stay(gaps: GapTracker) -> None:
    for start in range(1, 4 * (RUNS_MAX + 10), 4):
        hear(gaps, start, start + 1, start + 2)
        assert runs_kept(gaps) <= RUNS_MAX
    reported = settled(gaps, 10.0)
    assert len(reported) == RUNS_MAX
    assert reported[-1] == (4 * (RUNS_MAX + 9), 4 * (RUNS_MAX + 9))


@pytest.mark.parametrize("step", [2, 3, 7])
def test_runs_stay_bounded_where_forged_numbers_cut_them_to_pieces(step: int, gaps: GapTracker) -> None:
    hear(gaps, 1, *range(JUMP_MAX, 20 * JUMP_MAX, JUMP_MAX))
    for seq in range(2, 19 * JUMP_MAX, step):
        hear(gaps, seq)
        assert runs_kept(gaps) <= RUNS_MAX


# --- Honest streams, and those who forge --------------------------------------------------------------


def honest(rng: random.Random, period_s: float, loss: float, count: int = 300) -> list[tuple[float, int]]:
    """When which numbers of a publisher arrive: late by up to 0.3 s, and some not at all; but of any three in
    a row one does, as of a publisher that is alive."""
    sent = [(number * period_s + rng.uniform(0, 0.3), number) for number in range(1, count)]
    kept: list[tuple[float, int]] = []
    for each in sent:
        if each[1] < 5 or rng.random() >= loss or each[1] - kept[-1][1] > 2:
            kept.append(each)
    return sorted([*kept, *((count * period_s + each * period_s, count + each) for each in range(5))])


def reported(arrivals: list[tuple[float, int]]) -> set[int]:
    """Numbers that are reported missing in the end, and were not withdrawn."""
    gaps, missing = GapTracker(), set[int]()
    for now, seq in [*arrivals, (arrivals[-1][0] + 100, -1)]:
        while (at := gaps.next_timeout()) is not None and at <= now:
            for gap in gaps.settle(at):
                missing |= set(range(gap.first_seq, gap.last_seq + 1))
        if seq > 0 and (filled := gaps.heard((TOPIC, PUBLISHER), seq, now)) is not None:
            missing.discard(filled.seq)
        assert runs_kept(gaps) <= RUNS_MAX
    return missing


@pytest.mark.parametrize("period_s", [0.001, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("loss", [0.0, 0.02, 0.2])
def test_what_is_reported_and_not_withdrawn_is_what_never_came(
    seeds: Seeds, period_s: float, loss: float
) -> None:
    for seed in seeds(2, 10):
        arrivals = honest(random.Random(seed), period_s, loss)
        came = {number for _, number in arrivals}
        baseline = arrivals[0][1]
        lost = {number for number in range(baseline, max(came)) if number not in came}
        if period_s >= 0.1 or loss < 0.2:
            assert reported(arrivals) == lost
        else:  # more gaps at a time than are kept
            assert reported(arrivals) <= lost


Forger = list[tuple[float, int]]


def forged(kind: str, rng: random.Random, arrivals: list[tuple[float, int]], rate: float) -> Forger:
    """Lines in the name of a publisher that is alive, and goes on for a while: never with the number that
    comes next, nor with one that is missing."""
    end, last = arrivals[-1][0], arrivals[-1][1]
    came_at = [at for at, _ in arrivals]
    came = [number for _, number in arrivals]
    newest_of = list(accumulate(came, max))
    in_order = sorted(came)
    period_s = (end - arrivals[0][0]) / last
    until = end - 10.0 - 10 * period_s
    times = [at for at in (number / rate for number in range(1, int(until * rate))) if at > 1.0]
    lines: Forger = []
    counter = last + 5000
    for at in times:
        heard_count = max(1, bisect_left(came_at, at - 3.0))
        newest = newest_of[heard_count - 1]
        match kind:
            case "one jump":  # farther than it gets before the line is forgotten
                seq = newest + rng.choice((400, 999, 1000, 1001, 5000, 10**17))
                lines.append((at, seq if seq > last else last + rng.randrange(2, 2000)))
            case "back":
                lines.append((at, rng.choice(came[:heard_count])))
            case "old ones in a row":
                lines += [(at, number) for number in in_order[: rng.randrange(2, 30)] if number <= newest]
            case "pairs and rows":
                first = last + rng.randrange(10, 900)
                lines += [(at, first + each) for each in range(rng.randrange(2, 8))]
            case "a stream of its own":
                counter += 1
                lines.append((at, counter))
            case "a near stream":
                counter += 1
                lines.append((at, counter - 5000 + 300))
    return lines


KINDS = ("one jump", "back", "old ones in a row", "pairs and rows", "a stream of its own", "a near stream")


@pytest.mark.parametrize("period_s", few_of([0.1, 5.0, 0.01, 1.0], 2))
@pytest.mark.parametrize("kind", KINDS)
def test_forged_lines_neither_hide_a_gap_nor_report_one(seeds: Seeds, period_s: float, kind: str) -> None:
    """§9.4: but for the number that comes next, and those that are missing. One forged line a second hid all
    gaps, 0 of 40 were reported; 200 of them claimed 63,936 missing."""
    for seed in seeds(1, 3):
        rng = random.Random(seed)
        arrivals = honest(rng, period_s, 0.05, max(300, round(40 / period_s)))
        lines = forged(kind, rng, arrivals, rate=5.0)
        first_at = arrivals[3][0]  # it takes two messages to know how often they come
        together = sorted([*arrivals, *(line for line in lines if line[0] > first_at)])
        assert lines
        without = reported(arrivals)
        assert reported(together) == without
        assert len(without) > 0


def test_numbers_that_come_together_count_as_each_by_itself(seeds: Seeds) -> None:
    """Copies come by several servers, some are lost, some are forged, some come twice or very late."""
    for seed in seeds(40, 200):
        rng = random.Random(seed)
        together, singly = GapTracker(), GapTracker()
        key = (TOPIC, PUBLISHER)
        loss, forged, settling = (
            rng.choice([0.0, 0.01, 0.3]),
            rng.choice([0.0, 0.0, 0.05]),
            rng.random() < 0.5,
        )
        on_their_way: list[tuple[float, int]] = []
        now, seq = 0.0, rng.randrange(5000)
        for _ in range(rng.choice([30, 150])):
            now += rng.expovariate(1 / rng.choice([0.001, 0.1, 3.0]))
            for _ in range(rng.choice([1, 5, 100])):
                seq += 1
                if rng.random() >= loss:
                    on_their_way.append((now + rng.choice([0.0, 0.0, 0.002, 1.0, 5.0]) * rng.random(), seq))
                if rng.random() < forged:
                    on_their_way.append(
                        (now, seq + rng.choice([2, 3, 500, 2000, -700, -3000]) + rng.randrange(3))
                    )
            come = [each for at, each in on_their_way if at <= now]
            on_their_way = [(at, each) for at, each in on_their_way if at > now]
            rng.shuffle(come)
            if come:
                filled = [each for each in (singly.heard(key, seq, now) for seq in sorted(come)) if each]
                assert list(together.heard_all(key, come, now)) == filled, f"seed {seed}"
            if settling:
                assert together.next_timeout() == singly.next_timeout(), f"seed {seed}"
                assert list(together.settle(now)) == list(singly.settle(now)), f"seed {seed}"
            states = [
                [(each.runs, each.missing, each.has_unreported, each.next_due()) for each in gaps.sequences()]
                for gaps in (together, singly)
            ]
            assert states[0] == states[1], f"seed {seed}"
        assert len(together) == 1


def test_numbers_in_a_row_are_taken_at_once_also_after_and_beside_a_gap() -> None:
    """Else each number of a long sequence would cost as much as a run of them."""
    sequence = Sequence(1, 0.0)
    assert sequence.heard_run(2, 9, 1.0)
    assert sequence.heard_run(12, 20, 2.0)
    assert sequence.heard_run(10, 11, 3.0)  # reaches the run
    assert sequence.runs == []
    assert sequence.heard_run(21, 30, 100.0)
    assert sequence.heard_run(33, 40, 101.0)
    assert sequence.heard_run(41, 50, 102.0)
    assert not sequence.heard_run(31, 31, 200.0)  # the run is old by now, and is forgotten
    assert not sequence.heard(31, 200.0)
    assert sequence.runs == []
    assert sequence.heard_run(32, 60, 200.0)
