"""pubsub/router.py: who gets which lines, in which datagrams; bursts left as they came. PROTOCOL §4.3."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.router import Router, publishes_by_topic, whole_topic
from kcast.pubsub.table import LeaseTable
from tests.support.random_bursts import random_burst
from tests.support.server_core import CLIENT, OTHER, START, THIRD, lease, new_server, publish_lease, sent

NOW = 0.0


class Bench:
    """A router, and a table with who is to get what."""

    def __init__(self, audiences: dict[bytes, list[Address]], *, marks_copies: bool = False) -> None:
        table = LeaseTable(60.0, Limits())
        for topic, addresses in audiences.items():
            for address in addresses:
                assert table.open(topic, address, NOW) is None
        self.counts: Counter[str] = Counter()
        self.router = Router(table, self.counts, marks_copies=marks_copies)

    def forward(self, *lines: bytes) -> int:
        return sum(self.router.forward(line.partition(b" ")[0], [line]) for line in lines)

    def flush(self) -> list[Transmit]:
        return self.router.flush(NOW)[0]


def lines_to(transmits: list[Transmit]) -> dict[Address, list[bytes]]:
    """What each destination gets, in order."""
    got: dict[Address, list[bytes]] = {}
    for destination, datagram in sent(transmits):
        got.setdefault(destination, []).extend(wire.split_lines(datagram)[0])
    return got


def test_each_subscriber_gets_its_lines_in_one_datagram() -> None:
    bench = Bench({b"t": [CLIENT, OTHER], b"u": [OTHER], b"v": [THIRD]})
    bench.forward(b"t 1", b"u 1", b"t 2", b"v 1")
    assert sorted(sent(bench.flush())) == [
        (CLIENT, b"t 1\nt 2\n"),
        (OTHER, b"t 1\nt 2\nu 1\n"),
        (THIRD, b"v 1\n"),
    ]
    assert bench.counts == {"copies_sent": 6}
    assert bench.flush() == []


def test_equal_sets_of_topics_are_packed_once() -> None:
    bench = Bench({b"t": [CLIENT, OTHER, THIRD], b"u": [CLIENT, THIRD]})
    bench.forward(b"t 1", b"u 1")
    transmits = bench.flush()
    assert sorted(tuple(transmit.destinations) for transmit in transmits) == [(CLIENT, THIRD), (OTHER,)]


def test_topic_that_fills_a_datagram_by_itself_is_packed_once_for_all() -> None:
    """Else many odd sets of topics, and a few busy ones, would fill the memory with copies."""
    bench = Bench({b"hot": [CLIENT, OTHER, THIRD], b"t": [CLIENT], b"u": [OTHER]})
    bench.forward(*[b"hot " + b"x" * 200] * 5, b"t 1", b"u 1")
    transmits = bench.flush()
    assert tuple(transmits[0].destinations) == (CLIENT, OTHER, THIRD)
    assert {len(transmit.destinations) for transmit in transmits[1:]} == {1}
    assert lines_to(transmits)[OTHER] == [b"hot " + b"x" * 200] * 5 + [b"u 1"]


def test_topics_that_nobody_wants_are_told_with_their_lines() -> None:
    bench = Bench({b"t": [CLIENT]})
    bench.forward(b"t 1", b"u 1", b"%zz 1", b"u 2")
    transmits, unwanted = bench.router.flush(NOW)
    assert lines_to(transmits) == {CLIENT: [b"t 1"]}
    assert unwanted == {b"u": 2, b"%zz": 1}
    assert bench.counts == {"copies_sent": 1}


def test_lapsed_leases_get_nothing() -> None:
    bench = Bench({b"t": [CLIENT]})
    bench.forward(b"t 1")
    assert bench.router.flush(60.0) == ([], {b"t": 1})


def test_burst_leaves_as_it_came_and_after_what_came_before_it() -> None:
    bench = Bench({b"t": [CLIENT, OTHER], b"u": [CLIENT]})
    bench.forward(b"u 0", b"t 0")
    assert bench.router.forward_burst(b"t 1\nt 2\n", 4, b"t", 2, NOW)
    assert not bench.router.forward_burst(b"x 1\nx 2\n", 4, b"x", 2, NOW)
    bench.forward(b"t 3")
    transmits = bench.flush()
    assert Transmit(b"t 1\nt 2\n", 4, (CLIENT, OTHER)) in transmits
    assert lines_to(transmits)[OTHER] == [b"t 0", b"t 1", b"t 2", b"t 3"]
    assert bench.counts == {"copies_sent": 4 * 2 + 1}


# --- §4.4: an open server's mark ----------------------------------------------------------------------


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((b"t", b"u", b"v")), st.integers(0, 1196)), min_size=1, max_size=40),
    st.booleans(),
)
def test_every_datagram_of_copies_is_marked_and_none_too_long(
    lines: list[tuple[bytes, int]], marks_copies: bool
) -> None:
    audiences = {b"t": [CLIENT, OTHER], b"u": [OTHER, THIRD], b"v": [CLIENT, OTHER, THIRD]}
    bench = Bench(audiences, marks_copies=marks_copies)
    whole = [topic + b" " + b"m" * size for topic, size in lines]
    assert bench.forward(*whole) == 0
    transmits = bench.flush()
    for _, datagram in sent(transmits):
        assert datagram.startswith(b"\n") is marks_copies
        assert len(datagram) <= DATAGRAM_BYTES_MAX
        assert datagram.strip(b"\n"), "nothing but padding"
    for transmit in transmits:
        sizes = [len(datagram) for datagram in datagrams(transmit.data, transmit.segment_bytes)]
        assert set(sizes[:-1]) <= {transmit.segment_bytes}
    got = lines_to(transmits)
    for topic, addresses in audiences.items():
        mine = [line for line in whole if line.startswith(topic)]
        for address in addresses:
            assert [line for line in got.get(address, []) if line.startswith(topic)] == mine


@pytest.mark.parametrize(("line_bytes", "marks_copies", "fits"), [
    (1199, False, True), (1198, True, True), (1199, True, False),
])  # fmt: skip
def test_longest_line_that_fits_beside_the_mark(line_bytes: int, marks_copies: bool, fits: bool) -> None:
    """A datagram of 1200 bytes has room for a line of 1199 and its LF; a marked one for a byte less."""
    bench = Bench({b"t": [OTHER]}, marks_copies=marks_copies)
    line = b"t ".ljust(line_bytes, b"m")
    assert bench.forward(line) == (not fits)
    back = sent(bench.flush())
    assert back == ([(OTHER, b"\n" * marks_copies + line + b"\n")] if fits else [])
    assert bench.router.flush(NOW) == ([], {})


# --- Bursts that need not be looked at datagram by datagram -------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("has_lease", [True, False])
def test_burst_forwarded_whole_is_what_forwarding_line_by_line_delivers(has_lease: bool) -> None:
    """§4.3: the same lines to the same subscribers, and the same counted; blank datagrams apart."""
    rng = random.Random(4)
    whole = 0
    for _ in range(1500):
        data, segment_bytes = random_burst(rng)
        servers = [new_server(), new_server()]
        for server in servers:
            lease(server, OTHER, b"t")
            lease(server, THIRD, b"t", b"u")
            if has_lease:
                publish_lease(server)
            server.drops.clear()
            server.counts.clear()
        servers[0].receive(Burst(data, segment_bytes, CLIENT), START)
        for datagram in datagrams(data, segment_bytes):
            servers[1].receive(Burst(datagram, len(datagram), CLIENT), START)
        delivered = []
        for server in servers:
            transmits = server.flush(START)
            whole += server is servers[0] and any(transmit.data == data for transmit in transmits)
            lines = [(to, line) for to, text in sent(transmits) for line in wire.split_lines(text)[0]]
            delivered.append(Counter((to, line[:2] if line[:2] == b"%=" else line) for to, line in lines))
            del server.drops[Drop.EMPTY]
        assert delivered[0] == delivered[1], (data, segment_bytes)
        assert servers[0].drops == servers[1].drops, (data, segment_bytes)
        assert servers[0].counts == servers[1].counts, (data, segment_bytes)
    assert (whole > 200) is has_lease


@pytest.mark.parametrize(
    ("data", "segment_bytes", "whole"),
    [
        (b"t 1\nt 2\n", 4, True), (b"t 1\n\nt 22\nt 3\n", 5, True), (b"t 1\n\n\n\n\n\n\nt 2\n", 5, True),
        (b"t 1\nu 2\n", 4, False), (b"t 1\nt\n\n\n", 4, False), (b"t 1\nt 2", 4, False),
        (b"t 12\nt 3\n", 4, False), (b"t 1\ntt 2\n", 4, False), (b"t 1\n%~ N\n", 4, False),
        (b"\nt 1\nt 2\n", 5, False), (b" t 1\n t 2\n", 5, False), (b"%74 1\n%74 2\n", 6, False),
        ((b"t \n" * 64).ljust(200, b"\n") * 2, 200, True),
        ((b"t \n" * 65).ljust(200, b"\n") * 2, 200, False),
        (b"t " + b"m" * 1197 + b"\nt 2\n", 1200, True),
        (b"t " + b"m" * 1198 + b"\nt 2\n", 1201, False),
    ],
)  # fmt: skip
def test_which_bursts_are_forwarded_as_they_came(data: bytes, segment_bytes: int, whole: bool) -> None:
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    server.receive(Burst(data, segment_bytes, CLIENT), START)
    transmits = server.flush(START)
    assert ((data, segment_bytes) in [transmit[:2] for transmit in transmits]) is whole


@pytest.mark.parametrize(("lines", "lines_max", "whole"), [
    (64, 64, True), (65, 64, False), (3, 3, True), (4, 3, False), (1, 1, True),
])  # fmt: skip
def test_lines_are_bounded_in_each_datagram_of_a_burst(lines: int, lines_max: int, whole: bool) -> None:
    data = (b"t \n" * lines).ljust(300, b"\n") + b"t \n"
    found = whole_topic(data, 300, lines_max)
    assert found == ((b"t", lines + 1) if whole else None)


def naive_publishes_by_topic(
    data: bytes, segment_bytes: int, lines_max: int
) -> dict[bytes, list[bytes]] | None:
    by_topic: dict[bytes, list[bytes]] = {}
    for datagram in datagrams(data, segment_bytes):
        lines, unterminated = wire.split_lines(datagram)
        if unterminated or datagram.count(b"\n") > lines_max:
            return None
        for line in lines:
            if line.startswith(b"%") or b" " not in line:
                return None
            by_topic.setdefault(line[: line.index(b" ")], []).append(line)
    return by_topic or None


def test_burst_of_publishes_is_sorted_as_its_datagrams_would_be() -> None:
    rng = random.Random(5)
    sorted_count = 0
    for _ in range(3000):
        data, segment_bytes = random_burst(rng)
        lines_max = rng.choice((2, 64))
        found = publishes_by_topic(data, segment_bytes, lines_max)
        assert found == naive_publishes_by_topic(data, segment_bytes, lines_max), (data, segment_bytes)
        sorted_count += found is not None
    assert sorted_count > 400
