"""pubsub/flood.py: when the sieve closes and opens, in virtual time."""

from collections import Counter
from collections.abc import Iterable
from random import Random

from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.flood import OPENING_STEP_S, STEP_S, TELLING_S, FloodGuard
from kcast.pubsub.heavy import PAUSE_S_MIN
from kcast.pubsub.sieve import SHARE_MIN, Kind

STEP = 2 * STEP_S
KNOWN = [("192.0.2.7", 7400), ("198.51.100.1", 7)]


class Fake:
    """A port and a core. What passes a filter fills the buffer, if it is more than the server can take."""

    def __init__(self, *, can_sift: bool = True) -> None:
        self.strangers: Counter[Kind] = Counter()
        self.waiting_share = 0.0
        self.programs: list[bytes | None] = []
        self.said: list[str] = []
        self._can_sift = can_sift
        self.guard = FloodGuard(self, [self], Random(1), tell=self.said.append)
        self.now = 1000.0

    def sift(self, program: bytes | None) -> bool:
        self.programs.append(program)
        return self._can_sift

    def known_sources(self, random: Random) -> Iterable[Address]:
        return KNOWN

    def known_flood(self, source: Address, per_s: float, seconds: float) -> float:
        """What a known source sends passes, unless it counts as a stranger. Returns the share of the time in
        which the buffer was full."""
        full = 0
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            is_known = source in self.guard._heavy._known
            passing = per_s * (1.0 if is_known else self.guard._sieve.shares[Kind.LINES])
            self.guard.saw([Burst(b"t m\n" * int(passing * STEP), 4, source)])
            self.waiting_share = 1.0 if passing > 100_000 else 0.0
            full += self.waiting_share == 1.0
            self.guard.look(self.now)
        return full / int(seconds / STEP)

    def flood(self, kind: Kind, per_s: float, seconds: float, capacity_per_s: float = 100_000) -> None:
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            passing = per_s * self.guard._sieve.shares[kind]
            self.strangers[kind] += int(passing * STEP)
            self.waiting_share = 1.0 if passing > capacity_per_s else 0.0
            self.guard.look(self.now)


def test_nothing_is_filtered_while_there_is_no_flood() -> None:
    fake = Fake()
    fake.flood(Kind.LINES, 50_000, 5)
    assert fake.programs == [] and not fake.guard.is_active and fake.said == []


def test_the_kind_that_floods_is_cut_down_to_what_can_be_taken_and_no_other() -> None:
    for kind in Kind:
        fake = Fake()
        fake.flood(kind, 1_000_000, 5)
        shares = fake.guard._sieve.shares
        assert 0.03 < shares.pop(kind) < 0.13
        assert set(shares.values()) == {1.0}
        assert fake.programs[-1]
        assert len(fake.said) == 1


def test_it_ends_after_the_flood() -> None:
    fake = Fake()
    fake.flood(Kind.VOUCH, 10**9, 1)
    assert fake.guard._sieve.shares[Kind.VOUCH] == SHARE_MIN
    fake.flood(Kind.VOUCH, 0, 36 * OPENING_STEP_S)
    assert not fake.guard.is_active
    assert fake.programs[-1] is None
    assert len(fake.programs) < 100


def test_a_flood_is_told_once_a_minute_at_most() -> None:
    fake = Fake()
    fake.flood(Kind.LINES, 10**6, 3 * TELLING_S)
    assert 2 <= len(fake.said) <= 3


def test_a_system_that_cannot_filter_is_not_asked_again() -> None:
    fake = Fake(can_sift=False)
    fake.flood(Kind.LINES, 10**6, 5)
    assert len(fake.programs) == 1


def test_one_who_is_known_and_floods_counts_as_a_stranger() -> None:
    """One lease was enough to pass, at any rate."""
    fake = Fake()
    assert fake.known_flood(KNOWN[1], 1_000_000, 20) < 0.12
    assert fake.guard._heavy._known == {KNOWN[0]}
    assert fake.guard._sieve.shares[Kind.VOUCH] == fake.guard._sieve.shares[Kind.REQUEST] == 1.0
    assert len(fake.said) == 1


def test_who_has_flooded_is_known_again_some_time_after() -> None:
    fake = Fake()
    fake.known_flood(KNOWN[1], 1_000_000, 1)
    assert KNOWN[1] not in fake.guard._heavy._known
    fake.known_flood(KNOWN[1], 1_000, PAUSE_S_MIN + 36 * OPENING_STEP_S)
    assert not fake.guard.is_active
    assert fake.programs[-1] is None


def test_a_flood_of_strangers_costs_nobody_who_is_known_his_place() -> None:
    """Nor him who alone publishes much meanwhile."""
    fake = Fake()
    for _ in range(1000):
        fake.guard.saw([Burst(b"t m\n" * 100, 4, KNOWN[0]), Burst(b"t m\n", 4, KNOWN[1])])
        fake.flood(Kind.LINES, 10**6, STEP)
    assert fake.guard._heavy._known == set(KNOWN)
    assert not fake.guard._heavy._demoted
