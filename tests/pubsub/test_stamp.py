"""pubsub/stamp.py: golden stamps, what a stamp is not good for, and what one costs. PROTOCOL §5.11."""

import json
from collections import Counter
from typing import Any

import pytest

from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, WORK_BITS_MAX
from kcast.pubsub.stamp import Mint, Quote, is_valid, price_bits
from tests.support import wire_vectors
from tests.support.server_core import minted

DOCUMENT: dict[str, Any] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))
COOKIE = b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
TOPICS = [b"weather/oslo", b"room/1", b"t"]
BITS = 12


@pytest.mark.parametrize("vector", DOCUMENT["stamps"], ids=lambda vector: str(vector["description"]))
def test_golden_stamp(vector: dict[str, Any]) -> None:
    topics = [bytes.fromhex(topic) for topic in vector["topics_hex"]]
    stamp, cookie = vector["stamp"].encode(), vector["cookie"].encode()
    assert is_valid(stamp, cookie, topics, vector["bits"]) is vector["valid"]
    worth = vector["worth_bits"]
    assert is_valid(stamp, cookie, topics, worth)
    assert not is_valid(stamp, cookie, topics, worth + 1)


# --- The price ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", DOCUMENT["prices"])
def test_golden_price(vector: dict[str, Any]) -> None:
    quote = Quote(vector["bits"], is_keeping_dear=True)
    assert quote.due_bits(vector["new_leases"], vector["kept_leases"]) == vector["price_bits"]
    if not vector["kept_leases"]:
        assert Quote(vector["bits"]).due_bits(vector["new_leases"], 63) == vector["price_bits"]
        assert price_bits(vector["bits"], vector["new_leases"]) == vector["price_bits"]


def test_leases_cost_no_less_together_than_one_by_one() -> None:
    """2^price tries for n leases: at least n times one lease's, and less than twice that."""
    for new_leases in range(1, LINES_PER_DATAGRAM_MAX):
        work = 2 ** price_bits(10, new_leases) / 2**10
        assert new_leases <= work < 2 * new_leases


# --- What a stamp is good for -------------------------------------------------------------------------


def test_stamp_is_good_for_what_it_was_made_for_and_for_less() -> None:
    stamp = minted(COOKIE, TOPICS, BITS)
    for bits in range(BITS + 1):
        assert is_valid(stamp, COOKIE, TOPICS, bits)


@pytest.mark.parametrize(
    ("cookie", "topics"),
    [
        (b"B" + COOKIE[1:], TOPICS),
        (COOKIE[:-1] + b"Y", TOPICS),
        (COOKIE.swapcase(), TOPICS),
        (COOKIE, [b"room/1", b"weather/oslo", b"t"]),
        (COOKIE, TOPICS[:2]),
        (COOKIE, TOPICS[1:]),
        (COOKIE, [*TOPICS, b"u"]),
        (COOKIE, [*TOPICS, b"t"]),
        (COOKIE, [*TOPICS[:2], b"T"]),
        (COOKIE, [b"weather/oslo", b"room/", b"1t"]),
        (COOKIE, [b"weather/osloroom/1", b"t"]),
        (COOKIE, []),
    ],
)
def test_stamp_is_bound_to_cookie_and_topics_and_their_order(cookie: bytes, topics: list[bytes]) -> None:
    """By the definition: a fresh hash. One in 2^12 passes by luck, and these do not."""
    assert not is_valid(minted(COOKIE, TOPICS, BITS), cookie, topics, BITS)


def test_stamps_for_other_datagrams_are_worth_what_luck_makes_them() -> None:
    """Of stamps for one datagram at another, one in 2^bits is good: nothing carries over."""
    good = Counter(
        bits
        for number in range(4096)
        for bits in (1, 4, 8)
        if is_valid(b"%x" % number, COOKIE, [b"topic%d" % number], bits)
    )
    for bits in (1, 4, 8):
        expected = 4096 / 2**bits
        assert abs(good[bits] - expected) < 5 * expected**0.5


def test_stamp_that_is_worth_one_bit_less_is_refused() -> None:
    """The bound is exact: half of what is worth n bits is worth no more."""
    worths: Counter[int] = Counter()
    for number in range(1000):
        stamp = minted(COOKIE, [b"t%d" % number], 3)
        worth = next(
            bits for bits in range(3, 65) if not is_valid(stamp, COOKIE, [b"t%d" % number], bits + 1)
        )
        worths[worth] += 1
    assert 437 < worths[3] < 563  # 500, and four standard deviations
    assert 195 < worths[4] < 305


# --- The mint -----------------------------------------------------------------------------------------


def test_stamp_costs_two_to_the_bits_on_average() -> None:
    """10,000 stamps: 5 % is five standard deviations of their mean, so this does not hold by luck."""
    bits, stamps = 5, 10_000
    tries = 0
    for number in range(stamps):
        mint = Mint(COOKIE, [b"topic/%d" % number], bits)
        assert mint.work(100_000) is not None
        tries += mint.tries
    assert abs(tries / stamps / 2**bits - 1) < 0.05


@pytest.mark.parametrize("slice_tries", [1, 2, 7, 100, 1_000_000])
def test_work_in_slices_finds_the_same_stamp_in_as_many_tries(slice_tries: int) -> None:
    whole = Mint(COOKIE, TOPICS, BITS)
    expected = whole.work(1_000_000)
    sliced, found = Mint(COOKIE, TOPICS, BITS), None
    while found is None:
        before = sliced.tries
        found = sliced.work(slice_tries)
        assert sliced.tries - before == slice_tries or found is not None
    assert found == expected
    assert sliced.tries == whole.tries


def test_most_that_can_be_asked_is_a_number_that_fits() -> None:
    """24 bits and 63 leases; and all that the wire can name: nothing raises."""
    stamp = minted(COOKIE, TOPICS, 1)
    assert not is_valid(stamp, COOKIE, TOPICS, price_bits(WORK_BITS_MAX, 63))
    assert not is_valid(stamp, COOKIE, TOPICS, 64)
