"""sealed/doubts.py: a wrong clock is told, and a sound one not; floods of forged messages, too.

PROTOCOL §9.6.
"""

from random import Random

import pytest

from kcast.client.events import ClockDoubt, Forged
from kcast.client.sealed.doubts import (
    FORGED_PER_S,
    SENDERS_MIN,
    SILENCE_S,
    TOLD_AGAIN_S,
    ClockWatch,
    ForgeryMeter,
)
from tests.support.forms import Seeds

START = 1_790_000_000.0
KEYS = [bytes([number]) * 32 for number in range(40)]
TOPIC = b"weather/oslo"


def off(watch: ClockWatch, key: bytes, off_s: float, now: float) -> ClockDoubt | None:
    """What is told of a proven message that is not in time, as guards ask."""
    return watch.is_off(TOPIC, key, off_s, now) if watch.wants_proof(key, now) else None


def told(
    watch: ClockWatch, senders: int, seconds: int, off_s: float = -300.0
) -> list[tuple[float, ClockDoubt]]:
    """What is told while some senders publish every ten seconds, each at a second of its own."""
    found = []
    for second in range(seconds):
        doubt = off(watch, KEYS[second % 10], off_s, START + second) if second % 10 < senders else None
        if doubt is not None:
            found.append((START + second, doubt))
    return found


# --- The clock -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [-86_400.0, -121.0, 31.0, 3600.0])
def test_a_wrong_clock_is_told_after_a_minute_of_silence(off_s: float) -> None:
    ((at, doubt),) = told(ClockWatch(START), 4, 200, off_s)
    assert START + SILENCE_S <= at < START + SILENCE_S + 20
    assert doubt == ClockDoubt(TOPIC, 4, off_s)


def test_it_is_told_once_an_hour_and_again_after_messages_in_time() -> None:
    watch = ClockWatch(START)
    times = [at for at, _ in told(watch, 5, int(TOLD_AGAIN_S) + 200)]
    assert len(times) == 2 and TOLD_AGAIN_S <= times[1] - times[0] < TOLD_AGAIN_S + 20
    again = ClockWatch(START)
    assert len(told(again, 5, 100)) == 1
    again.is_in_time(START)
    assert len(told(again, 5, 100)) == 1


def test_messages_on_both_sides_say_nothing_of_the_clock() -> None:
    watch = ClockWatch(START)
    for at in range(500):
        off_s = 200.0 if at % 4 < 2 else -200.0
        assert off(watch, KEYS[at % 4], off_s, START + at * 2) is None


def test_a_sound_clock_is_never_doubted(seeds: Seeds) -> None:
    """Whoever replays whatever of any keys: something comes in time within each minute."""
    for seed in seeds(6, 30):
        rng, watch, now = Random(seed), ClockWatch(START), START
        in_time_at = START
        for _ in range(3000):
            now += rng.choice((0.0, 0.1, 1.0, 1.5, 5.0))
            if now >= in_time_at + SILENCE_S - 6:
                watch.is_in_time(now)
                in_time_at = now
            assert (
                off(watch, rng.choice(KEYS), rng.choice((-1, -1, -1, 1)) * rng.uniform(31, 1e6), now) is None
            )


def test_a_doubt_has_three_keys_on_one_side_and_a_minute_without_a_message_in_time(seeds: Seeds) -> None:
    for seed in seeds(6, 30):
        rng, watch, now, in_time_at, doubts = Random(seed), ClockWatch(START), START, START, 0
        proven: list[tuple[float, bytes, float]] = []
        for _ in range(4000):
            now += rng.choice((0.0, 0.5, 1.0, 3.0, 20.0))
            if rng.random() < 0.02:
                watch.is_in_time(now)
                in_time_at = now
            key, off_s = rng.choice(KEYS[:6]), rng.choice((-200.0, -150.0, 40.0))
            if not watch.wants_proof(key, now):
                continue
            doubt = watch.is_off(TOPIC, key, off_s, now)
            proven.append((now, key, off_s))
            if doubt is not None:
                doubts += 1
                recent = {
                    each for at, each, side in proven if at > now - SILENCE_S and (side > 0) == (off_s > 0)
                }
                assert SENDERS_MIN <= doubt.senders <= len(recent)
                assert now >= in_time_at + SILENCE_S
                assert (doubt.off_s > 0) == (off_s > 0)
        assert doubts


# --- Forged messages -----------------------------------------------------------------------------------


def forged(rate: int, seconds: int, meter: ForgeryMeter | None = None, topic: bytes = TOPIC) -> list[Forged]:
    """What is told of a steady flood."""
    meter = meter or ForgeryMeter()
    found = (meter.count(topic, START + number / rate) for number in range(rate * seconds))
    return [each for each in found if each is not None]


@pytest.mark.parametrize("rate", [1, 7, 99, 100])
def test_few_forged_messages_are_not_told(rate: int) -> None:
    assert forged(rate, 10) == []


@pytest.mark.parametrize("rate", [101, 102, 150, 1000])
def test_more_than_100_a_second_are_told(rate: int) -> None:
    (found,) = forged(rate, 5)
    assert found == Forged(TOPIC, rate) and found.per_second > FORGED_PER_S


def test_a_flood_is_told_once_a_minute_for_each_topic() -> None:
    meter = ForgeryMeter()
    assert len(forged(200, 130, meter)) == 3
    assert [each.topic for each in forged(200, 3, meter, b"another")] == [b"another"]
