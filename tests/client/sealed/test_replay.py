"""sealed/replay.py: windows, the floor and the start, whatever the order of arrival. PROTOCOL §9.6."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.client.events import Drop
from kcast.client.sealed.replay import BEFORE_START_S, PROCESSES_MAX, WINDOW, Process, Replays
from tests.support.forms import Seeds

BEGUN_MS = 1_790_000_000_000
KEY = b"k" * 32
bounded = settings(derandomize=True, max_examples=400, deadline=None)

Message = tuple[Process, int, int]


def process(number: int, key: bytes = KEY) -> Process:
    return b"weather/oslo", f"p{number}", key


# --- Taken once ----------------------------------------------------------------------------------------

MESSAGES = st.tuples(
    st.integers(0, 3).map(process),
    st.integers(1, 6) | st.integers(1000, 1030) | st.integers(10**18 - 3, 10**18 - 1),
    st.integers(BEGUN_MS, BEGUN_MS + 20),
)


@bounded
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data(), st.integers(1, 3))
def test_a_message_is_taken_once_whatever_comes_when_and_is_forgotten(
    messages: list[Message], data: st.DataObject, processes_max: int
) -> None:
    replays, taken = Replays(BEGUN_MS, processes_max), set[Message]()
    for message in data.draw(st.lists(st.sampled_from(messages), max_size=30)):
        if replays.take(*message) is None:
            assert message not in taken
            taken.add(message)
    assert len(replays) <= processes_max


def test_a_message_is_taken_once_of_publishers_that_come_and_go(seeds: Seeds) -> None:
    """Times rise with numbers, as those of honest publishers do; a recorder repeats what it likes."""
    for seed in seeds(4, 20):
        rng, replays, taken = Random(seed), Replays(BEGUN_MS, 5), set[Message]()
        recorded: list[Message] = []
        seqs = dict.fromkeys(range(8), 0)
        for step in range(3000):
            if recorded and rng.random() < 0.5:
                message = rng.choice(recorded[-200:])
            else:
                number = rng.randrange(8)
                seqs[number] += rng.choice((1, 1, 1, 2, 50, 3000))
                message = process(number), seqs[number], BEGUN_MS + step
                recorded.append(message)
            if replays.take(*message) is None:
                assert message not in taken
                taken.add(message)
        assert len(taken) > 500


def test_a_window_that_begins_again_takes_nothing_from_before() -> None:
    """What was taken, forgotten, and comes once more behind a newer message of its process."""
    replays = Replays(BEGUN_MS, 1)
    assert replays.take(process(1), 1, BEGUN_MS) is None
    assert replays.take(process(2), 1, BEGUN_MS + 5) is None, "the other one is forgotten"
    assert replays.take(process(1), 2, BEGUN_MS + 10) is None
    assert replays.take(process(1), 1, BEGUN_MS) is Drop.TOO_OLD


# --- Windows -------------------------------------------------------------------------------------------


@bounded
@given(st.lists(st.integers(1, 3000) | st.integers(1, 10**18 - 1), max_size=60))
def test_a_window_is_the_highest_number_and_the_1024_up_to_it(seqs: list[int]) -> None:
    replays, taken = Replays(BEGUN_MS), set[int]()
    for seq in seqs:
        is_repeat = seq in taken or (bool(taken) and seq <= max(taken) - WINDOW)
        assert replays.take(process(1), seq, BEGUN_MS) == (Drop.REPLAYED if is_repeat else None)
        if not is_repeat:
            taken.add(seq)


@pytest.mark.parametrize("jump", [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 10**6, 10**17])
def test_a_window_follows_a_jump_at_once(jump: int) -> None:
    replays = Replays(BEGUN_MS)
    for seq in (7, 9):
        assert replays.take(process(1), seq, BEGUN_MS) is None
    highest = 9 + jump
    assert replays.take(process(1), highest, BEGUN_MS) is None
    assert replays.take(process(1), highest, BEGUN_MS) is Drop.REPLAYED
    assert replays.take(process(1), 9, BEGUN_MS) is Drop.REPLAYED, "taken, or too far back"
    lowest = highest - WINDOW + 1
    if lowest > 9:
        assert replays.take(process(1), lowest, BEGUN_MS) is None
        assert replays.take(process(1), lowest - 1, BEGUN_MS) is Drop.REPLAYED
    assert replays.take(process(1), highest + 1, BEGUN_MS) is None


# --- The floor and the start ---------------------------------------------------------------------------


def test_a_forgotten_window_leaves_the_time_of_its_newest_message_as_the_floor() -> None:
    replays = Replays(BEGUN_MS, 2)
    for seq, sent_ms in ((5, BEGUN_MS + 50), (4, BEGUN_MS + 40)):
        assert replays.take(process(1), seq, sent_ms) is None
    assert replays.take(process(2), 1, BEGUN_MS + 10) is None
    assert replays.take(process(3), 1, BEGUN_MS + 20) is None, "which forgets the first"
    assert replays.take(process(4), 1, BEGUN_MS + 50) is Drop.TOO_OLD
    assert replays.take(process(2), 2, BEGUN_MS + 10) is None, "who is known, the floor is not for"
    assert replays.take(process(4), 1, BEGUN_MS + 51) is None


def test_nothing_from_long_before_the_start_is_taken() -> None:
    replays = Replays(BEGUN_MS)
    oldest_ms = BEGUN_MS - int(BEFORE_START_S * 1000)
    assert replays.is_too_old(oldest_ms - 1) and not replays.is_too_old(oldest_ms)
    assert replays.take(process(1), 1, oldest_ms - 1) is Drop.TOO_OLD
    assert replays.take(process(1), 1, oldest_ms) is None


def test_what_is_not_taken_moves_nothing() -> None:
    replays = Replays(BEGUN_MS, 2)
    assert replays.take(process(1), 2000, BEGUN_MS) is None
    assert replays.take(process(2), 1, BEGUN_MS) is None
    assert replays.take(process(1), 1, BEGUN_MS + 99) is Drop.REPLAYED
    assert replays.take(process(3), 1, BEGUN_MS + 1) is None, "which forgets the first, for all its repeat"
    assert replays.take(process(4), 1, BEGUN_MS + 1) is None, "its floor is not the repeat's time"


# --- Bounds --------------------------------------------------------------------------------------------


def test_memory_is_bounded() -> None:
    replays, rng = Replays(BEGUN_MS), Random(1)
    for number in range(PROCESSES_MAX + 1000):
        for seq in rng.sample(range(1, 5000), 3):
            replays.take(process(number), seq, BEGUN_MS + number)
    assert len(replays) == PROCESSES_MAX
    replays.take(process(number), 10**18 - 1, BEGUN_MS + number)
    assert all(window.taken.bit_length() <= WINDOW for window in replays._windows.values())
