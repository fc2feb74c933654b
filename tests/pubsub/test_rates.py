"""pubsub/rates.py: token buckets against a naive model, in virtual time. PROTOCOL §5.8 (`rate`), §5.2."""

import random
from collections import Counter, OrderedDict

import pytest

from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import OVERDRAWN_S, Limits
from kcast.pubsub.networks import SHARES_MAX, Networks, Share
from kcast.pubsub.rates import EMPTY_MAX, KEPT, MEMBERS_MAX, Demand, EvenParts, PublishRates, Rate, Want
from tests.support.forms import Seeds, few_of

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
def test_rate_is_the_naive_bucket(per_s: int, seeds: Seeds) -> None:
    for seed in seeds(1, 5):
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
def test_publish_rates_are_naive_buckets_of_the_last_ips_and_networks(
    lines_per_s: int,
    copies_per_s: int,
    bytes_per_s: int,
    capacity: int,
    seeds: Seeds,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in seeds(1, 3):
        monkeypatch.setattr(EvenParts, "take", lambda *_: False)
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


def test_ips_of_a_network_share_eight_times_as_much() -> None:
    rates = limited(10)
    taken = [rates.take((f"192.0.2.{number}", 1), Demand(10, 0, 0), 0.0) for number in range(8)]
    assert all(taken)
    for number in range(8, 20):
        assert not rates.take((f"192.0.2.{number}", 1), Demand(21, 0, 0), 0.0), "more than an even part"


def test_ready_at_is_when_something_is_in_the_bucket() -> None:
    rate = Rate(10, 0.1)
    assert rate.ready_at(5.0) == 5.0
    assert rate.take(21, 5.0)
    at = rate.ready_at(5.0)
    assert 7.0 <= at < 7.2
    assert rate.left(at) >= 0
    assert rate.ready_at(at + 0.01) == at + 0.01


# --- Members of one bucket ----------------------------------------------------------------------------


class Publishers:
    """Publish at the same time, 50 times a second; counts the lines that are taken and refused of each."""

    def __init__(self, per_s: int, lines_of: dict[Address, int], *, is_vouched: bool = False) -> None:
        self.rates = limited(per_s)
        self.lines_of = lines_of  # each time
        self.taken: Counter[Address] = Counter()
        self.refused: Counter[Address] = Counter()
        self._is_vouched = is_vouched

    def run(self, seconds: float) -> None:
        demands = [
            (address, Demand(min(lines, 50), 0, 0, is_vouched=self._is_vouched))
            for address, lines in self.lines_of.items()
            for _ in range(0, lines, 50)
        ]
        for step in range(int(50 * seconds)):
            for address, demand in demands:
                outcome = self.taken if self.rates.take(address, demand, step / 50) else self.refused
                outcome[address] += demand.lines


HOG: Address = ("203.0.113.7", 1000)


@pytest.mark.parametrize("is_vouched", few_of([False, True]))
@pytest.mark.parametrize(("hog_count", "lines_each"), few_of([(40, 400), (1, 2400), (4, 2400)]))
def test_a_port_that_takes_little_is_served_beside_ports_that_take_all(
    hog_count: int, lines_each: int, *, is_vouched: bool
) -> None:
    """Behind one NAT: one hog asks for 12 times what the IP may publish; 40 for 80 times, each for twice."""
    modest: Address = (HOG[0], 999)
    lines_of = {(HOG[0], 1000 + number): lines_each for number in range(hog_count)} | {modest: 1}
    publishers = Publishers(10_000, lines_of, is_vouched=is_vouched)
    publishers.run(10)
    assert not publishers.refused[modest]
    assert 0.95 * 10_000 * 10 < publishers.taken.total() < 1.15 * 10_000 * 10


@pytest.mark.parametrize(
    ("host", "factor"), few_of([("203.0.113.{}", 8), ("2001:db8:1:{}::1", 4), ("2001:db8:1:{}00::1", 16)])
)
def test_an_ip_that_takes_little_is_served_beside_ips_that_take_all(host: str, factor: int) -> None:
    """In one IPv4 /24, IPv6 /56 and /48."""
    modest: Address = (host.format(99), 7)
    lines_of = {(host.format(10 + number), 7): 300 for number in range(32)} | {modest: 1}
    publishers = Publishers(1000, lines_of)
    publishers.run(20)
    assert publishers.refused[modest] <= 3, "some of the first, before the members are known"
    assert 0.95 * factor * 1000 * 20 < publishers.taken.total() < 1.1 * factor * 1000 * 20


def test_lines_with_a_cookie_are_no_more_beside_bare_ones() -> None:
    """And bare ones, which may be forged, never cost those with a cookie anything."""
    rates = limited(1000)
    taken: Counter[bool] = Counter()
    for step in range(50 * 20):
        for is_vouched in (False, True):
            for number in range(40):
                demand = Demand(20, 0, 0, is_vouched=is_vouched)
                taken[is_vouched] += 20 * rates.take((HOG[0], number), demand, step / 50)
    assert taken.total() <= 1.1 * 1000 * 21
    assert taken[True] >= 1000 * 20


def test_after_lines_with_a_cookie_bare_ones_wait() -> None:
    rates = limited(10)
    assert rates.take(HOG, Demand(10, 0, 0), 0.0)
    assert rates.take(HOG, Demand(10, 0, 0, is_vouched=True), 0.0)
    assert not rates.take(HOG, Demand(1, 0, 0), 0.9)
    assert not rates.take(HOG, Demand(1, 0, 0, is_vouched=True), 0.0)
    assert rates.was_overdrawn(HOG, 0.9)
    assert not rates.was_overdrawn(("203.0.113.7", 2), 0.9)
    assert rates.take(HOG, Demand(1, 0, 0), 1.1)


def test_even_parts_are_half_of_the_rate_at_most() -> None:
    """However many come, one after the other, in one second; and each in the next gets the same."""
    parts = EvenParts()
    assert not parts.take([Want("IP", 0, 0.01)], 5.0), "alone"
    first = [parts.take([Want("IP", number % 128, KEPT / 16)], 5.1) for number in range(1000)]
    assert 8 < sum(first) <= 16
    second = [parts.take([Want("IP", number % 128, KEPT / 128)], 6.2) for number in range(1000)]
    assert second == [True] * 128 + [False] * 872


def test_even_parts_stay_as_small_for_a_second_without_members() -> None:
    """Else many who come every other second would get large parts, and others nothing."""
    parts = EvenParts()
    for number in range(100):
        parts.take([Want("IP", number, 0.0)], 5.0)
    for now, most in ((6.0, KEPT / 100), (7.0, KEPT / 50), (9.0, KEPT / 12)):
        assert not parts.take([Want("IP", 1, 1.01 * most)], now)
        assert parts.take([Want("IP", 1, 0.99 * most)], now)
    assert not parts.take([Want("IP", 1, 0.0)], 100.0), "alone again"


def test_nothing_is_taken_of_one_bucket_where_another_gives_nothing() -> None:
    parts = EvenParts()
    for member in "ab":
        parts.take([Want("IP", member, 0.0)], 5.0)
        parts.take([Want("/24", member, 0.0)], 5.0)
    part = KEPT / 2
    assert not parts.take([Want("IP", "a", part), Want("/24", "a", 2 * part)], 5.0)
    assert parts.take([Want("IP", "a", part), Want("/24", "a", part)], 5.0)


def test_even_parts_take_bounded_memory() -> None:
    parts = EvenParts()
    for number in range(3 * MEMBERS_MAX):
        parts.take([Want("IP", number, 0.0)], 5.0)
    assert len(parts._kept["IP"]._taken) == MEMBERS_MAX + 1
    for number in range(EMPTY_MAX + 10):
        parts.take([Want(number, 1, 0.0)], 5.0)
    assert len(parts) == EMPTY_MAX
