"""client/session/stamps.py: the stamps for one server. PROTOCOL §5.11."""

from math import inf

import pytest

from kcast.client.session.requests import Cookie, Stamped
from kcast.client.session.stamps import Stamps, topics_max
from kcast.pubsub import stamp

YOUNG = Cookie(b"A" * 32, 100.0, 1)
TOPICS = (b"t", b"u")


def everything(topic: bytes) -> bool:
    return True


def minted(bits: int = 6) -> Stamps:
    stamps = Stamps()
    stamps.begin(YOUNG, TOPICS, bits)
    while stamps.is_minting:
        stamps.work(10)
    return stamps


def test_a_stamp_is_found_a_slice_at_a_time() -> None:
    stamps = Stamps()
    assert stamps.work(100) == 0
    assert stamps.next_ready() is None
    assert stamps.bits is None
    stamps.begin(YOUNG, TOPICS, 10)
    assert stamps.bits == 10
    tried = 0
    while stamps.is_minting:
        assert stamps.take_ready(inf) is None
        tries = stamps.work(7)
        assert 1 <= tries <= 7
        tried += tries
    assert stamps.next_ready() == -inf
    found = stamps.take_ready(100.0)
    assert found is not None
    assert (found.cookie, found.topics, found.bits) == (YOUNG, TOPICS, 10)
    assert stamp.is_valid(found.stamp, YOUNG.text, TOPICS, 11), "two leases cost one bit more"
    assert (stamps.take_ready(inf), stamps.next_ready()) == (None, None)
    assert tried < 40 * 2**11


def test_a_stamp_may_be_sent_again_and_not_before_its_time() -> None:
    stamps = minted()
    found = stamps.take_ready(100.0)
    assert found is not None
    stamps.send_again(found, 120.0)
    assert stamps.next_ready() == 120.0
    assert stamps.take_ready(119.9) is None
    assert stamps.take_ready(120.0) == found


@pytest.mark.parametrize(
    ("bits", "era", "now", "wanted", "is_kept"),
    [
        (6, 1, 219.9, TOPICS, True),
        (6, 1, 220.0, TOPICS, False),  # the cookie is too old: 128 s less a margin
        (6, 2, 110.0, TOPICS, False),
        (6, 1, 110.0, (b"u",), True),
        (6, 1, 110.0, (), False),
        (7, 1, 110.0, TOPICS, True),  # its cookie was given at its price (§5.11)
        (5, 1, 110.0, TOPICS, True),  # it is worth more than is asked
    ],
)
def test_useless_stamps_are_let_go(
    bits: int, era: int, now: float, wanted: tuple[bytes, ...], is_kept: bool
) -> None:
    stamps = minted()
    assert stamps.let_go(bits, era, now, wanted.__contains__) == ([] if is_kept else list(TOPICS))
    assert (stamps.take_ready(inf) is not None) == is_kept


@pytest.mark.parametrize(("bits", "is_kept"), [(0, False), (5, False), (6, True), (7, True)])
def test_what_is_looked_for_is_let_go_when_the_price_falls(bits: int, is_kept: bool) -> None:
    """Each try is as good as the first: nothing is lost, and a cheaper stamp is found sooner. When it rises,
    the older cookie is as good as before."""
    stamps = Stamps()
    stamps.begin(YOUNG, TOPICS, 6)
    assert stamps.let_go(bits, 1, 110.0, everything) == ([] if is_kept else list(TOPICS))
    assert stamps.is_minting == is_kept


def test_stamp_that_is_found_early_waits() -> None:
    stamps = Stamps()
    stamps.begin(YOUNG, TOPICS, 60, bits_max=5, ready_at=130.0)
    while stamps.is_minting:
        stamps.work(10)
    assert stamps.take_ready(129.9) is None
    found = stamps.take_ready(130.0)
    assert found is not None
    assert stamp.is_valid(found.stamp, YOUNG.text, TOPICS, 5)


def test_drop_lets_all_go() -> None:
    stamps = minted()
    stamps.send_again(Stamped(YOUNG, (b"v",), 6, b"0"), 500.0)
    stamps.begin(YOUNG, (b"w",), 60)
    assert stamps.drop() == [b"t", b"u", b"v", b"w"]
    assert (stamps.is_minting, stamps.next_ready(), stamps.drop()) == (False, None, [])


def test_topics_of_a_datagram() -> None:
    assert [topics_max(bits) for bits in (1, 10, 17, 18, 24)] == [131_072, 256, 2, 1, 1]


def test_a_stamp_that_is_to_be_sent_twice_is_sent_once() -> None:
    """A refusal comes late: its request was given up, and the stamp waits to be sent again (seed 8799)."""
    stamps = Stamps()
    stamped = Stamped(Cookie(b"c" * 32, 0.0, 0), [b"t"], 4, b"5")
    stamps.send_again(stamped, 1.0)
    stamps.send_again(stamped, 2.0)
    assert stamps.take_ready(1.5) is None
    assert stamps.take_ready(2.0) == stamped
    assert stamps.take_ready(9.0) is None
