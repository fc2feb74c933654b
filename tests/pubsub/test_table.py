"""pubsub/table.py: leases against naive models, their limits, and their ends exactly on time. PROTOCOL §7."""

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub.endpoint import Address
from kcast.pubsub.fifo_table import TABLES, FifoTable
from kcast.pubsub.limits import FIFO_PROMISE_S_MIN, Limits
from kcast.pubsub.networks import Networks, networks_of
from kcast.pubsub.publishing import ExpiringSet
from kcast.pubsub.table import Lease, LeaseTable, Limit
from tests.support.forms import Seeds
from tests.support.naive_table import NaiveFifo, NaiveTable

A: Address = ("192.0.2.1", 1)
B: Address = ("192.0.2.1", 2)
C: Address = ("2001:db8::1", 1)
D: Address = ("192.0.2.200", 1)
E: Address = ("2001:db8:0:ffff::1", 9)
HERE: Address = ("127.0.0.1", 1)
TOPICS = (b"x", b"y", b"z")
F: Address = ("198.51.100.7", 5)
ADDRESSES = (A, B, C, D, E, F, HERE)
MANY_TOPICS = tuple(b"topic-%d" % number for number in range(40))
MANY_ADDRESSES: tuple[Address, ...] = tuple(
    [(f"198.51.{n % 5}.{n % 3}", n) for n in range(20)]
    + [(f"2001:db8:{n % 3}:{n % 2}::1", n) for n in range(12)]
)


NAIVE: dict[str, type[NaiveTable]] = {"ttl": NaiveTable, "fifo": NaiveFifo}


SIZES = ((TOPICS, ADDRESSES), (MANY_TOPICS, MANY_ADDRESSES))


def steps(rng: random.Random, count: int, size: int) -> Iterator[tuple[str, bytes, Address, float]]:
    now = 100.0
    topics, addresses = SIZES[size]
    for _ in range(count):
        # Often several things at one time, and often exactly at the end of a lease.
        now += rng.choice((0.0, 0.0, 0.25, 1.0, 5.0, 9.75, 10.0)) / (1 + 63 * size)
        verb = rng.choice(("ask", "ask", "ask", "look", "look", "expire"))
        # The first few are more eager than the others.
        address = addresses[int(len(addresses) * rng.random() ** 2)]
        yield verb, rng.choice(topics), address, now


SMALL = [
    Limits(leases=1),
    Limits(leases=4),
    Limits(),
    Limits(leases_per_address=1),
    Limits(leases_per_prefix=3),
    Limits(topics=2),
    Limits(leases=12, topics=2),
    Limits(leases=9, topics_per_prefix=1),
    Limits(leases=7, leases_per_address=2, leases_per_prefix=4, topics=2),
]
LARGE = [
    Limits(leases=50),
    Limits(leases=40, topics=15),
    Limits(leases=300, topics=12),
    Limits(leases=60, leases_per_prefix=20, topics_per_prefix=6),
]
CASES = [*((0, limits) for limits in SMALL), *((1, limits) for limits in LARGE)]


@pytest.mark.long
@pytest.mark.parametrize("kind", TABLES)
def test_table_is_the_naive_one(kind: str, seeds: Seeds) -> None:
    for seed in seeds(1, 8):
        for ttl_s, (size, limits) in product((10.0, 40.0), CASES):
            assert_is_the_naive_one(kind, ttl_s, size, limits, seed)


def assert_is_the_naive_one(kind: str, ttl_s: float, size: int, limits: Limits, seed: int) -> None:
    table, naive = TABLES[kind](ttl_s, limits), NAIVE[kind](ttl_s, limits)
    seen: Counter[str] = Counter()
    topics = SIZES[size][0]
    for verb, topic, address, now in steps(random.Random(seed), 300 + 700 * size, size):
        lease = Lease(topic, address)
        if verb != "look":
            assert table.expire(now) == naive.expire(now)
        if verb == "ask":
            assert table.is_live(*lease, now) is naive.is_live(lease, now)
            if naive.is_live(lease, now):
                table.renew(*lease, now)
                naive.renew(lease, now)
            else:
                assert table.open(*lease, now) is naive.open(lease, now)
                assert table.evicted == naive.evicted
                seen["evicted"] += len(naive.evicted)
                table.evicted.clear()
                naive.evicted.clear()
        live, audiences = naive.live_by_topic(now), Counter(row.lease.topic for row in naive.rows)
        for its_topic in topics[:5]:
            subscribers = table.subscribers(its_topic, now)
            assert sorted(subscribers) == sorted(live[its_topic])
            assert table.routes(now)[its_topic] == subscribers
            assert table.audience_count(its_topic) == audiences[its_topic]
        beyond_free = {each: table.beyond_free(each) for each in {row.lease.address for row in naive.rows}}
        for row in naive.rows:
            its_topic, its_address = row.lease
            assert (its_topic in beyond_free[its_address]) is not row.is_free
            seen["established"] += row.is_established
            seen["beyond-free"] += not row.is_free
        assert len(table) == len(naive.rows) <= limits.leases
        assert table.topic_count == len(audiences) <= limits.topics
        assert (table.load, table.is_nearly_full) == (naive.load, naive.is_nearly_full)
        assert table.next_expiry() == (naive.rows[0].renewed_at + ttl_s if naive.rows else None)
        assert table.promise_s(now) == naive.promise_s(now)
    if size:
        assert seen["evicted"] > 10 < seen["established"]


# --- The ttl table ------------------------------------------------------------------------------------


def new_table(ttl_s: float = 10.0, **limits: int) -> LeaseTable:
    return LeaseTable(ttl_s, Limits(**limits))


def test_lease_ends_exactly_at_its_time() -> None:
    """§7.1: at its end the server sends nothing more to it, whether or not it was forgotten yet."""
    table = new_table(60.0)
    assert table.open(b"t", A, 100.0) is None
    assert list(table.subscribers(b"t", 159.999)) == [A]
    assert table.is_live(b"t", A, 159.999)
    assert list(table.subscribers(b"t", 160.0)) == []
    assert not table.is_live(b"t", A, 160.0)
    assert len(table) == 1
    assert table.expire(159.999) == []
    assert table.expire(160.0) == [(b"t", A)]
    assert (len(table), table.topic_count, table.next_expiry()) == (0, 0, None)


def test_subscribers_stand_longest_standing_first_and_the_ready_list_follows() -> None:
    table = new_table()
    table.open(b"t", A, 0.0)
    table.open(b"t", B, 1.0)
    assert list(table.subscribers(b"t", 1.0)) == [A, B]
    table.renew(b"t", A, 2.0)
    assert list(table.subscribers(b"t", 2.0)) == [A, B]
    table.open(b"t", C, 3.0)
    assert list(table.subscribers(b"t", 3.0)) == [A, B, C]
    assert table.expire(11.0) == [(b"t", B)]
    assert list(table.subscribers(b"t", 11.0)) == [A, C]
    assert list(table.subscribers(b"t", 12.0)) == [C]
    table.expire(12.5)
    table.open(b"t", B, 12.5)
    assert list(table.subscribers(b"t", 12.5)) == [C, B]


def test_ready_list_is_made_once_for_many_looks() -> None:
    table = new_table()
    table.open(b"t", A, 0.0)
    table.open(b"t", B, 0.0)
    assert table.subscribers(b"t", 1.0) is table.subscribers(b"t", 9.999)
    assert table.subscribers(b"other", 1.0) == ()


@pytest.mark.parametrize("kind", TABLES)
def test_nothing_is_kept_of_leases_that_are_gone(kind: str) -> None:
    """Topics, counts and promises go at once, or naming things would be a way to fill the memory."""
    table = TABLES[kind](10.0, Limits(leases=600))
    fill_and_empty(table, -200.0)  # dicts keep the room that 500 leases needed
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fill_and_empty(table, 0.0)
        for cached in (networks_of, table._networks.path_of, table._networks.of):
            getattr(cached, "cache_clear", int)()  # they have bounds of their own
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # 10,000 leases would be some 6,000,000 bytes.
    assert grown < 300_000, f"{grown} bytes are left of 10,000 leases"


def fill_and_empty(table: LeaseTable, now: float) -> None:
    """Twenty times 500 leases, of addresses and topics that are new each time."""
    for turn in range(20):
        for number in range(500):
            address = f"198.51.{number % 100}.{turn}", number
            assert table.open(b"topic-%d-%d" % (turn, number), address, now + turn * 10.0) is None
        assert table.topic_count == 500
        assert len(table.expire(now + turn * 10.0 + 10.0)) == 500
        assert (len(table), table.topic_count, table.is_nearly_full) == (0, 0, False)


# --- Limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "neighbour", "stranger"),
    [
        ("192.0.2.0", "192.0.2.255", "192.0.3.0"),
        ("203.0.113.9", "203.0.113.10", "203.0.112.9"),
        ("2001:db8:1::1", "2001:db8:1:ffff:ffff::1", "2001:db8:2::1"),
        ("2001:db8:1::1", "2001:db8:1::2", "2001:db8::1"),
        ("10.0.0.1", "10.0.0.2", "10.0.1.1"),
    ],
)
def test_prefix_is_a_24_or_a_48(host: str, neighbour: str, stranger: str) -> None:
    table = new_table(leases_per_prefix=2)
    assert table.open(b"t", (host, 1), 0.0) is None
    assert table.open(b"t", (neighbour, 1), 0.0) is None
    assert table.open(b"t", (neighbour, 2), 0.0) is Limit.PREFIX
    assert table.open(b"u", (host, 1), 0.0) is Limit.PREFIX
    assert table.open(b"t", (stranger, 1), 0.0) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.255.255", "::1"])
def test_loopback_has_no_prefix(host: str) -> None:
    table = new_table(leases_per_prefix=1, leases_per_address=2)
    for port in range(100):
        assert table.open(b"t", (host, port), 0.0) is None
        assert table.open(b"u", (host, port), 0.0) is None
        assert table.open(b"v", (host, port), 0.0) is Limit.ADDRESS


def test_loopback_is_like_other_networks_where_it_is_not_exempt() -> None:
    table = LeaseTable(10.0, Limits(leases_per_prefix=2), Networks(exempts_loopback=False))
    opened = [table.open(b"t", (f"127.0.{net}.1", port), 0.0) for net in (0, 1) for port in range(3)]
    assert opened == [None, None, Limit.PREFIX] * 2


def test_a_route_and_the_ready_list_are_one_while_leases_are_renewed() -> None:
    """Else a topic would have two lists of the same, one of them in its route."""
    table = new_table()
    for address in (A, B):
        table.open(b"t", address, 0.0)
    topic = bytes(bytearray(b"t"))
    route = table.routes(1.0)[topic]
    for now in (9.0, 18.0, 27.0):
        for address in (A, B):
            table.renew(b"t", address, now)
        assert table.subscribers(b"t", now) is table.routes(now)[topic] is route
    assert not any(each is topic for each in table._routes), "it has the table's own object for its topic"
    table.expire(37.0)
    assert not table._routes and table.routes(37.0)[topic] == ()


@pytest.mark.parametrize("kind", TABLES)
def test_a_topic_that_has_gone_makes_no_room(kind: str) -> None:
    """Opened by one whose network has room, and joined by one whose network has little: so it was known to be
    on probation. It was not known that it had gone, and to make room by it raised KeyError."""
    table = TABLES[kind](60.0, Limits(leases=1000, topics=8, leases_per_prefix=5))
    joined = (b"x", b"y", b"z")
    for topic in joined:
        assert table.open(topic, F, 0.0) is None
    assert [table.open(b"own", ("203.0.113.1", port), 0.0) for port in range(3)] == [None] * 3
    assert [table.open(topic, ("203.0.113.2", 1), 0.0) for topic in joined] == [None, None, Limit.PREFIX]
    table.expire(60.0)
    assert (len(table), table.topic_count) == (0, 0)
    for number in range(8):
        assert table.open(b"%d" % number, (f"192.0.{number}.1", 1), 61.0) is None
    assert table.open(b"new", ("203.0.119.1", 1), 61.0) is Limit.TOPICS


# --- The fifo table -----------------------------------------------------------------------------------


def new_fifo(ttl_s: float = 60.0, **limits: int) -> FifoTable:
    return FifoTable(ttl_s, Limits(**limits))


def test_fifo_pushes_out_the_oldest_once_its_promise_is_over() -> None:
    table = new_fifo(leases=2)
    table.open(b"t", A, 0.0)
    table.open(b"t", B, 0.0)
    assert table.open(b"t", C, 40.0) is Limit.FULL  # who stood in the way was 40 s old
    assert table.promise_s(40.0) == 20.0
    table.expire(60.0)
    table.open(b"t", A, 60.0)
    assert table.promise_s(60.0) == 30.0  # 20 s later
    table.open(b"t", B, 62.0)
    assert table.open(b"t", C, 89.0) is Limit.FULL  # A was promised until 90
    assert table.open(b"t", C, 90.0) is None
    assert table.evicted == [(b"t", A)]
    assert list(table.subscribers(b"t", 90.0)) == [B, C]
    assert table.promise_s(90.0) == 15.0  # A lived for 30 s


def test_fifo_estimate_falls_at_once_and_grows_a_second_a_second() -> None:
    table = new_fifo(leases=1)
    table.open(b"t", A, 0.0)
    assert table.open(b"t", B, 40.0) is Limit.FULL
    assert [table.promise_s(at) for at in (40.0, 41.0, 50.0, 80.0, 1000.0)] == [20.0, 20.5, 25.0, 40.0, 60.0]
    table.renew(b"t", A, 58.0)
    assert table.open(b"t", B, 73.0) is Limit.FULL
    assert [table.promise_s(at) for at in (73.0, 77.0, 78.0, 80.0)] == [10.0, 10.0, 10.0, 11.0]


@pytest.mark.parametrize("ttl_s", [1.0, 5.0, 10.0])
def test_fifo_with_a_short_ttl_promises_all_of_it(ttl_s: float) -> None:
    table = new_fifo(ttl_s, leases=1)
    table.open(b"t", A, 0.0)
    assert table.open(b"t", B, 0.5) is Limit.FULL
    assert table.promise_s(0.5) == ttl_s
    assert table.expire(ttl_s) == [(b"t", A)]


@pytest.mark.parametrize("pause_s", [1.0, 7.0, 60.0])
def test_fifo_full_of_the_living_promises_no_less_when_somebody_knocks(pause_s: float) -> None:
    """Nobody went away, so there is no room to be made; all would only renew six times as often."""
    table = new_fifo(leases=100)
    for number in range(3000):
        now, client = number * 0.2, ("192.0.2.1", number % 100)  # each renews every 20 s
        assert table.expire(now) == []
        if table.is_live(b"t", client, now):
            table.renew(b"t", client, now)
        else:
            assert table.open(b"t", client, now) is None
        if number >= 100 and now % pause_s < 0.2:
            assert table.open(b"t", ("192.0.2.1", 999), now) is Limit.FULL
        assert table.promise_s(now) == 60.0


def test_fifo_makes_room_for_a_topic_whose_only_lease_it_pushes_out() -> None:
    """The audience that the new lease joins goes away in the same moment."""
    table = new_fifo(leases=1, topics=1)
    table.open(b"t", A, 0.0)
    table.expire(60.0)
    table._lifetime_s = 0.0  # so that 10 s are promised
    table._lifetime_seen_at = 60.0
    table.open(b"t", A, 60.0)
    assert table.open(b"t", B, 70.0) is None
    assert list(table.subscribers(b"t", 70.0)) == [B]
    assert (len(table), table.topic_count, table.audience_count(b"t")) == (1, 1, 1)


@pytest.mark.long
def test_fifo_keeps_every_promise(seeds: Seeds) -> None:
    """Random clients, more than there is room for: nobody is gone before what it was told, and those that
    are pushed out are those renewed longest ago."""
    waits = [(20.0, 0.5), (60.0, 0.2), (60.0, 1.0), (600.0, 1.0), (600.0, 8.0)]
    for seed in seeds(1, 3):
        for leases, (ttl_s, pause_s) in product((1, 3, 20), waits):
            assert_every_promise_is_kept(ttl_s, pause_s, leases, seed)


def assert_every_promise_is_kept(ttl_s: float, pause_s: float, leases: int, seed: int) -> None:
    rng = random.Random(seed)
    table = new_fifo(ttl_s, leases=leases)
    promised: dict[Lease, float] = {}
    renewed: dict[Lease, float] = {}
    now, pushed = 0.0, 0
    for _ in range(3000):
        now += rng.expovariate(1 / pause_s)
        port = rng.randrange(90)
        lease = Lease(TOPICS[port % 3], ("192.0.2.1", port))  # no address holds more than another
        for gone in table.expire(now):
            assert promised.pop(gone) <= now
            assert renewed.pop(gone) + ttl_s <= now
        if table.is_live(*lease, now):
            table.renew(*lease, now)
        elif table.open(*lease, now) is not None:
            lease = Lease(b"", A)
        for gone in table.evicted:
            assert promised.pop(gone) <= now, "gone before its promise"
            assert renewed.pop(gone) <= min(renewed.values(), default=now), "not the oldest"
            pushed += 1
        table.evicted.clear()
        if lease.topic:
            promise_s = table.promise_s(now)
            assert min(ttl_s, FIFO_PROMISE_S_MIN) <= promise_s <= ttl_s
            promised[lease] = max(promised.get(lease, 0.0), now + promise_s)
            renewed[lease] = now
        live = Counter(promised.keys())
        for its_topic in TOPICS:
            for address in table.subscribers(its_topic, now):
                live[Lease(its_topic, address)] -= 1
        assert not any(live[its] and until > now for its, until in promised.items())
    assert pushed > 10


# --- Keys that expire ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", TABLES)
def test_of_many_leases_that_end_at_once_some_are_forgotten_at_a_time(kind: str) -> None:
    """Else the end of 100,000 would make a server deaf for a third of a second."""
    table = TABLES[kind](10.0, Limits(leases_per_prefix=10_000))
    for number in range(5000):
        assert table.open(b"t", ("192.0.2.1", number), 100.0) is None
    now, slices = 100.0 + 2 * 3600, list[int]()
    while len(table):
        slices.append(len(table.expire(now)))
        assert 0 < slices[-1] <= 1000
        assert not table.subscribers(b"t", now), "they have ended all the same"
    assert sum(slices) == 5000
