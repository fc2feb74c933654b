"""sealed/replay.py: windows, floors and the start, whatever the order of arrival. PROTOCOL §9.6."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.client.events import Drop
from kcast.client.sealed.replay import BEFORE_START_S, WINDOW, WINDOWS_MAX, Replays
from tests.support.forms import Seeds

BEGUN_MS = 1_790_000_000_000
KEYS = [bytes([number]) * 32 for number in range(9)]
TOPIC = b"weather/oslo"
bounded = settings(derandomize=True, max_examples=400, deadline=None)

Message = tuple[int, int, int, int]  # the number of a key, of a process, and of a message, and its time


def taken(replays: Replays, message: Message) -> Drop | None:
    """What becomes of a message."""
    key, process, seq, sent_ms = message
    return replays.take(TOPIC, f"p{process}", KEYS[key], seq, sent_ms)


# --- Taken once ----------------------------------------------------------------------------------------

MESSAGES = st.tuples(
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 6) | st.integers(1000, 1030) | st.integers(10**18 - 3, 10**18 - 1),
    st.integers(BEGUN_MS, BEGUN_MS + 20),
)


@bounded
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.data(), st.integers(1, 3))
def test_a_message_is_taken_once_whatever_comes_when_and_is_forgotten(
    messages: list[Message], data: st.DataObject, windows_max: int
) -> None:
    replays, found = Replays(BEGUN_MS, windows_max), set[Message]()
    for message in data.draw(st.lists(st.sampled_from(messages), max_size=30)):
        if taken(replays, message) is None:
            assert message not in found
            found.add(message)
    assert len(replays) <= windows_max


def test_a_message_is_taken_once_of_publishers_that_come_and_go(seeds: Seeds) -> None:
    """Times rise with numbers, as those of honest publishers do; a recorder repeats what it likes."""
    for seed in seeds(4, 20):
        rng, replays, found = Random(seed), Replays(BEGUN_MS, 5), set[Message]()
        recorded: list[Message] = []
        seqs = dict.fromkeys(range(8), 0)
        for step in range(3000):
            if recorded and rng.random() < 0.5:
                message = rng.choice(recorded[-200:])
            else:
                number = rng.randrange(8)
                seqs[number] += rng.choice((1, 1, 1, 2, 50, 3000))
                message = number % 3, number, seqs[number], BEGUN_MS + step
                recorded.append(message)
            if taken(replays, message) is None:
                assert message not in found
                found.add(message)
        assert len(found) > 500


# --- Windows -------------------------------------------------------------------------------------------


@bounded
@given(st.lists(st.integers(1, 3000) | st.integers(1, 10**18 - 1), max_size=60))
def test_a_window_is_the_highest_number_and_the_1024_up_to_it(seqs: list[int]) -> None:
    replays, found = Replays(BEGUN_MS), set[int]()
    for seq in seqs:
        is_repeat = seq in found or (bool(found) and seq <= max(found) - WINDOW)
        assert taken(replays, (0, 1, seq, BEGUN_MS)) == (Drop.REPLAYED if is_repeat else None)
        if not is_repeat:
            found.add(seq)


@pytest.mark.parametrize("jump", [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 10**6, 10**17])
def test_a_window_follows_a_jump_at_once(jump: int) -> None:
    replays, highest = Replays(BEGUN_MS), 9 + jump
    of = {True: None, False: Drop.REPLAYED}
    lowest = highest - WINDOW + 1
    cases = [(7, True), (9, True), (highest, True), (highest, False), (9, False)]
    cases += [(lowest, True), (lowest - 1, False)] if lowest > 9 else []
    for seq, is_taken in (*cases, (highest + 1, True)):
        assert taken(replays, (0, 1, seq, BEGUN_MS)) is of[is_taken], seq


# --- Floors and the start ------------------------------------------------------------------------------


def test_a_forgotten_window_leaves_the_time_of_its_newest_message_as_its_keys_floor() -> None:
    replays = Replays(BEGUN_MS, 2)
    for message, drop in (
        ((0, 1, 5, BEGUN_MS + 50), None),
        ((0, 1, 4, BEGUN_MS + 40), None),
        ((0, 1, 5, BEGUN_MS + 99), Drop.REPLAYED),  # what is not taken moves no time
        ((0, 2, 1, BEGUN_MS + 10), None),
        ((0, 3, 1, BEGUN_MS + 20), None),  # which forgets the first
        ((0, 4, 1, BEGUN_MS + 50), Drop.TOO_OLD),
        ((0, 1, 5, BEGUN_MS + 50), Drop.TOO_OLD),
        ((0, 2, 2, BEGUN_MS + 11), None),  # who is known, the floor is not for
        ((1, 1, 1, BEGUN_MS), None),  # nor any other key; the first has most, and gives up one more
        ((0, 1, 6, BEGUN_MS + 51), None),
        ((0, 1, 5, BEGUN_MS + 50), Drop.TOO_OLD),  # behind a newer message of its process
    ):
        assert taken(replays, message) is drop, message


def test_no_key_makes_another_give_up_what_it_has_less_of(seeds: Seeds) -> None:
    """Two keys have few processes, and up to five more go by ever new ones, in the future. Of more keys than
    windows, those heard last have theirs."""
    for seed in seeds(4, 20):
        rng, replays = Random(seed), Replays(BEGUN_MS, 24)
        seqs = dict.fromkeys([(key, process) for key in (0, 1) for process in (0, 1, 2)], 0)
        for step in range(2000):
            flooding = rng.randrange(2, 2 + rng.randint(1, 5))
            taken(replays, (flooding, step, rng.choice((1, 10**17)), BEGUN_MS + step + 29_000))
            which = rng.choice(list(seqs))
            seqs[which] += 1
            assert taken(replays, (*which, seqs[which], BEGUN_MS + step)) is None
            assert taken(replays, (*which, rng.randint(1, seqs[which]), BEGUN_MS + step)) is Drop.REPLAYED
    full = Replays(BEGUN_MS, 3)
    for key in range(9):
        assert taken(full, (key, 1, 1, BEGUN_MS)) is None
    assert [taken(full, (key, 1, 1, BEGUN_MS)) for key in (8, 7, 6)] == [Drop.REPLAYED] * 3
    assert [taken(full, (key, 1, 1, BEGUN_MS)) for key in range(6)] == [Drop.TOO_OLD] * 6


def test_a_key_is_crowded_that_begins_a_process_after_it_has_given_up_others() -> None:
    replays = Replays(BEGUN_MS, 3)
    for message, is_crowded in (
        *(((0, number, 1, BEGUN_MS + number), False) for number in range(4)),
        ((0, 4, 1, BEGUN_MS + 4), True),
        ((0, 5, 1, BEGUN_MS), True),  # which is too old by that
        ((0, 4, 2, BEGUN_MS + 4), False),
        ((1, 1, 1, BEGUN_MS), False),
    ):
        taken(replays, message)
        assert replays.is_crowded is is_crowded, message


def test_of_keys_that_do_not_count_any_more_the_floor_stays() -> None:
    """A clock that was wrong for a moment brings them back: nothing is taken twice."""
    replays = Replays(BEGUN_MS, 3)
    for key in (0, 0, 0, 0, 1):
        taken(replays, (key, len(replays) + key, 1, BEGUN_MS + 1))
    replays.keep_only({KEYS[1]})
    replays.keep_only({KEYS[1]})
    assert len(replays) == 1
    assert taken(replays, (1, 4, 1, BEGUN_MS + 1)) is Drop.REPLAYED
    assert taken(replays, (0, 2, 1, BEGUN_MS + 1)) is Drop.TOO_OLD
    assert taken(replays, (0, 2, 2, BEGUN_MS + 2)) is None


def test_what_is_from_long_before_the_start_is_too_old() -> None:
    replays = Replays(BEGUN_MS)
    oldest_ms = BEGUN_MS - int(BEFORE_START_S * 1000)
    assert replays.is_too_old(oldest_ms - 1) and not replays.is_too_old(oldest_ms)
    replays.begin_earlier(BEGUN_MS - 5000)
    assert replays.is_too_old(oldest_ms - 5001) and not replays.is_too_old(oldest_ms - 5000)


def test_memory_is_bounded() -> None:
    replays, rng = Replays(BEGUN_MS), Random(1)
    for number in range(WINDOWS_MAX + 1000):
        for seq in rng.sample(range(1, 5000), 3):
            taken(replays, (number % 9, number, seq, BEGUN_MS + number))
    assert len(replays) == WINDOWS_MAX
    taken(replays, (number % 9, number, 10**18 - 1, BEGUN_MS + number))
    windows = [window for sender in replays._senders.values() for window in sender.windows.values()]
    assert len(windows) == WINDOWS_MAX and all(each.taken.bit_length() <= WINDOW for each in windows)
