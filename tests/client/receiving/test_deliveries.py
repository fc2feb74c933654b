"""client/receiving/deliveries.py: a burst counts as its datagrams do one by one. PROTOCOL §2, §9."""

from random import Random

import pytest

from kcast.client.events import Delivery, Drop
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.deliveries import has_only_copies
from kcast.pubsub.endpoint import Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.client.test_core_servers import FEW_PUBLISH, World, known, v4
from tests.support.forms import Seeds
from tests.support.takers import TAKERS

LINES = (
    *(b"t %%@p.%d m" % number for number in range(1, 9)),
    *(b"t %%@q.%d;B=1 bQ" % number for number in range(1, 4)),
    *(b"u %%@p.%d 50 %%25" % number for number in range(1, 4)),
    *(b"%%C3%%98 %%@p.%d m" % number for number in range(1, 4)),
    *(b"t on", b"t on", b"t", b"u", b"other %@p.1 m", b"t %@p.01 m", b"t %@p.1;X=1 m", b"t a\x07", b"t "),
    *(b"%: 11-of-nonce 5", b"%+ x", b"%", b"t%20 %@p.1 m"),
)


def world(taker: str = "python") -> World:
    made = known(FEW_PUBLISH, copies=CopyFilter(is_native=TAKERS[taker]))
    for topic in (b"u", "Ø".encode()):
        made.core.subscribe(topic, made.now)
    made.run(2)
    made.take_events()
    return made


def datagram(rng: Random, size_bytes: int) -> bytes:
    """Lines, padded to this size, or cut off there; now and then nothing but padding."""
    lines = [rng.choice(LINES if rng.random() < 0.3 else LINES[:8]) for _ in range(rng.randint(0, 6))]
    text = b"".join([b"\n" * (rng.random() < 0.05) + line + b"\n" for line in lines])
    return text.ljust(size_bytes, b"\n")[:size_bytes]


def told(of: World) -> list[Told]:
    of.turn()
    return of.take_events()


@pytest.mark.parametrize("taker", TAKERS)
def test_a_burst_counts_as_its_datagrams_do(seeds: Seeds, taker: str) -> None:
    for seed in seeds(8, 40):
        rng = Random(seed)
        whole, cut = world(taker), world()
        for _ in range(20):
            size_bytes = rng.choice((40, 80, 200, 1200, 1201))
            data = b"".join([datagram(rng, size_bytes) for _ in range(rng.randint(0, 5))])
            data += datagram(rng, rng.randint(1, size_bytes))
            server = v4(rng.randint(1, 6))  # the sixth is none
            whole.core.receive(Burst(data, size_bytes, server), whole.now)
            for each in datagrams(data, size_bytes):
                cut.core.receive(Burst(each, len(each), server), cut.now)
            assert told(whole) == told(cut)
            assert whole.core.counts == cut.core.counts and whole.core.drops == cut.core.drops
            for either in (whole, cut):
                either.run(1.0)
        assert whole.core.counts["deliveries"] > 5


@pytest.mark.parametrize(
    ("data", "segment_bytes", "is_so"),
    [
        (b"t m\n", 4, True),
        (b"t m\nu m\n", 8, True),
        (b"t m\nu m\n", 4, True),
        (b"\nt m\n\nu m\n", 5, True),
        (b"t m\n\n\n\n\nt m\n", 8, True),
        (b"t m\n\n\n\n\n", 4, False),  # the second datagram is empty
        (b"t m\n\n", 4, False),
        (b"t m\nu m", 7, False),
        (b"t mmu m\n", 4, False),  # a line that has no end in its datagram
        (b"%+ x\n", 5, False),
        (b"t m\n%+ x\n", 9, False),
        (b"t m\n%C3 m\n", 10, False),  # a topic, but no usual one
        (b"t " + b"m" * 1197 + b"\n", DATAGRAM_BYTES_MAX, True),
        (b"t " + b"m" * 1198 + b"\n", DATAGRAM_BYTES_MAX + 1, False),
        (b"", 0, False),
        (b"\n", 1, False),
    ],
)
def test_which_bursts_have_only_copies(data: bytes, segment_bytes: int, is_so: bool) -> None:
    assert has_only_copies(Burst(data, segment_bytes, v4(1))) is is_so


# --- What is told of copies, in Python and in native code -------------------------------------------------


def heard(of: World, *lines: bytes, server: int = 1) -> list[Told]:
    data = b"".join([line + b"\n" for line in lines])
    of.core.receive(Burst(data, len(data), v4(server)), of.now)
    return told(of)


@pytest.fixture(params=TAKERS)
def made(request: pytest.FixtureRequest) -> World:
    return world(request.param)


def test_a_copy_is_told_once_with_all_that_it_says(made: World) -> None:
    at = made.now + made.core.clock_offset_s
    lines = (
        b"t %@p.1 a message",
        b"u %@q-_9.999999999999999999 \xff",
        b"%C3%98 %@p.7 ",
        b"t %@p.1 a message",
    )
    assert heard(made, *lines) == [
        Delivery(b"t", b"a message", "192.0.2.1:7400", "p", 1, {}, at),
        Delivery(b"u", b"\xff", "192.0.2.1:7400", "q-_9", 999_999_999_999_999_999, {}, at),
        Delivery("Ø".encode(), b"", "192.0.2.1:7400", "p", 7, {}, at),
    ]
    assert heard(made, *lines, server=2) == []
    assert made.core.counts["copies_received"] == 8 and made.core.counts["duplicates"] == 5
    assert made.core.counts["deliveries"] == 3 and not made.core.drops


@pytest.mark.parametrize(
    "line",
    [
        b"t %@p.0 m",
        b"t %@p.01 m",
        b"t %@p.1234567890123456789 m",
        b"t %@.1 m",
        b"t %@p. m",
        b"t %@p m",
        b"t %@p.1",
        b"t %@" + b"p" * 44 + b".1 m",
        b"t %@p+.1 m",
        b"t %@p.1;x m",
        b"t %@p.1 a\x07",
        b"t %@p.1 a\x7f",
        b"t %@p.1 %4",
        b"t %@p.-1 m",
        b"t %@p.1x m",
        b"t %@",
        b"t %",
        b"t",
    ],
)
def test_what_cannot_be_read_is_dropped_and_the_rest_is_told(made: World, line: bytes) -> None:
    found = heard(made, b"t %@o.1 m", line, b"t %@o.2 m")
    assert [each.seq for each in found if isinstance(each, Delivery)] == [1, 2]
    assert made.core.drops == {Drop.MALFORMED_MESSAGE: 1}


def test_what_is_rare_stands_in_its_place(made: World) -> None:
    lines = (
        b"t %@p.1 m",
        b"t raw",
        b"t %@p.2;B=1 bQ",
        b"t %@p.3 50 %25",
        b"other %@p.1 m",
        b"t %@p.4;n=v m",
        b"t %@p.5 m",
    )
    payloads = [each.payload for each in heard(made, *lines) if isinstance(each, Delivery)]
    assert payloads == [b"m", b"raw", b"m", b"50 %", b"m", b"m"]
    assert made.core.drops == {Drop.NOT_SUBSCRIBED: 1}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(("count", "size_bytes"), [(3, 2**24), (100, 1000)])
def test_memory_is_bounded_and_forgets_the_oldest_first(taker: str, count: int, size_bytes: int) -> None:
    copies = CopyFilter(count, size_bytes, is_native=TAKERS[taker])
    made = known(FEW_PUBLISH, copies=copies)
    lines = [b"t %%@p.%d m" % number for number in range(1, 20)]
    for line in (b"t raw", *lines):
        heard(made, line)
    kept = len(copies)
    assert kept == 3 and copies.size_bytes <= size_bytes
    assert heard(made, *lines[-kept:]) == [], "they are remembered"
    assert len(heard(made, lines[0])) == 1, "it is not"
    heard(made, lines[-2], server=2)
    assert list(copies._seen)[-1] == lines[-2], "its last copy is the newest"


def test_numbers_of_a_turn_count_in_their_order(made: World) -> None:
    """By two servers they come out of order: that is no jump."""
    for number in (1, 3, 5, 6, 2, 4, 7):
        line = b"t %%@p.%d m\n" % number
        made.core.receive(Burst(line, len(line), v4(number % 2 + 1)), made.now)
    told(made)
    (sequence,) = made.core._deliveries.gaps.sequences()
    assert sequence._highest == 7 and not sequence.runs and not sequence.missing
