"""client/receiving/dedup.py: the first copy told from the rest, within bounds. PROTOCOL §9.3."""

import random
import tracemalloc
from collections import Counter

import pytest

from kcast.client.receiving.dedup import CopyFilter
from kcast.pubsub.endpoint import Address
from tests.support.forms import Seeds

A: Address = ("192.0.2.1", 7400)
B: Address = ("192.0.2.2", 7400)
C: Address = ("192.0.2.3", 7400)
ENTRY_BYTES = 250


@pytest.fixture
def copies() -> CopyFilter:
    return CopyFilter()


@pytest.mark.parametrize("other", [b"t %@p.1 y", b"u %@p.1 x", b"t %@q.1 x", b"t %@p.1;t=1 x", b"t %@p.1 x "])
def test_one_changed_byte_makes_another_message(other: bytes, copies: CopyFilter) -> None:
    """Never by `seq`, which anyone can claim."""
    assert copies.is_new(b"t %@p.1 x", A, False, 0.0)
    assert copies.is_new(other, A, False, 0.0)


def test_raw_line_is_new_where_no_open_delivery_lacks_its_server(copies: CopyFilter) -> None:
    """Within a moment: the second copy from one server is another message."""
    arrivals = [(A, True), (B, False), (A, True), (C, False), (B, False), (A, True), (C, False), (C, False)]
    for server, new in [*arrivals, (C, True), (B, False), (A, False), (A, True)]:
        assert copies.is_new(b"t on", server, True, 0.0) is new


def test_raw_lines_at_once_are_delivered_as_often_as_the_busiest_server_brings_them(seeds: Seeds) -> None:
    for seed in seeds(2, 10):
        rng = random.Random(seed)
        copies = CopyFilter()
        brought: Counter[tuple[bytes, Address]] = Counter()
        delivered: Counter[bytes] = Counter()
        for _ in range(100):
            line, server = rng.choice((b"t on", b"t off")), rng.choice((A, B, C))
            brought[line, server] += 1
            delivered[line] += copies.is_new(line, server, True, 0.0)
            assert delivered[line] == max(brought[line, each] for each in (A, B, C))


def test_raw_message_cannot_be_silenced_by_who_published_it_before_elsewhere() -> None:
    """Anyone may publish: ten times `alarm` at one server must not cost the real ones elsewhere."""
    copies, servers = CopyFilter(), [(f"192.0.2.{i}", 1) for i in range(1, 6)]
    for _ in range(10):
        copies.is_new(b"t alarm", servers[0], True, 0.0)
    for at in (30.0 + 60.0 * i for i in range(10)):
        assert [copies.is_new(b"t alarm", server, True, at) for server in servers[1:4]] == [
            True,
            False,
            False,
        ]


def test_raw_message_is_delivered_though_its_server_once_lost_a_copy(copies: CopyFilter) -> None:
    """CH, two servers: the second message is lost at A, the third, a minute later, at B."""
    assert copies.is_new(b"t on", A, True, 0.0)
    assert not copies.is_new(b"t on", B, True, 0.0)
    assert copies.is_new(b"t on", B, True, 60.0)
    assert copies.is_new(b"t on", A, True, 119.0)


def test_bound_on_bytes_holds_for_raw_copies_of_lines_that_are_known() -> None:
    copies = CopyFilter(window_bytes=1_000_000)
    for at in (0.0, 1.0):
        for number in range(1000):
            for _ in range(20):
                copies.is_new(b"t %d" % number, A, True, at)
                assert copies.size_bytes <= 1_000_000


@pytest.mark.long
def test_memory_of_raw_lines_is_what_it_claims() -> None:
    servers = [(f"192.0.2.{number}", 1) for number in range(5)]
    tracemalloc.start()
    copies = CopyFilter()
    for number in range(20_000):
        for server in servers:
            copies.is_new(b"t %07d" % number, server, True, 0.0)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory < 1.2 * copies.size_bytes, f"{memory:,} bytes, and it says {copies.size_bytes:,}"


def test_lines_are_remembered_for_the_window_since_their_last_copy() -> None:
    copies = CopyFilter(window_s=10.0)
    assert copies.is_new(b"t x", A, False, 0.0)
    assert not copies.is_new(b"t x", A, False, 9.999)
    assert not copies.is_new(b"t x", A, False, 19.998)
    assert copies.is_new(b"t x", A, False, 29.998)
    assert copies.is_new(b"u x", A, False, 40.0)
    assert len(copies) == 1


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_count_is_bounded_and_the_oldest_goes_first(count: int, raw: bool) -> None:
    copies = CopyFilter(window_count=count)
    lines = [b"t %d" % number for number in range(count)]
    assert all(copies.is_new(line, A, raw, 0.0) for line in lines)
    assert not any(copies.is_new(line, B, raw, 1.0) for line in lines), "a full window remembers all it holds"
    assert len(copies) == count
    assert copies.is_new(b"t more", A, raw, 1.9)
    assert len(copies) == count
    assert not any(copies.is_new(line, C, raw, 1.9) for line in lines[1:])
    assert copies.is_new(lines[0], C, raw, 1.9)


def test_bytes_are_bounded_and_count_what_an_entry_needs() -> None:
    copies = CopyFilter(window_bytes=10 * (ENTRY_BYTES + 100))
    for number in range(100):
        assert copies.is_new(b"t %097d " % number, A, False, 0.0)
        assert copies.size_bytes == len(copies) * (ENTRY_BYTES + 100) <= 3500
    assert len(copies) == 10
    assert not copies.is_new(b"t %097d " % 90, A, False, 0.0)
    assert copies.is_new(b"t" * 1100, A, False, 0.0)
    assert copies.size_bytes <= 3500


def test_filter_is_the_naive_one(seeds: Seeds) -> None:
    """Lines in order of their last copy; what is too old, or too much, is gone."""
    for seed in seeds(4, 20):
        rng = random.Random(seed)
        copies = CopyFilter(window_count=5, window_s=10.0)
        naive: dict[bytes, float] = {}
        now = 0.0
        for _ in range(400):
            now += rng.choice((0.0, 0.5, 2.0, 10.0))
            line = b"t %d" % rng.randrange(8)
            naive = {other: at for other, at in naive.items() if at + 10.0 > now}
            new = line not in naive
            naive.pop(line, None)
            naive[line] = now
            naive = dict(list(naive.items())[-5:])
            assert copies.is_new(line, rng.choice((A, B)), False, now) is new
            assert len(copies) == len(naive)
