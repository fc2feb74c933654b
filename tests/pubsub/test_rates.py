"""pubsub/rates.py: token buckets against a naive model, in virtual time. PROTOCOL §5.8 (`rate`), §5.2."""

import random
from collections import OrderedDict

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S, Limits
from kcast.pubsub.networks import SHARES_MAX, Networks, Share
from kcast.pubsub.rates import Demand, PublishRates, Rate

A: Address = ("192.0.2.1", 1)
B: Address = ("192.0.2.1", 2)
C: Address = ("2001:db8::1", 1)
D: Address = ("192.0.2.2", 1)
E: Address = ("127.0.0.1", 1)
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


@pytest.mark.parametrize(
    ("lines_per_s", "copies_per_s", "bytes_per_s"),
    [(4, 0, 0), (0, 64, 0), (4, 64, 512), (0, 0, 256), (0, 0, 0)],
)
@pytest.mark.parametrize("capacity", [1, 2, 100])
@pytest.mark.parametrize("seed", range(3))
def test_publish_rates_are_naive_buckets_of_the_last_ips_and_networks(
    lines_per_s: int, copies_per_s: int, bytes_per_s: int, capacity: int, seed: int
) -> None:
    rng = random.Random(seed)
    per_s = lines_per_s, copies_per_s, bytes_per_s
    limits = Limits(
        publishers=capacity,
        publishes_per_s=lines_per_s,
        copies_per_s=copies_per_s,
        egress_bytes_per_s=bytes_per_s,
    )
    networks = Networks()
    rates = PublishRates(limits, networks)
    buckets: OrderedDict[Share, list[NaiveBucket]] = OrderedDict()
    overdrawn_at: OrderedDict[Address, float] = OrderedDict()
    now, outcomes = 1000.0, set()
    for _ in range(400):
        now += rng.choice((0, 0, 1, 7, 64, 200)) * TICK_S
        address = rng.choice((A, A, B, C, D, E))
        if rng.random() < 0.2:
            was_overdrawn = now - overdrawn_at.get(address, 0.0) < OVERDRAWN_S
            assert rates.was_overdrawn(address, now) is was_overdrawn
            continue
        demand = Demand(rng.choice((1, 2, 60)), rng.choice((0, 1, 30, 1000)), rng.choice((0, 9, 9000)))
        mine = []
        for share, factor in networks.shares_of(address):
            if share not in buckets and len(buckets) == SHARES_MAX * capacity:
                buckets.popitem(last=False)
            mine.append(buckets.setdefault(share, [NaiveBucket(factor * each, now) for each in per_s]))
            buckets.move_to_end(share)
        may = all(bucket.has_any(now) for each in mine for bucket in each)
        assert rates.take(address, demand, now) is may
        if may:
            for each in mine:
                for bucket, amount in zip(each, demand[:3], strict=True):
                    bucket.taken.append((now, amount))
        else:
            overdrawn_at[address] = now
            overdrawn_at.move_to_end(address)
            if len(overdrawn_at) > capacity:
                overdrawn_at.popitem(last=False)
        assert len(rates) == max(len(buckets), len(overdrawn_at))
        outcomes.add(may)
    assert outcomes == ({True} if not any(per_s) else {True, False})


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


def limited(lines_per_s: int) -> PublishRates:
    return PublishRates(Limits(publishes_per_s=lines_per_s), Networks())


def test_ports_share_and_ips_do_not() -> None:
    rates = limited(10)
    assert rates.take(A, Demand(10, 0, 0), 0.0)
    assert not rates.take(A, Demand(1, 0, 0), 0.0)
    assert not rates.take(B, Demand(1, 0, 0), 0.0)
    assert rates.take(C, Demand(10, 0, 0), 0.0)
    assert rates.take(D, Demand(10, 0, 0), 0.0)


def test_ips_of_a_network_share_eight_times_as_much() -> None:
    rates = limited(10)
    taken = [rates.take((f"192.0.2.{number}", 1), Demand(10, 0, 0), 0.0) for number in range(20)]
    assert taken == [True] * 8 + [False] * 12


def test_ready_at_is_when_something_is_in_the_bucket() -> None:
    rate = Rate(10, 0.1)
    assert rate.ready_at(5.0) == 5.0
    assert rate.take(21, 5.0)
    at = rate.ready_at(5.0)
    assert 7.0 <= at < 7.2
    assert rate.left(at) >= 0
    assert rate.ready_at(at + 0.01) == at + 0.01
