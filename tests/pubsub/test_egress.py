"""pubsub/egress.py: who gets which lines, in which datagrams, in which order, and how many at once."""

import random
from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub import wire
from kcast.pubsub.batch import CALLS_MAX, COST_BYTES_MAX, LATE_S, WHOLE_CALLS_MAX
from kcast.pubsub.drops import Drop
from kcast.pubsub.egress import (
    BACKLOG_BYTES_MAX,
    QUEUES_MAX,
    Egress,
)
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.holders import Holders
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.networks import Networks, Share
from kcast.pubsub.queues import CHUNK_ADDRESSES, COPY_COST_BYTES, QUANTUM_BYTES, Sender
from kcast.pubsub.rates import Demand
from kcast.pubsub.router import survey
from kcast.pubsub.subscribers import Subscribers
from kcast.pubsub.table import LeaseTable
from tests.support.server_core import CLIENT, OTHER, THIRD, sent

NOW = 0.0


def sender(name: str, networks: tuple[Share, ...] = ()) -> Sender:
    return Sender(name, networks[0] if networks else name, networks)


class Bench:
    """Queues, and a table with who is to get what."""

    def __init__(
        self,
        audiences: dict[bytes, list[Address]],
        *,
        marks_copies: bool = False,
        uplink_bytes_per_s: int = 0,
        exempts_loopback: bool = True,
        **limits: int,
    ) -> None:
        table = LeaseTable(60.0, Limits(leases_per_prefix=100_000))
        for topic, addresses in audiences.items():
            for address in addresses:
                assert table.open(topic, address, NOW) is None
        self.table = table
        self.counts: Counter[str] = Counter()
        self.drops: Counter[Drop] = Counter()
        networks = Networks(exempts_loopback=exempts_loopback)
        nobody = Holders(networks, 1)  # so that all that is sent is told apart by publishers alone
        self.subscribers = Subscribers(nobody, networks, Limits(**limits), 60.0, self.drops)
        self.egress = Egress(
            table,
            self.subscribers,
            networks,
            self.counts,
            self.drops,
            marks_copies=marks_copies,
            uplink_bytes_per_s=uplink_bytes_per_s,
        )

    def put(self, *lines: bytes, publisher: str = "p", networks: tuple[Share, ...] = ()) -> None:
        """Puts lines as those of one datagram."""
        data = b"\n".join(lines) + b"\n"
        surveyed = survey(data, len(data), len(lines), self.table.routes(NOW))
        assert surveyed is not None
        self.egress.put(sender(publisher, networks), data, len(data), Demand(*surveyed), NOW)

    def put_run(self, data: bytes, segment_bytes: int, topic: bytes, line_count: int) -> None:
        audience = self.table.paid_count(topic)
        demand = Demand(line_count, line_count * audience, len(data) * audience, topic)
        self.egress.put_run(sender("p"), data, segment_bytes, topic, demand, NOW)

    def flush(self, now: float = NOW) -> list[Transmit]:
        """All that leaves at once."""
        transmits: list[Transmit] = []
        while self.egress.ready_at(now) == now:
            transmits += self.egress.next_slice(now)
        return transmits


def lines_to(transmits: list[Transmit]) -> dict[Address, list[bytes]]:
    """What each destination gets, in order."""
    got: dict[Address, list[bytes]] = {}
    for destination, datagram in sent(transmits):
        got.setdefault(destination, []).extend(wire.split_lines(datagram)[0])
    return got


def test_each_subscriber_gets_its_lines_in_one_datagram() -> None:
    bench = Bench({b"t": [CLIENT, OTHER], b"u": [OTHER], b"v": [THIRD]})
    bench.put(b"t 1", b"u 1", b"t 2", b"v 1")
    assert sorted(sent(bench.flush())) == [
        (CLIENT, b"t 1\nt 2\n"),
        (OTHER, b"t 1\nu 1\nt 2\n"),
        (THIRD, b"v 1\n"),
    ]
    assert bench.counts == {"copies_sent": 6}
    assert bench.flush() == []


def test_few_busy_topics_in_many_sets_do_not_fill_the_memory() -> None:
    """Lines are copied for each set of topics, so what is put together at a time is bounded in bytes."""
    rng, subscribers = random.Random(7), crowd(120)
    topics = [b"hot%d" % number for number in range(8)]
    bench = Bench({topic: rng.sample(subscribers, 60) for topic in topics})
    for number in range(500):
        bench.put(topics[number % 8].ljust(1100, b"x").replace(b"x", b" ", 1), publisher=f"p{number % 5}")
    copies = most_bytes = 0
    while bench.egress.ready_at(NOW) < inf:
        copies += sum(map(len, lines_to(bench.egress.next_slice(NOW)).values()))
        batches = bench.egress._first, bench.egress._round
        most_bytes = max(most_bytes, sum(len(each.data) for batch in batches for each in batch.ready))
    assert copies == 500 * 60
    assert COST_BYTES_MAX // 4 < most_bytes < COST_BYTES_MAX + 60 * 1200


def test_burst_leaves_as_it_came_and_after_what_came_before_it() -> None:
    bench = Bench({b"t": [CLIENT, OTHER], b"u": [CLIENT]})
    bench.put(b"u 0", b"t 0")
    bench.put_run(b"t 1\nt 2\n", 4, b"t", 2)
    bench.put_run(b"x 1\nx 2\n", 4, b"x", 2)
    bench.put(b"t 3")
    transmits = bench.flush()
    assert Transmit(b"t 1\nt 2\n", 4, (CLIENT, OTHER), 2) in transmits
    assert lines_to(transmits)[OTHER] == [b"t 0", b"t 1", b"t 2", b"t 3"]
    assert bench.counts == {"copies_sent": 4 * 2 + 1}
    assert bench.drops == {Drop.NO_SUBSCRIBER: 2}


def test_bursts_of_a_topic_that_wait_for_their_turn_leave_as_one() -> None:
    bench = Bench({b"t": [CLIENT, OTHER], b"u": [OTHER]})
    expected = [b"t %02d" % number for number in range(40)]
    for start in range(0, 40, 4):
        run = b"".join(line + b"\n" for line in expected[start : start + 4])
        bench.put_run(run, 10, b"t", 4)
    bench.put_run(b"u 1\nu 2\n", 4, b"u", 2)
    bench.put_run(b"t 40\nt 41\n", 5, b"t", 2)  # which may pass another topic's
    transmits = bench.flush()
    assert [each.line_count for each in transmits] == [42, 2]
    assert lines_to(transmits)[CLIENT] == [*expected, b"t 40", b"t 41"]
    assert lines_to(transmits)[OTHER] == [*expected, b"t 40", b"t 41", b"u 1", b"u 2"]
    assert bench.egress.backlog_bytes == 0
    long = b"t " + b"x" * 997 + b"\n"
    for _ in range(80):
        bench.put_run(long, len(long), b"t", 1)
    transmits = bench.flush()
    assert [each.line_count for each in transmits] == [32, 32, 16]
    assert lines_to(transmits)[CLIENT] == [long[:-1]] * 80


def test_lines_that_wait_for_a_large_audience_leave_as_one() -> None:
    subscribers = crowd(3000)
    bench = Bench({b"t": subscribers, b"u": subscribers[:200]})
    bench.put(b"t 0")
    transmits = bench.egress.next_slice(NOW)
    expected = [b"t %d" % number for number in range(1, 50)]
    for number, line in enumerate(expected):
        bench.put(*([line, b"u %d" % number] if number % 7 == 3 else [line]))
    transmits += bench.flush()
    assert lines_to(transmits)[subscribers[-1]] == [b"t 0", *expected]
    assert calls(transmits) < 3000 * 3
    assert bench.egress.backlog_bytes == 0


def test_lines_stay_behind_those_that_wait_with_other_topics() -> None:
    """What is joined with a parcel does not pass lines of its topic that stand behind that."""
    subscribers = crowd(3000)
    bench = Bench({b"t": subscribers, b"small": subscribers[:2]})
    bench.put(b"t 0")
    transmits = bench.egress.next_slice(NOW)
    expected = [b"t %d" % number for number in range(1, 30)]
    for number, line in enumerate(expected):
        bench.put(*([line, b"small %d" % number] if number % 3 == 1 else [line]))
    transmits += bench.flush()
    got = [line for line in lines_to(transmits)[subscribers[0]] if line.startswith(b"t ")]
    assert got == [b"t 0", *expected]
    assert bench.egress.backlog_bytes == 0


def test_large_topics_of_a_datagram_leave_in_the_order_of_their_lines() -> None:
    bench = Bench({b"t%d" % number: crowd(300, number) for number in range(6)})
    bench.put(*[b"t%d m" % number for number in range(6)])
    began = [data[:2] for data, *_ in bench.flush()]
    assert list(dict.fromkeys(began)) == [b"t%d" % number for number in range(6)]


@pytest.mark.parametrize(("subscriber_count", "slices"), [(10_000, 60), (3000, 20)])
def test_a_queue_that_is_never_empty_is_not_full_of_what_has_left(subscriber_count: int, slices: int) -> None:
    """Lines that are joined cost less than they would have alone, and do not count as waiting afterwards."""
    bench = Bench({b"t": crowd(subscriber_count)})
    for number in range(300):
        assert bench.egress.has_room(sender("p"))
        bench.put(b"t " + b"%d" % number * 30)
        for _ in range(slices):
            bench.egress.next_slice(NOW)
        assert bench.egress.backlog_bytes < BACKLOG_BYTES_MAX / 3


LONG = (
    b"run " + b"x" * 1195 + b"\n"
) * 40  # longer than what is joined, so that it comes first without a queue


def test_lines_keep_their_order_around_a_long_burst() -> None:
    bench = Bench({b"run": [CLIENT]})
    bench.put(b"run 0")
    bench.put_run(LONG, 1200, b"run", 40)
    bench.put(b"run 1")
    got = lines_to(bench.flush())[CLIENT]
    assert (got[0], got[-1], len(got)) == (b"run 0", b"run 1", 42)


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
    bench.put(*whole)
    assert bench.drops == {}
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


# --- Slices, and turns --------------------------------------------------------------------------------


def crowd(count: int, third: int = 0) -> list[Address]:
    return [(f"10.{third}.{number >> 8}.{number & 255}", 1000) for number in range(count)]


def calls(transmits: list[Transmit]) -> int:
    return sum(len(transmit.destinations) for transmit in transmits)


def test_a_message_to_a_large_audience_leaves_in_slices() -> None:
    bench = Bench({b"t": crowd(20_000)})
    bench.put(b"t 1")
    got: Counter[Address] = Counter()
    slices = 0
    while bench.egress.ready_at(NOW) < inf:
        transmits = bench.egress.next_slice(NOW)
        assert calls(transmits) <= WHOLE_CALLS_MAX
        got.update(destination for destination, _ in sent(transmits))
        slices += 1
    assert got == Counter(crowd(20_000))
    assert -(-20_000 // WHOLE_CALLS_MAX) < slices <= -(-20_000 // CALLS_MAX)
    assert bench.egress.backlog_bytes == 0


@pytest.mark.parametrize("line_bytes", [10, 1000])
def test_who_had_nothing_waiting_is_served_before_the_rest_of_a_large_audience(line_bytes: int) -> None:
    bench = Bench({b"bulk": crowd(20_000), b"t": [CLIENT]})
    bench.put(b"bulk ".ljust(line_bytes, b"m"), publisher="bulk")
    bench.egress.next_slice(NOW)
    bench.put(b"t 1", publisher="sparse")
    assert CLIENT in [destination for destination, _ in sent(bench.egress.next_slice(NOW))]


def copies_until(bench: Bench, topic: bytes, transmits: list[Transmit]) -> int:
    """How many copies of lines leave before the first of a topic, beginning with those given."""
    count = 0
    while True:
        for data, _, destinations, _ in transmits:
            lines = wire.split_lines(data)[0]
            if any(line.startswith(topic + b" ") for line in lines):
                return count
            count += len(lines) * len(destinations)
        assert bench.egress.ready_at(NOW) < inf, "it never leaves"
        transmits = bench.egress.next_slice(NOW)


def test_who_has_had_a_turn_comes_first_again_soon() -> None:
    """200 publishers have bulk; after 2,500 copies the first of them does not wait for the others."""
    topics = {b"t%d" % number: crowd(128, number) for number in range(200)}
    bench = Bench(topics | {b"late": [CLIENT]})
    for topic in topics:
        bench.put(topic.ljust(5) + b"m" * 1100, publisher=topic.decode())
    left = 0
    while left < 2500:
        left += calls(bench.egress.next_slice(NOW))
    bench.put(b"late 1", publisher="t0")
    assert copies_until(bench, b"late", bench.egress.next_slice(NOW)) < 200


def test_large_audiences_of_two_publishers_are_served_by_turns() -> None:
    bench = Bench({b"t": crowd(20_000, 1), b"u": crowd(20_000, 2)})
    bench.put(b"t 1", publisher="p")
    bench.put(b"u 1", publisher="q")
    got = Counter[bytes]()
    while got.total() < 5000:
        for data, _, destinations, _ in bench.egress.next_slice(NOW):
            got[data[:1]] += len(destinations)
    assert min(got[b"t"], got[b"u"]) > 1500


@pytest.mark.parametrize("lines_of_datagram", [1, 64])
def test_who_sends_ever_anew_has_no_more_than_who_always_has_much(lines_of_datagram: int) -> None:
    """What is sent in one go, far beyond a quantum, is made up for though nothing waits any more."""
    bench = Bench({b"p": crowd(128, 1), b"pp": crowd(128, 1), b"q": crowd(20_000, 2)})
    lines = [topic + b" ".ljust(500, b"m") for topic in (b"p", b"pp")] * 32
    sent_bytes = Counter[bytes]()
    for _ in range(1000):
        if "p" not in bench.egress._queues:
            for start in range(0, len(lines), lines_of_datagram):
                bench.put(*lines[start : start + lines_of_datagram], publisher="p")
        if "q" not in bench.egress._queues:
            bench.put(b"q ".ljust(1000, b"m"), publisher="q")
        for data, _, destinations, _ in bench.egress.next_slice(NOW):
            sent_bytes[data[:1]] += len(destinations) * len(data)
    assert sent_bytes[b"p"] < 0.6 * sent_bytes.total()


def test_publishers_that_all_have_much_get_equal_parts() -> None:
    """Whatever the sizes of their messages and audiences: parts are equal in cost."""
    bench = Bench({b"a": crowd(20_000, 1), b"b": crowd(500, 2), b"c": crowd(4000, 3)})
    bench.put(*[b"a ".ljust(400, b"m")] * 5, publisher="a")
    bench.put(*[b"b ".ljust(1000, b"m")] * 100, publisher="b")
    bench.put(*[b"c ".ljust(300, b"m")] * 40, publisher="c")
    costs: Counter[str] = Counter()
    while sum(costs.values()) < 90_000_000:
        for data, _, destinations, *_ in bench.egress.next_slice(NOW):
            for destination in destinations:
                costs[destination[0].split(".")[1]] += len(data) + COPY_COST_BYTES
    # A turn may overdraw by a chunk of subscribers.
    assert max(costs.values()) - min(costs.values()) < 1.1 * CHUNK_ADDRESSES * 100_000, costs


def test_more_than_a_share_of_a_long_backlog_is_not_taken() -> None:
    bench = Bench({b"t": crowd(20_000), b"u": [CLIENT]})
    taken = 0
    while bench.egress.has_room(sender("greedy")):
        bench.put(b"t ".ljust(1000, b"m"), publisher="greedy")
        taken += 1
    assert 1 <= taken <= 1 + BACKLOG_BYTES_MAX // (20_000 * (1000 + COPY_COST_BYTES))
    assert bench.egress.has_room(sender("modest"))
    bench.put(b"u 1", publisher="modest")
    assert bench.egress.has_room(sender("modest"))
    bench.flush()
    assert bench.egress.has_room(sender("greedy"))
    assert bench.egress.backlog_bytes == 0


def run_of(bench: Bench, *, bots: int, for_slices: int) -> tuple[int, int]:
    """One network with much to send, from many addresses, and a publisher with two messages that make many
    copies. Returns how many copies of the latter have left in this many slices, and of how many."""
    for number in range(1000):
        if bench.egress.has_room(sender(f"bot {number % bots}", (b"net",))):
            bench.put(b"evil ".ljust(1000, b"m"), publisher=f"bot {number % bots}", networks=(b"net",))
    assert bench.egress.has_room(sender("honest", (b"other",)))
    for number in (1, 2):
        bench.put(b"good %d" % number + b"m" * 700, publisher="honest", networks=(b"other",))
    left = sum(
        line.startswith(b"good ") for _ in range(for_slices) for _, line in sent(bench.egress.next_slice(NOW))
    )
    return left, 2 * bench.table.audience_count(b"good")


@pytest.mark.parametrize("bots", [1, 10, 1000])
def test_a_network_with_many_addresses_has_the_part_of_one(bots: int) -> None:
    """An IPv6 /48 has 65,536 /64s. Each had a turn of its own once, so the others had next to none."""
    bench = Bench({b"evil": crowd(1000), b"good": crowd(1000, 9)})
    left, of = run_of(bench, bots=bots, for_slices=2 * 2000 // CALLS_MAX + 20)
    assert left == of
    bench.flush()
    assert bench.egress.backlog_bytes == 0
    assert not bench.egress._parties


def test_those_of_a_network_who_come_first_share_a_quantum() -> None:
    """Else those who send one message each, from ever new addresses, would be served before all others."""
    bench = Bench({b"evil": crowd(20), b"good": crowd(20, 9)})
    for number in range(500):
        bench.put(b"evil ".ljust(700, b"m"), publisher=f"bot {number}", networks=(b"net",))
    bench.put(b"good ".ljust(700, b"m"), publisher="honest", networks=(b"other",))
    evil = copies_until(bench, b"good", bench.egress.next_slice(NOW))
    assert 0 < evil <= QUANTUM_BYTES // (700 + COPY_COST_BYTES)


def test_bulk_goes_on_while_a_network_sends_from_ever_new_addresses() -> None:
    """Those who come first once took each slice: a message of many copies waited for as long as they sent."""
    bench = Bench({b"bulk": crowd(20_000), b"evil": crowd(CALLS_MAX, 9)})
    bench.put(b"bulk 1", publisher="bulk", networks=(b"other",))
    of: Counter[bytes] = Counter()
    for number in range(300):
        bench.put(b"evil 1", publisher=f"bot {number}", networks=(b"net",))
        of.update(line.split(b" ")[0] for _, line in sent(bench.egress.next_slice(NOW)))
    assert of[b"bulk"] > 0.7 * of[b"evil"], of


@pytest.mark.parametrize("is_sparse_first", [False, True])
def test_who_sends_little_never_waits_for_turns_of_bulk(is_sparse_first: bool) -> None:
    """Not even if the bulk came in the same moment: his messages once waited for a batch each ever after."""
    bench = Bench({b"bulk": crowd(20_000), b"t": [CLIENT]})
    for name in ("sparse", "bulk") if is_sparse_first else ("bulk", "sparse"):
        bench.put(b"t 0" if name == "sparse" else b"bulk 1", publisher=name, networks=(name.encode(),))
    for number in range(1, 200):
        first = bench.egress.next_slice(NOW)
        assert CLIENT in [destination for destination, _ in sent(first)]
        assert calls(first) == CALLS_MAX
        bench.put(b"t %d" % number, publisher="sparse", networks=(b"sparse",))


def test_a_network_is_not_refused_for_its_neighbour_but_bounded() -> None:
    """A newcomer in the network of somebody greedy has room, as long as there are not too many queues."""
    bench = Bench({b"t": crowd(1000)})
    while bench.egress.has_room(sender("greedy", (b"net",))):
        bench.put(b"t ".ljust(1000, b"m"), publisher="greedy", networks=(b"net",))
    names = [f"new {number}" for number in range(2 * QUEUES_MAX)]
    for name in names:
        if bench.egress.has_room(sender(name, (b"net",))):
            bench.put(b"t 1", publisher=name, networks=(b"net",))
    assert len(bench.egress._queues) == QUEUES_MAX
    assert bench.egress.has_room(sender("elsewhere", (b"other",)))


def test_no_more_leaves_than_the_uplink_takes() -> None:
    bench = Bench({b"t": crowd(1000)}, uplink_bytes_per_s=100_000)
    bench.put(b"t ".ljust(434, b"m"))
    now, sent_at = NOW, []
    while (ready_at := bench.egress.ready_at(now)) < inf:
        now = max(now, ready_at)
        sent_at += [now] * calls(bench.egress.next_slice(now))
    assert len(sent_at) == 1000
    # Half a kilobyte each on the wire: 200 a second, but for what overdraws the bucket once.
    assert 1000 / 200 - 1 < now - NOW < 1000 / 200 + 0.1


@pytest.mark.parametrize("line_bytes", [100, 700])
@pytest.mark.parametrize("is_run", [False, True])
def test_copies_that_waited_go_to_leases_that_stand(line_bytes: int, is_run: bool) -> None:
    """A busy uplink makes a batch wait, and the chunks behind it: some leases end before it leaves."""
    many = crowd(3000)
    bench = Bench({b"t": many, b"u": many}, uplink_bytes_per_s=150_000)
    staying = set(many[::2])
    for address in staying:
        bench.table.renew(b"t", address, 30.0)
    lines = [b"t ".ljust(line_bytes, b"m"), b"u ".ljust(line_bytes, b"m")]
    if is_run:
        bench.put_run((lines[0] + b"\n") * 2, line_bytes + 1, b"t", 2)
    else:
        bench.put(*lines)
    now, got = 59.9, dict[tuple[Address, bytes], float]()
    while (ready_at := bench.egress.ready_at(now)) < inf:
        now = max(now, ready_at)
        for destination, datagram in sent(bench.egress.next_slice(now)):
            got.update({(destination, line[:1]): now for line in wire.split_lines(datagram)[0]})
    assert now > 62.0
    over = {to: at for to, at in got.items() if to[1] == b"u" or to[0] not in staying}
    assert 0 < len(over) < len(many) / 2
    assert max(over.values()) < 60.0 + LATE_S
    assert {address for address, topic in got if topic == b"t"} >= staying
    assert bench.counts["copies_sent"] == len(got) * (2 if is_run else 1)


def test_what_waited_while_the_machine_was_suspended_goes_to_nobody() -> None:
    bench = Bench({b"t": crowd(WHOLE_CALLS_MAX + 10)})
    bench.put(b"t 1")
    assert calls(bench.egress.next_slice(NOW)) == CALLS_MAX
    assert calls(bench.flush(NOW + 3600.0)) == 0
    assert bench.egress.backlog_bytes == 0
    assert bench.drops == {Drop.LATE: WHOLE_CALLS_MAX + 10 - CALLS_MAX}


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from((b"t", b"u", b"v", b"w")), st.integers(1, 9)))
)
def test_whatever_is_put_in_leaves_once_in_the_order_of_its_publisher(
    puts: list[tuple[str, bytes, int]],
) -> None:
    audiences = {b"t": [CLIENT], b"u": [CLIENT, OTHER], b"v": [*crowd(300), CLIENT]}
    bench = Bench(audiences)
    rng, got = random.Random(1), list[Transmit]()
    expected: dict[tuple[str, bytes], list[bytes]] = {}
    for number, (publisher, topic, count) in enumerate(puts):
        lines = [b"%b %b.%d.%d" % (topic, publisher.encode(), number, each) for each in range(count)]
        bench.put(*lines, publisher=publisher)
        expected.setdefault((publisher, topic), []).extend(lines)
        if rng.random() < 0.3:
            got += bench.egress.next_slice(NOW)
        queues = bench.egress._queues.values()
        waiting = [sum(parcel.backlog_bytes for parcel in queue.parcels) for queue in queues]
        assert [queue.backlog_bytes for queue in queues] == waiting
        assert bench.egress.backlog_bytes == sum(waiting)
    got += bench.flush()
    received = lines_to(got)
    for (publisher, topic), lines in expected.items():
        for address in audiences.get(topic, []):
            prefix = b"%b %b." % (topic, publisher.encode())
            assert [line for line in received[address] if line.startswith(prefix)] == lines
    assert bench.drops[Drop.NO_SUBSCRIBER] == sum(
        len(lines) for (_, topic), lines in expected.items() if topic == b"w"
    )
    assert bench.counts["copies_sent"] == sum(map(len, received.values()))
    assert bench.egress.backlog_bytes == 0
