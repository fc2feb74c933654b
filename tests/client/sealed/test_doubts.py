"""sealed/doubts.py: a wrong clock is told, and a sound one not; floods, too. PROTOCOL §9.6."""

from random import Random

import pytest

from kcast.client.events import ClockDoubt, Forged
from kcast.client.sealed.doubts import FLOOD_PER_S, SILENCE_S, TOLD_AGAIN_S, ClockWatch, FloodMeter
from tests.support.forms import Seeds

START = 1_790_000_000.0
KEY = "k" * 43
TOPIC = b"weather/oslo"


def off(watch: ClockWatch, off_s: float, now: float) -> ClockDoubt | None:
    """What is told of a proven message that is not in time, as guards ask."""
    return watch.is_off(TOPIC, KEY, off_s, now) if watch.wants_proof(now) else None


def told(watch: ClockWatch, every_s: int, for_s: int, off_s: float = -300.0) -> list[float]:
    """When something is told while one sender publishes, in seconds since the start."""
    times = range(0, for_s, every_s)
    return [at for at in times if off(watch, off_s + at % 7, START + at) is not None]


# --- The clock -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [-86_400.0, -131.0, 31.0, 3600.0])
@pytest.mark.parametrize("every_s", [1, 10, 45, 600])
def test_a_wrong_clock_is_told_after_a_minute_of_silence_also_of_one_sender(
    off_s: float, every_s: int
) -> None:
    (at,) = told(ClockWatch(START), every_s, 1000, off_s)
    assert SILENCE_S <= at < SILENCE_S + every_s
    watch = ClockWatch(START)
    assert off(watch, off_s, START) is None
    assert off(watch, off_s, START + 100) == ClockDoubt(TOPIC, KEY, off_s)


def test_it_is_told_once_an_hour_and_again_after_messages_in_time() -> None:
    first, second = told(ClockWatch(START), 5, int(TOLD_AGAIN_S) + 200)
    assert TOLD_AGAIN_S <= second - first < TOLD_AGAIN_S + 20
    again = ClockWatch(START)
    assert len(told(again, 5, 100)) == 1
    again.is_in_time(START)
    assert len(told(again, 5, 100)) == 1


def test_a_message_that_is_replayed_again_and_again_says_nothing_of_the_clock() -> None:
    watch = ClockWatch(START)
    assert not [at for at in range(0, 5000, 20) if off(watch, -200.0 - at, START + at) is not None]


def test_a_sound_clock_is_not_doubted_where_something_comes_in_time_each_minute(seeds: Seeds) -> None:
    for seed in seeds(6, 30):
        rng, watch, now = Random(seed), ClockWatch(START), START
        in_time_at = START
        for _ in range(3000):
            now += rng.choice((0.0, 0.1, 1.0, 1.5, 5.0))
            if now >= in_time_at + SILENCE_S - 6:
                watch.is_in_time(now)
                in_time_at = now
            assert off(watch, rng.choice((-200.0, -190.0, 31.0)), now) is None


def test_to_prove_what_is_dropped_has_a_rate_also_when_the_clock_is_set_back() -> None:
    watch = ClockWatch(START)
    assert sum(watch.wants_proof(START + number / 100) for number in range(1000)) == 10
    assert watch.wants_proof(START - 5000) and not watch.wants_proof(START - 5000)


# --- Floods --------------------------------------------------------------------------------------------


def flood(rate: int, seconds: int, meter: FloodMeter, topic: bytes = TOPIC) -> list[Forged]:
    """What is told of a steady flood, of nobody's and of a key's."""
    found = [
        meter.count(topic, sender, START + number / rate)
        for number in range(rate * seconds)
        for sender in (None, KEY)
    ]
    return [each for each in found if each is not None]


@pytest.mark.parametrize("rate", [1, 7, 99, 100, 101, 150, 1000])
def test_more_than_100_a_second_are_told(rate: int) -> None:
    expected = [Forged(TOPIC, rate), Forged(TOPIC, rate, KEY)] if rate > FLOOD_PER_S else []
    assert flood(rate, 5, FloodMeter()) == expected


def test_a_flood_is_told_once_a_minute_for_each_topic_and_sender() -> None:
    meter = FloodMeter()
    assert len(flood(200, 130, meter)) == 6
    assert {each.topic for each in flood(200, 3, meter, b"another")} == {b"another"}
    for number in range(5000):
        meter.count(b"%d" % number, None, START)
    assert len(meter._counts) <= 1024
