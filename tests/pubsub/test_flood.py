"""pubsub/flood.py: when the filter closes and opens, in virtual time."""

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from kcast.pubsub import kernel_filter
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.flood import (
    FORGET_S,
    OPENING_STEP_S,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    RETRY_S,
    SLICE,
    STEP_S,
    FloodGuard,
)
from kcast.pubsub.kernel_filter import SHARE_MIN, SOURCES_MAX, Kind, hash_of
from tests.support.packet_filter import MASK, run

STEP = 2 * STEP_S
KNOWN = [("192.0.2.7", 7400), ("198.51.100.1", 7)]


class Fake:
    """A port and a core. What passes a filter fills the buffer, if it is more than the server can take.

    The port has room for filters of so many bytes.
    """

    def __init__(self, *, room_bytes: int = 20_480) -> None:
        self.strangers: Counter[Kind] = Counter()
        self.waiting_share = 0.0
        self.programs: list[bytes | None] = []
        self.said: list[str] = []
        self.room_bytes = room_bytes
        self.known = KNOWN
        self.guard = FloodGuard(self, [self], Random(1), tell=self.said.append)
        self.now = 1000.0

    def sift(self, program: bytes | None) -> bool:
        self.programs.append(program)
        return program is None or len(program) <= self.room_bytes

    def known_sources(self, random: Random) -> Iterable[Address]:
        return self.known

    def known_flood(self, source: Address, per_s: float, seconds: float) -> float:
        """What a known source sends passes, unless it counts as a stranger. Returns the share of the time in
        which the buffer was full."""
        full = 0
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            is_known = source in self.guard._flooding._known
            passing = per_s * (1.0 if is_known else self.guard._filter.shares[Kind.LINES])
            self.guard.saw([Burst(b"t m\n" * int(passing * STEP), 4, source)], self.now)
            self.waiting_share = 1.0 if passing > 100_000 else 0.0
            full += self.waiting_share == 1.0
            self.guard.look(self.now)
        return full / int(seconds / STEP)

    def flood(self, kind: Kind, per_s: float, seconds: float, capacity_per_s: float = 100_000) -> None:
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            passing = per_s * self.guard._filter.shares[kind]
            self.strangers[kind] += int(passing * STEP)
            self.waiting_share = 1.0 if passing > capacity_per_s else 0.0
            self.guard.look(self.now)


def test_nothing_is_filtered_while_there_is_no_flood() -> None:
    fake = Fake()
    fake.flood(Kind.LINES, 50_000, 5)
    assert fake.programs == [] and not fake.guard.is_active and fake.said == []


def test_where_strangers_send_nothing_there_is_no_filter() -> None:
    """It would keep out who comes next, for what others do who pass it."""
    fake = Fake()
    fake.waiting_share = 0.4
    for _ in range(1000):
        fake.now += STEP
        fake.guard.saw([Burst(b"t m\n" * 1000, 4, KNOWN[0])], fake.now)
        fake.guard.look(fake.now)
    assert fake.programs == [] and not fake.guard.is_active and fake.said == []


def with_known_load(fake: Fake, seconds: float, waiting_share: float) -> None:
    """Two who are known send as much as each other, so that nobody stands out."""
    fake.waiting_share = waiting_share
    for _ in range(int(seconds / STEP)):
        fake.now += STEP
        fake.guard.saw([Burst(b"t m\n" * 1000, 4, source) for source in fake.known[:2]], fake.now)
        fake.guard.look(fake.now)


@pytest.mark.parametrize("waiting_share", [0.4, 1.0])
def test_who_is_new_among_the_known_passes_soon_though_strangers_have_gone(waiting_share: float) -> None:
    fake = Fake()
    fake.flood(Kind.REQUEST, 10**6, 1.0)
    with_known_load(fake, 2, waiting_share)
    newcomer = ("203.0.113.9", 5)
    fake.known = [*KNOWN, newcomer]
    with_known_load(fake, 2, waiting_share)
    program = fake.programs[-1]
    assert program is not None and run(program, newcomer, b"t m\n", MASK)


def test_what_was_learned_without_a_flood_is_learned_anew_in_the_next() -> None:
    fake = Fake()
    fake.known = MANY[:10]
    with_known_load(fake, 1, 1.0)
    with_known_load(fake, 1, 0.3)
    assert fake.programs == [] and not fake.guard.is_active and not fake.guard.is_learning
    fake.known = MANY[10:3000]
    fake.flood(Kind.VOUCH, 10**6, 1.0)
    first = next(program for program in fake.programs if program is not None)
    assert all(run(first, source, b"%! m\n", MASK) for source in fake.known[::50])


def test_learning_ends_with_the_overflow_for_which_it_began() -> None:
    fake = Fake()
    fake.known = MANY[:3000]
    with_known_load(fake, 1.5, 1.0)
    fake.waiting_share = 0.3
    fake.now += STEP
    fake.guard.look(fake.now)
    assert fake.programs == [] and not fake.guard.is_active and not fake.guard.is_learning


def test_a_flood_from_a_known_source_for_which_there_is_no_room_is_sifted() -> None:
    fake = Fake()
    fake.known = MANY
    flooder, full = MANY[-1], 0
    for _ in range(500):
        fake.now += STEP
        passing = 10**6 * fake.guard._filter.shares[Kind.VOUCH]
        fake.guard.saw([Burst(b"%! m\n" * int(passing * STEP), 5, flooder)], fake.now)
        fake.waiting_share = 1.0 if passing > 100_000 else 0.0
        full += fake.waiting_share == 1.0
        fake.guard.look(fake.now)
    assert full < 100


def test_what_passes_anyway_closes_nothing() -> None:
    fake = Fake()
    fake.known = [("127.0.0.1", 9), *KNOWN]
    for _ in range(1000):
        fake.now += STEP
        fake.guard.saw([Burst(b"t m\n" * 1000, 4, fake.known[0])], fake.now)
        fake.waiting_share = 1.0
        fake.guard.look(fake.now)
    assert fake.programs == [] and fake.said == []
    fake.waiting_share = 0.0
    fake.now += OPENING_STEP_S
    fake.guard.look(fake.now)
    assert not fake.guard.is_active


def test_the_kind_that_floods_is_cut_down_to_what_can_be_taken_and_no_other() -> None:
    for kind in Kind:
        fake = Fake()
        fake.flood(kind, 1_000_000, 5)
        shares = fake.guard._filter.shares
        assert 0.03 < shares.pop(kind) < 0.13
        assert set(shares.values()) == {1.0}
        assert fake.programs[-1]
        assert len(fake.said) == 1


def test_it_ends_after_the_flood() -> None:
    fake = Fake()
    fake.flood(Kind.VOUCH, 10**9, 1)
    assert fake.guard._filter.shares[Kind.VOUCH] == SHARE_MIN
    fake.flood(Kind.VOUCH, 0, 36 * OPENING_STEP_S)
    assert not fake.guard.is_active
    assert fake.programs[-1] is None
    assert len(fake.programs) < 100


def test_a_system_that_takes_no_filter_keeps_none_is_told_and_is_asked_again_later() -> None:
    fake = Fake(room_bytes=0)
    fake.flood(Kind.LINES, 10**6, RETRY_S / 2)
    refused = len(fake.programs)
    assert fake.programs[-1] is None and not fake.guard.is_active
    assert refused <= 7, "each length once"
    assert len(fake.said) == 1 and "net.core.optmem_max" in fake.said[0]
    fake.room_bytes = 20_480
    fake.flood(Kind.LINES, 10**6, RETRY_S)
    assert fake.programs[-1] and fake.guard.is_active
    assert 0.03 < fake.guard._filter.shares[Kind.LINES] < 0.13


def test_one_who_is_known_and_floods_counts_as_a_stranger() -> None:
    """One lease was enough to pass, at any rate."""
    fake = Fake()
    assert fake.known_flood(KNOWN[1], 1_000_000, 20) < 0.12
    assert fake.guard._flooding._known == {KNOWN[0]}
    assert fake.guard._filter.shares[Kind.VOUCH] == fake.guard._filter.shares[Kind.REQUEST] == 1.0
    assert len(fake.said) == 1


def test_who_has_flooded_is_known_again_some_time_after() -> None:
    fake = Fake()
    fake.known_flood(KNOWN[1], 1_000_000, 1)
    assert KNOWN[1] not in fake.guard._flooding._known
    fake.known_flood(KNOWN[1], 1_000, PAUSE_S_MIN + 36 * OPENING_STEP_S)
    assert not fake.guard.is_active
    assert fake.programs[-1] is None


def test_who_has_flooded_is_forgotten_in_time_though_no_other_flood_comes() -> None:
    """Until then each burst is compared with who has flooded, which costs more than all else for a burst."""
    fake = Fake()
    fake.known_flood(KNOWN[1], 1_000_000, 1)
    fake.known_flood(KNOWN[1], 1_000, PAUSE_S_MIN + 36 * OPENING_STEP_S)
    guard, until = fake.guard, fake.now + PAUSE_S_MAX + FORGET_S
    assert not guard.is_active
    fake.now += FORGET_S / 2
    guard.saw([Burst(b"t m\n", 4, KNOWN[0])], fake.now)
    assert guard._flooding
    guard.saw([Burst(b"t m\n", 4, KNOWN[0])], until)
    assert not guard._flooding
    fake.now = until
    assert fake.known_flood(KNOWN[1], 1_000_000, 20) < 0.12, "and found again when it floods"


def test_a_flood_of_strangers_costs_nobody_who_is_known_his_place() -> None:
    """Nor him who alone publishes much meanwhile."""
    fake = Fake()
    for _ in range(1000):
        fake.guard.saw([Burst(b"t m\n" * 100, 4, KNOWN[0]), Burst(b"t m\n", 4, KNOWN[1])], fake.now)
        fake.flood(Kind.LINES, 10**6, STEP)
    assert fake.guard._flooding._known == set(KNOWN)
    assert not fake.guard._flooding._demoted


MANY: list[Address] = [
    (f"10.{number >> 8 & 255}.{number & 255}.7", 7400) for number in range(2 * SOURCES_MAX)
]


class Hashes:
    """Counts the sources that are hashed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        monkeypatch.setattr(kernel_filter, "hash_of", self._hash_of)

    def _hash_of(self, source: Address, key: tuple[int, int, int]) -> int:
        self._count += 1
        return hash_of(source, key)

    def taken(self) -> int:
        """Returns how many there were since the last call."""
        count, self._count = self._count, 0
        return count


def test_no_look_deals_with_many_known_sources_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dealing with 8,192 of them would keep the server from receiving for too long."""
    hashes, fake = Hashes(monkeypatch), Fake()
    fake.known = MANY
    fake.waiting_share = 1.0
    fake.guard.look(fake.now)  # from here on it is counted who comes
    fake.now += STEP
    total, most = 0, 0
    while not fake.programs:
        fake.now += 0.001
        fake.strangers[Kind.VOUCH] += 1
        fake.guard.look(fake.now)
        assert fake.programs or (fake.guard.is_active and fake.guard.is_learning)
        count = hashes.taken()
        total, most = total + count, max(most, count)
    assert total == SOURCES_MAX and most == SLICE
    first = fake.programs[0]
    assert first is not None
    assert all(run(first, source, b"t m\n", MASK) for source in MANY[:SOURCES_MAX:50])

    # From then on it goes on closing while the next filter is made, with what it knew.
    for _ in range(2000):
        fake.now += 0.001
        fake.strangers[Kind.VOUCH] += 1
        fake.guard.look(fake.now)
        assert hashes.taken() <= SLICE
    assert fake.guard._filter.shares[Kind.VOUCH] == SHARE_MIN
    program = fake.programs[-1]
    assert program is not None
    assert all(run(program, source, b"t m\n", MASK) for source in MANY[:SOURCES_MAX:50])
    assert fake.guard._flooding._known == set(MANY[:SOURCES_MAX])


def test_who_floods_among_many_who_are_known_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what he sends passes until the filter without him is complete."""
    fake = Fake()
    fake.known = MANY[:SOURCES_MAX]
    evil = MANY[5]
    assert fake.known_flood(evil, 1_000_000, PAUSE_S_MIN - 1) < 0.5
    assert evil not in fake.guard._flooding._known and MANY[6] in fake.guard._flooding._known
    [pause] = fake.guard._flooding._demoted.values()
    assert pause.length_s == PAUSE_S_MIN
    program = fake.programs[-1]
    assert program is not None and run(program, MANY[6], b"t m\n", MASK)


def test_many_who_are_known_do_not_keep_the_filter_from_opening() -> None:
    fake = Fake()
    fake.known = MANY
    fake.flood(Kind.LINES, 10**6, 2)
    assert fake.guard.is_active
    fake.flood(Kind.LINES, 0, 26 * OPENING_STEP_S)
    assert not fake.guard.is_active and not fake.guard.is_learning
    assert fake.programs[-1] is None
