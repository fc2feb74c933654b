"""pubsub.table: leases against a naive model, and their ends exactly on time. PROTOCOL §7.1."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.endpoint import Address
from pubsub.table import ExpiringSet, LeaseTable

A: Address = ("192.0.2.1", 1)
B: Address = ("192.0.2.1", 2)
C: Address = ("2001:db8::1", 1)


class NaiveTable:
    """The same in the plainest way: a list of (topic, address, since, end)."""

    def __init__(self, ttl_s: float, capacity: int) -> None:
        self.ttl_s, self.capacity = ttl_s, capacity
        self.rows: list[tuple[bytes, Address, float]] = []

    def renew(self, topic: bytes, address: Address, now: float) -> bool:
        for index, (its_topic, its_address, _) in enumerate(self.rows):
            if (its_topic, its_address) == (topic, address):
                self.rows[index] = topic, address, now + self.ttl_s
                return True
        if len(self.rows) >= self.capacity:
            return False
        self.rows.append((topic, address, now + self.ttl_s))
        return True

    def subscribers(self, topic: bytes, now: float) -> list[Address]:
        return [address for its_topic, address, end in self.rows if its_topic == topic and end > now]

    def expire(self, now: float) -> int:
        before = len(self.rows)
        self.rows = [row for row in self.rows if row[2] > now]
        return before - len(self.rows)


def steps(rng: random.Random, count: int) -> Iterator[tuple[str, bytes, Address, float]]:
    now = 100.0
    for _ in range(count):
        # Often several things at one time, and often exactly at the end of a lease.
        now += rng.choice((0.0, 0.0, 0.25, 1.0, 5.0, 9.75, 10.0))
        verb = rng.choice(("renew", "renew", "renew", "look", "look", "expire"))
        yield verb, rng.choice((b"x", b"y", b"z")), rng.choice((A, B, C)), now


@pytest.mark.parametrize("capacity", [0, 1, 4, 100])
@pytest.mark.parametrize("seed", range(20))
def test_table_is_the_naive_one(seed: int, capacity: int) -> None:
    rng = random.Random(seed)
    table, naive = LeaseTable(10.0, capacity), NaiveTable(10.0, capacity)
    for verb, topic, address, now in steps(rng, 400):
        if verb == "renew":
            assert table.renew(topic, address, now) == naive.renew(topic, address, now)
        elif verb == "expire":
            assert table.expire(now) == naive.expire(now)
        assert sorted(table.subscribers(topic, now)) == sorted(naive.subscribers(topic, now))
        assert len(table) == len(naive.rows) <= capacity
        assert table.topic_count == len({row[0] for row in naive.rows})
        assert table.next_expiry() == min((row[2] for row in naive.rows), default=None)


def test_lease_ends_exactly_at_its_time() -> None:
    """§7.1: at its end the server sends nothing more to it, whether or not it was forgotten yet."""
    table = LeaseTable(60.0, 10)
    assert table.renew(b"t", A, 100.0)
    assert list(table.subscribers(b"t", 159.999)) == [A]
    assert list(table.subscribers(b"t", 160.0)) == []
    assert len(table) == 1
    assert table.expire(159.999) == 0
    assert table.expire(160.0) == 1
    assert (len(table), table.topic_count, table.next_expiry()) == (0, 0, None)


def test_renewal_counts_from_its_own_time() -> None:
    table = LeaseTable(60.0, 10)
    table.renew(b"t", A, 0.0)
    table.renew(b"t", A, 50.0)
    assert table.next_expiry() == 110.0
    assert table.expire(109.999) == 0
    assert list(table.subscribers(b"t", 109.999)) == [A]
    assert list(table.subscribers(b"t", 110.0)) == []


def test_lease_renewed_after_its_end_and_before_it_was_forgotten_lives_again() -> None:
    table = LeaseTable(10.0, 10)
    table.renew(b"t", A, 0.0)
    table.renew(b"t", B, 5.0)
    assert list(table.subscribers(b"t", 11.0)) == [B]
    assert table.renew(b"t", A, 12.0)
    assert sorted(table.subscribers(b"t", 12.0)) == [A, B]


def test_subscribers_stand_longest_standing_first_and_the_ready_list_follows() -> None:
    table = LeaseTable(10.0, 10)
    table.renew(b"t", A, 0.0)
    table.renew(b"t", B, 1.0)
    assert list(table.subscribers(b"t", 1.0)) == [A, B]
    table.renew(b"t", A, 2.0)
    assert list(table.subscribers(b"t", 2.0)) == [A, B]
    table.renew(b"t", C, 3.0)
    assert list(table.subscribers(b"t", 3.0)) == [A, B, C]
    assert table.expire(11.0) == 1
    assert list(table.subscribers(b"t", 11.0)) == [A, C]
    assert list(table.subscribers(b"t", 12.0)) == [C]
    table.renew(b"t", B, 12.5)
    table.expire(12.5)
    assert list(table.subscribers(b"t", 12.5)) == [C, B]


def test_ready_list_is_made_once_for_many_looks() -> None:
    table = LeaseTable(10.0, 10)
    table.renew(b"t", A, 0.0)
    assert table.subscribers(b"t", 1.0) is table.subscribers(b"t", 9.999)
    assert table.subscribers(b"other", 1.0) == ()


def test_full_table_takes_renewals_and_nothing_new() -> None:
    table = LeaseTable(10.0, 2)
    assert table.renew(b"t", A, 0.0)
    assert table.renew(b"u", A, 1.0)
    assert not table.renew(b"t", B, 2.0)
    assert not table.renew(b"v", A, 2.0)
    assert table.topic_count == 2
    assert list(table.subscribers(b"t", 2.0)) == [A]
    assert table.renew(b"t", A, 3.0)
    assert table.expire(11.0) == 1
    assert table.renew(b"t", B, 11.0)
    assert not table.renew(b"v", B, 11.0)


def test_memory_of_topics_is_freed() -> None:
    """An empty topic goes at once, or naming topics would be a way to fill the memory."""
    table = LeaseTable(10.0, 1_000_000)
    table.renew(b"t", A, -100.0)
    table.expire(0.0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for turn in range(20):
            for number in range(500):
                table.renew(b"topic-%d-%d" % (turn, number), A, turn * 10.0)
            assert table.topic_count == 500
            assert table.expire(turn * 10.0 + 10.0) == 500
            assert (len(table), table.topic_count) == (0, 0)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, f"{grown} bytes are left of 10,000 topics"


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from((0.0, 0.5, 3.0, 10.0))), max_size=40),
    st.integers(0, 4),
)
def test_expiring_set_is_the_naive_one(moves: list[tuple[int, float]], capacity: int) -> None:
    keys: ExpiringSet[int] = ExpiringSet(10.0, capacity)
    naive: dict[int, float] = {}
    now = 0.0
    for key, later_s in moves:
        now += later_s
        taken = key in naive or len(naive) < capacity
        assert keys.renew(key, now) is taken
        if taken:
            naive[key] = now + 10.0
        for other in range(6):
            assert keys.left_s(other, now) == max(0.0, naive.get(other, now) - now)
        assert keys.next_expiry() == min(naive.values(), default=None)
        if later_s == 3.0:
            gone = {other for other, end in naive.items() if end <= now}
            assert set(keys.pop_expired(now)) == gone
            naive = {other: end for other, end in naive.items() if other not in gone}
        assert len(keys) == len(naive) <= capacity


def test_expiring_set_lets_go_in_order_and_exactly_on_time() -> None:
    keys: ExpiringSet[str] = ExpiringSet(10.0, 3)
    for at, key in enumerate("abc"):
        assert keys.renew(key, float(at))
    assert keys.renew("a", 3.0)
    assert not keys.renew("d", 3.0)
    assert keys.left_s("a", 3.0) == 10.0
    assert keys.left_s("d", 3.0) == 0.0
    assert keys.left_s("b", 20.0) == 0.0
    assert keys.pop_expired(10.999) == []
    assert keys.pop_expired(12.0) == ["b", "c"]
    assert keys.next_expiry() == 13.0
    assert keys.pop_expired(13.0) == ["a"]
    assert keys.next_expiry() is None
