"""Repeats of signed and sealed messages, and times that are wrong: the drop that each meets. PROTOCOL §9.6.

What a stranger can do to the memory of copies costs time, and decides nothing.
"""

from collections.abc import Callable

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.events import Delivery, Drop
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.sealed.guards import SealedGuard, SignedGuard, Times, senders_of
from kcast.client.sealed.replay import BEFORE_START_S
from tests.support.attack_stage import (
    ALICE,
    UNIX_S,
    Process,
    Stage,
    group_of,
    sealed_stage,
    signed,
    signed_stage,
    unsigned,
)
from tests.support.takers import TAKERS

SEALED = Process()
Line = Callable[..., bytes]
KINDS: dict[str, tuple[Callable[..., Stage], Line]] = {
    "signed": (signed_stage, signed),
    "sealed": (sealed_stage, SEALED.line),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[Callable[..., Stage], Line]:
    """How a subscriber is made, and its lines."""
    return KINDS[request.param]


Kind = tuple[Callable[..., Stage], Line]


def flood(stage: Stage, count: int) -> None:
    """Fills the memory of copies, as a stranger can who has seen a line: each is another one, and forged."""
    for number in range(count):
        signature = signed(payload=b"%d" % number)
        forged = signature.replace(b" %d\n" % number, b" forged %d\n" % number)
        real = SEALED.line(payload=b"%d" % number)
        sealed_forged = real[:-20] + (b"A" if real[-20:-19] != b"A" else b"B") + real[-19:]
        for line in (forged, sealed_forged):
            assert not stage.hear(line).deliveries


@pytest.mark.parametrize("taker", TAKERS)
def test_replayed_at_once_and_after_119_seconds(kind: Kind, taker: str) -> None:
    make, line = kind
    stage = make(copies=CopyFilter(is_native=TAKERS[taker]))
    assert isinstance(stage.verdict(line()), Delivery)
    assert stage.verdict(line()) is None, "a duplicate: another server's copy looks the same"
    stage.wait(119)
    assert stage.verdict(line()) is None


@pytest.mark.parametrize("after_s", [0, 119, 121])
def test_replayed_after_a_flood_that_emptied_the_memory_of_copies(kind: Kind, after_s: float) -> None:
    make, line = kind
    stage = make(copies=CopyFilter(window_count=50, is_native=False))
    for seq in range(1, 6):
        assert isinstance(stage.verdict(line(seq)), Delivery)
    stage.wait(after_s)
    flood(stage, 60)
    for seq in range(1, 6):
        assert stage.verdict(line(seq)) is (Drop.REPLAYED if after_s < 120 else Drop.TOO_OLD)
    if after_s < 120:
        assert isinstance(stage.verdict(line(6)), Delivery), "what is new comes all the same"


def test_another_message_of_the_same_number_is_a_repeat(kind: Kind) -> None:
    make, line = kind
    stage = make()
    assert isinstance(stage.verdict(line(payload=b"one")), Delivery)
    assert stage.verdict(line(payload=b"two")) is Drop.REPLAYED


def test_forged_lines_move_no_window(kind: Kind) -> None:
    make, line = kind
    stage = make()
    assert isinstance(stage.verdict(line(1)), Delivery)
    huge = line(10**18 - 1)
    at = len(huge) - 10
    assert stage.verdict(huge[:at] + (b"A" if huge[at : at + 1] != b"A" else b"B") + huge[at + 1 :]) in (
        Drop.BAD_SIGNATURE,
        Drop.NOT_OPENED,
    )
    assert isinstance(stage.verdict(line(2)), Delivery)


# --- Times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off_s", "drop"), [(-29.9, None), (-120.1, Drop.TOO_OLD), (29.9, None), (30.1, Drop.FROM_FUTURE)]
)
def test_120_seconds_back_and_30_ahead(kind: Kind, off_s: float, drop: Drop | None) -> None:
    make, line = kind
    stage = make()
    found = stage.verdict(line(sent_s=stage.unix_s + off_s))
    assert isinstance(found, Delivery) if drop is None else found is drop


def test_old_messages_of_a_time_when_it_listened_count(kind: Kind) -> None:
    make, line = kind
    stage = make()
    stage.wait(200)
    for seq, off_s in enumerate((-119.9, -120.1, 0), 1):
        found = stage.verdict(line(seq, sent_s=stage.unix_s + off_s))
        assert found is Drop.TOO_OLD if off_s < -120 else isinstance(found, Delivery)
        assert not isinstance(found, Delivery) or found.sent_at == pytest.approx(
            stage.unix_s + off_s, abs=0.001
        )


@pytest.mark.parametrize("times", [Times(10, 5), Times(3600, 600)])
def test_both_are_settable(times: Times) -> None:
    for guard in (
        SignedGuard(senders_of(frozenset([ALICE.key])), UNIX_S, times),
        SealedGuard(group_of(), UNIX_S, times),
    ):
        stage = Stage()
        stage.subscribe(guard)
        stage.wait(4000)
        line = signed if isinstance(guard, SignedGuard) else SEALED.line
        for seq, off_s in enumerate((-times.back_s - 0.1, times.ahead_s + 0.1)):
            found = stage.verdict(line(1 + seq, sent_s=stage.unix_s + off_s))
            assert found is (Drop.TOO_OLD, Drop.FROM_FUTURE)[seq]
        for seq, off_s in enumerate((-times.back_s + 0.1, times.ahead_s - 0.1)):
            assert isinstance(stage.verdict(line(3 + seq, sent_s=stage.unix_s + off_s)), Delivery)


@pytest.mark.parametrize(
    "time", [b"", b"0", b"-1", b"01790000000000", b"1e12", b"1790000000000.0", b"9" * 16]
)
def test_a_time_that_is_none(time: bytes) -> None:
    line = unsigned().replace(b"1790000000000", time)
    assert signed_stage().verdict(ALICE.sign(line)) is Drop.BAD_SIGNATURE


# --- Those who forget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("down_s", [31, 60, 119])
def test_a_subscriber_restarted_takes_nothing_that_the_one_before_may_have_taken(
    kind: Kind, down_s: float
) -> None:
    make, line = kind
    assert isinstance(make().verdict(line()), Delivery)
    again = make(unix_s=UNIX_S + down_s + 1)  # where it has listened for a second
    assert again.verdict(line()) is Drop.TOO_OLD
    assert isinstance(again.verdict(line(2, sent_s=again.unix_s)), Delivery)
    assert isinstance(again.verdict(line(3, sent_s=again.unix_s - BEFORE_START_S)), Delivery)


def test_so_does_a_second_subscription_of_one_client() -> None:
    stage = signed_stage()
    assert isinstance(stage.verdict(signed()), Delivery)
    stage.wait(40)
    stage.subscribe(SignedGuard(senders_of(frozenset([ALICE.key])), stage.unix_s))
    deliveries, drops, duplicates = stage.hear(signed())
    assert (len(deliveries), dict(drops), duplicates) == (0, {Drop.TOO_OLD: 1}, 1)
