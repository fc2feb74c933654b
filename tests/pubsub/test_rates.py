"""pubsub/rates.py: token buckets against a naive model, in virtual time. PROTOCOL §5.8 (`rate`), §5.2."""

import random
from collections import OrderedDict

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S
from kcast.pubsub.rates import PublishRates, Rate

A: Address = ("192.0.2.1", 1)
B: Address = ("192.0.2.1", 2)
C: Address = ("2001:db8::1", 1)
TICK_S = 1 / 64  # with rates that are powers of two: all sums are exact


class NaiveBucket:
    """Remembers all that was ever taken, and computes what is in it from the beginning each time."""

    def __init__(self, per_s: float, since: float) -> None:
        self.per_s, self.since = per_s, since
        self.taken: list[tuple[float, float]] = []  # when, how much

    def tokens(self, now: float) -> float:
        tokens, at = self.per_s, self.since
        for when, amount in self.taken:
            tokens = min(self.per_s, tokens + (when - at) * self.per_s) - amount
            at = when
        return min(self.per_s, tokens + (now - at) * self.per_s)

    def has_any(self, now: float) -> bool:
        return not self.per_s or self.tokens(now) > 0


@pytest.mark.parametrize("per_s", [0, 1, 4, 32])
@pytest.mark.parametrize("seed", range(5))
def test_rate_is_the_naive_bucket(per_s: int, seed: int) -> None:
    rng = random.Random(seed)
    now = 1000.0
    rate, naive = Rate(per_s), NaiveBucket(per_s, 0.0)
    taken = 0
    for _ in range(300):
        now += rng.choice((0, 0, 1, 7, 64, 200)) * TICK_S
        amount = rng.choice((1, 1, 2, 5, 100))
        has_any = naive.has_any(now)
        assert rate.take(amount, now) is has_any
        if has_any:
            naive.taken.append((now, amount))
            taken += 1
    assert taken == 300 if per_s == 0 else 0 < taken < 300


@pytest.mark.parametrize(("publishes_per_s", "copies_per_s"), [(4, 0), (0, 64), (4, 64), (32, 32), (0, 0)])
@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_publish_rates_are_naive_buckets_of_the_last_addresses(
    publishes_per_s: int, copies_per_s: int, capacity: int, seed: int
) -> None:
    rng = random.Random(seed)
    rates = PublishRates(publishes_per_s, copies_per_s, capacity)
    buckets: OrderedDict[Address, tuple[NaiveBucket, NaiveBucket]] = OrderedDict()
    overdrawn_at: dict[Address, float] = {}
    now, outcomes = 1000.0, set()
    for _ in range(400):
        now += rng.choice((0, 0, 1, 7, 64, 200)) * TICK_S
        address = rng.choice((A, A, B, C))
        if rng.random() < 0.2:
            was_overdrawn = now - overdrawn_at.get(address, 0.0) < OVERDRAWN_S
            assert rates.was_overdrawn(address, now) is was_overdrawn
            continue
        lines, copies = rng.choice((1, 2, 60)), rng.choice((0, 1, 30, 1000))
        if address not in buckets and len(buckets) == capacity:
            forgotten, _ = buckets.popitem(last=False)
            overdrawn_at.pop(forgotten, None)
        buckets.setdefault(address, (NaiveBucket(publishes_per_s, now), NaiveBucket(copies_per_s, now)))
        buckets.move_to_end(address)
        publishes_bucket, copies_bucket = buckets[address]
        may = publishes_bucket.has_any(now) and copies_bucket.has_any(now)
        assert rates.take(address, lines, copies, now) is may
        if may:
            publishes_bucket.taken.append((now, lines))
            copies_bucket.taken.append((now, copies))
        else:
            overdrawn_at[address] = now
        assert len(rates) == len(buckets) <= capacity
        outcomes.add(may)
    assert outcomes == ({True} if not publishes_per_s and not copies_per_s else {True, False})


# --- What that means ----------------------------------------------------------------------------------


def test_burst_larger_than_the_bucket_is_served_and_paid_for_by_waiting() -> None:
    """It would never be served otherwise, however long it waited."""
    rate = Rate(10)
    assert rate.take(45, 100.0)  # 10 are in it: 35 in debt
    assert not rate.take(1, 103.5)
    assert rate.take(1, 103.6)


def test_refusals_cost_nothing() -> None:
    rate = Rate(10)
    assert rate.take(10, 100.0)
    for _ in range(1000):
        assert not rate.take(1, 100.0)
    assert rate.take(1, 100.1)


def test_bucket_holds_no_more_than_a_second() -> None:
    rate = Rate(10)
    assert all(rate.take(1, 1e9) for _ in range(10))
    assert not rate.take(1, 1e9)


def test_no_window_sees_more_than_its_rate_a_second_and_a_burst() -> None:
    """Over any time T: at most rate * (T + 1) and the one burst that overdrew it."""
    rng = random.Random(1)
    rate, largest = Rate(100), 60
    now, admitted = 0.0, []
    for _ in range(3000):
        now += rng.expovariate(50)
        amount = rng.randint(1, largest)
        if rate.take(amount, now):
            admitted.append((now, amount))
    assert sum(amount for _, amount in admitted) > 100 * now * 0.9
    for first in range(0, len(admitted), 7):
        total = 0
        for at, amount in admitted[first:]:
            total += amount
            assert total <= 100 * (at - admitted[first][0] + 1) + largest


def test_addresses_do_not_share() -> None:
    rates = PublishRates(10, 1000, 100)
    assert rates.take(A, 10, 0, 0.0)
    assert not rates.take(A, 1, 0, 0.0)
    assert rates.take(B, 10, 0, 0.0)
    assert rates.take((A[0], 99), 10, 0, 0.0)


@pytest.mark.parametrize(("lines", "copies"), [(10, 0), (1, 1000)])
def test_either_bucket_refuses(lines: int, copies: int) -> None:
    rates = PublishRates(10, 1000, 100)
    assert rates.take(A, lines, copies, 0.0)
    assert not rates.take(A, 1, 0, 0.0)
    assert rates.take(A, 1, 0, 0.2)


def test_refusal_is_remembered_for_a_while_and_for_its_address() -> None:
    rates = PublishRates(1, 0, 100)
    assert rates.take(A, 2, 0, 0.0)
    assert not rates.was_overdrawn(A, 0.0)
    assert not rates.take(A, 1, 0, 0.5)
    assert rates.take(A, 1, 0, 2.0)
    assert rates.was_overdrawn(A, 0.4 + OVERDRAWN_S)
    assert not rates.was_overdrawn(A, 0.5 + OVERDRAWN_S)
    assert not rates.was_overdrawn(B, 0.5)


def test_no_limit_is_no_limit() -> None:
    rates = PublishRates(0, 0, 1)
    rate = Rate(0)
    assert all(rates.take(A, 10**9, 10**12, 0.0) for _ in range(100))
    assert all(rate.take(10**9, 0.0) for _ in range(100))
