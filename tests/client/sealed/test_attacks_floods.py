"""Floods of forged lines, and clocks that are wrong: what is told, and what it does to what is honest.
PROTOCOL §9.6, §9.7.
"""

from collections.abc import Callable

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import ClockDoubt, Delivery, Drop, Forged
from kcast.client.receiving.dedup import WINDOW_COUNT
from kcast.client.sealed.doubts import SILENCE_S
from kcast.client.sealed.guards import SealedGuard, SignedGuard
from tests.support import forged as forging
from tests.support.attack_stage import (
    ALICE,
    NAME,
    Process,
    Stage,
    group_of,
    signed,
)
from tests.support.forms import few_of

TICK_S = 0.01
BUFFER_S = 0.1  # what waits longer than that to be taken, the kernel has dropped
DROPS = {
    "under an allowed key": Drop.BAD_SIGNATURE,
    "by strangers": Drop.UNAUTHORISED,
    "with ever new enc": Drop.NOT_OPENED,
    "under a known enc": Drop.NOT_OPENED,
    "without the topic secret": Drop.UNKNOWN_KEY,
}
TOLD = {name for name, drop in DROPS.items() if drop in (Drop.BAD_SIGNATURE, Drop.NOT_OPENED)}


def honest(name: str, seq: int, sent_s: float) -> bytes:
    """A message that counts."""
    if name in forging.SIGNED:
        return signed(seq, sent_s=sent_s, publisher="honest")
    return Process(publisher="honest", secret=b"\x79" * 32).line(seq, sent_s)


def state_of(guard: SignedGuard | SealedGuard) -> int:
    """How much is remembered, in entries of whatever kind."""
    found = len(guard._replays) + len(guard._floods._counts) + len(guard._events)
    if isinstance(guard, SignedGuard):
        return found
    return found + sum(len(each._ciphers) + len(each._secrets) for each in guard._openers.values())


def guard_of(stage: Stage) -> SignedGuard | SealedGuard:
    """The guard of its only subscription."""
    guard = stage.subscriber.places._followed[0].guard
    assert isinstance(guard, SignedGuard | SealedGuard)
    return guard


@pytest.mark.parametrize("name", few_of(DROPS))
def test_forged_lines_at_half_the_rate_that_fills_a_core(name: str) -> None:
    """Time is virtual, but each tick takes the CPU seconds that its lines have taken here: what comes while
    more than the buffer holds waits, is lost."""
    rate = forging.rejected_per_s(name)
    print(f"forged {name}: to reject {rate:,.0f} a second fills a core", flush=True)
    stage = forging.stage_of(name)
    guard = guard_of(stage)
    lines = forging.ALL[name]()
    for seq in range(1, 3):
        assert isinstance(stage.verdict(honest(name, seq, stage.unix_s)), Delivery)
    before, drops = state_of(guard), stage.subscriber.drops.copy()
    per_tick = max(1, round(rate / 2 * TICK_S))
    ticks = min(150, max(110, 12_000 // per_tick))
    sent = arrived = forgeries = 0
    behind_s = 0.0
    for seq in range(3, 3 + ticks):
        stage.wait(TICK_S)
        some = [next(lines) for _ in range(per_tick)]
        some.insert(seq % per_tick, honest(name, seq, stage.unix_s))
        sent += 1
        if behind_s < BUFFER_S:
            behind_s += forging.take(stage, some)
            forgeries += per_tick
        behind_s = max(0.0, behind_s - TICK_S)
        arrived += len(stage.take())
    print(f"at half of that, {arrived} of {sent} messages arrived", flush=True)
    assert arrived >= 0.99 * sent
    assert stage.subscriber.drops - drops == {DROPS[name]: forgeries}
    assert state_of(guard) <= before + 1, "what is forged leaves no state but the count of the forged"
    assert len(stage.subscriber._deliveries._copies) <= WINDOW_COUNT
    told = stage.told_of(Forged)
    assert len(told) == (name in TOLD)
    assert all(event.topic == NAME for event in told)
    for event in told:
        assert event.per_second == pytest.approx(per_tick / TICK_S, rel=0.2)


@pytest.mark.parametrize("name", ["by strangers", "without the topic secret"])
def test_what_costs_next_to_nothing_is_only_counted(name: str) -> None:
    costly = "under an allowed key" if name in forging.SIGNED else "with ever new enc"
    assert forging.rejected_per_s(name) > 1.3 * forging.rejected_per_s(costly)


# --- Clocks -------------------------------------------------------------------------------------------


def signed_at(seq: int, sent_s: float) -> bytes:
    """What Alice says at a time."""
    return signed(seq, sent_s=sent_s)


KINDS: dict[str, Callable[[int, float], bytes]] = {"signed": signed_at, "sealed": Process().line}


def stage_with_clock(kind: str, off_s: float) -> Stage:
    """A subscriber whose clock is wrong."""
    stage = Stage()
    stage.subscriber.clock_offset_s += off_s
    at = stage.unix_s + off_s
    guard = SignedGuard(lambda _, key: True, at) if kind == "signed" else SealedGuard(group_of(), at)
    stage.subscribe(guard)
    return stage


@pytest.mark.parametrize("kind", few_of(KINDS))
@pytest.mark.parametrize("off_s", [-3600.0, -300.0, 300.0, 3600.0])
def test_a_wrong_clock_is_told_after_a_minute_also_of_one_sender(off_s: float, kind: str) -> None:
    stage, said = stage_with_clock(kind, off_s), KINDS[kind]
    for seq in range(1, 100):
        assert stage.verdict(said(seq, stage.unix_s)) is (Drop.FROM_FUTURE if off_s < 0 else Drop.TOO_OLD)
        assert seq >= SILENCE_S or not stage.told_of(ClockDoubt)
        stage.wait(1)
    (doubt,) = stage.told_of(ClockDoubt)
    assert (doubt.topic, doubt.sender) == (NAME, ALICE.key_text)
    assert doubt.off_s == pytest.approx(-off_s, abs=0.2)
    stage.subscriber.clock_offset_s -= off_s
    assert isinstance(stage.verdict(said(200, stage.unix_s)), Delivery)
