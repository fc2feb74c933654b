"""pubsub/server.py: what a lease costs, who pays, and what is not paid for. PROTOCOL §5.4, §5.8, §5.11."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kcast.pubsub import stamp as stamps
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import price_bits
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    exactly,
    handshake,
    lease,
    minted,
    new_server,
    publish,
    send,
    vouched,
)

BITS = 6


def costly(**options: Any) -> Server:
    return new_server(work_bits=BITS, **options)


def refused(server: Server, datagram: bytes, address: Address = CLIENT, now: float = START) -> int:
    """The subscribe lines that are refused for want of work; 0 where none is."""
    hexmap = 0
    for reply in answer(server, datagram, address, now):
        if isinstance(reply, wire.Refusal):
            assert (reply.reason, reply.attributes) == ("work", {"bits": str(BITS)})
            hexmap = reply.lines or 0
    return hexmap


@pytest.fixture
def server() -> Server:
    return costly()


def test_price_stands_in_challenge_and_receipt(server: Server) -> None:
    """§5.6, §5.7"""
    (challenge,) = answer(server, ask())
    assert isinstance(challenge, wire.Challenge)
    assert challenge.bits == BITS
    (receipt,) = answer(server, vouched(challenge.cookie, b"t m"))
    assert isinstance(receipt, wire.Receipt)
    assert receipt.bits == BITS


@pytest.mark.parametrize("work_bits", [-1, 25, 99])
def test_price_that_no_client_pays_is_the_callers_fault(work_bits: int) -> None:
    with pytest.raises(ValueError, match=rf"work_bits is {work_bits}: give 0 to 24"):
        new_server(work_bits=work_bits)


@pytest.mark.parametrize("topic_count", [1, 2, 3, 4, 5, 33, 63])
def test_new_leases_cost_their_price_to_the_bit(topic_count: int) -> None:
    """§5.11: bits + ceil(log2(n)); a bit less is refused, with the price now."""
    topics = [b"t%d" % number for number in range(topic_count)]
    price = price_bits(BITS, topic_count)
    everything = (1 << topic_count) - 1
    server = costly()
    cookie = handshake(server)
    assert refused(server, vouched(cookie, *topics)) == everything
    assert refused(server, vouched(cookie, *topics, stamp=exactly(cookie, topics, price - 1))) == everything
    assert len(server.leases) == 0
    assert server.drops == {Drop.WORK: 2 * topic_count}
    assert server.refusals == {"work": 2}
    assert refused(server, vouched(cookie, *topics, stamp=exactly(cookie, topics, price))) == 0
    assert len(server.leases) == topic_count
    assert server.drops == {Drop.WORK: 2 * topic_count}


@pytest.mark.parametrize(
    ("minted_for", "sent"),
    [
        ([b"a", b"b"], [b"b", b"a"]),
        ([b"a", b"b"], [b"a", b"c"]),
        ([b"a", b"b"], [b"a"]),
        ([b"a"], [b"a", b"a"]),
        ([b"a", b"a"], [b"a"]),
        ([b"a"], [b"%41", b"a"]),
        ([b"a", b"b"], [b"a", b"b", b"c"]),
    ],
)
def test_stamp_is_for_all_subscribe_lines_in_their_order(
    minted_for: list[bytes], sent: list[bytes], server: Server
) -> None:
    cookie = handshake(server)
    stamp = minted(cookie, minted_for, 14)
    replies = answer(server, vouched(cookie, *sent, stamp=stamp))
    assert [type(reply) for reply in replies] == [wire.Refusal]
    assert len(server.leases) == 0


def test_stamp_is_for_the_cookie_of_its_line(server: Server) -> None:
    """A fresh cookie, another client's, another server's: none of them has the stamp of the first."""
    cookie = handshake(server)
    stamp = minted(cookie, [b"t"], 14)
    fresh = handshake(server, now=START + 1)
    assert refused(server, vouched(fresh, b"t", stamp=stamp), now=START + 1) == 1
    theirs = handshake(server, OTHER, START + 1)
    assert refused(server, vouched(theirs, b"t", stamp=stamp), OTHER, START + 1) == 1
    (challenge,) = answer(server, vouched(cookie, b"t", stamp=stamp), OTHER, START + 1)
    assert isinstance(challenge, wire.Challenge)
    assert refused(server, vouched(cookie, b"t", stamp=stamp), now=START + 1) == 0


def test_publishes_between_the_lines_are_not_hashed_and_cost_nothing(server: Server) -> None:
    cookie = handshake(server)
    publish(server, b"a m", b"b n")
    stamp = exactly(cookie, [b"a", b"b"], BITS + 1)
    assert refused(server, vouched(cookie, b"x m", b"a", b"%? N", b"y m", b"b", b"z m", stamp=stamp)) == 0
    assert len(server.leases) == 2


def test_renewals_pay_nothing(server: Server) -> None:
    lease(server, CLIENT, b"a", b"b", b"c")
    for after_s, topics in ((25, [b"a", b"b", b"c"]), (50, [b"b"]), (70, [b"a", b"c"])):
        now = START + after_s
        for stamp in (None, b"garbage"):
            assert refused(server, vouched(handshake(server, now=now), *topics, stamp=stamp), now=now) == 0
    assert server.counts["leases_renewed"] == 12
    assert not server.drops


def test_live_and_new_leases_in_one_datagram(server: Server) -> None:
    """§5.11: what stands is renewed whatever the stamp; what is new costs what the new ones cost."""
    lease(server, CLIENT, b"a", b"b", b"c")
    topics = [b"x", b"a", b"y", b"b", b"c"]
    now = START + 30
    cookie = handshake(server, now=now)
    assert refused(server, vouched(cookie, *topics), now=now) == 0b101
    assert server.leases.next_expiry() == now + 60, "all three were renewed"
    assert refused(server, vouched(cookie, *topics, stamp=exactly(cookie, topics, BITS)), now=now) == 0b101
    assert refused(server, vouched(cookie, *topics, stamp=exactly(cookie, topics, BITS + 1)), now=now) == 0
    assert len(server.leases) == 5
    assert server.drops == {Drop.WORK: 4}


@pytest.mark.parametrize(("believed", "found", "enough"), [
    (1, 1, True), (1, 2, False), (2, 3, False), (3, 4, True), (3, 5, False), (5, 8, True), (8, 9, False),
    (32, 32, True), (33, 63, True), (32, 63, False),
])  # fmt: skip
def test_stamp_for_fewer_leases_than_are_new(believed: int, found: int, enough: bool, server: Server) -> None:
    """Leases that the client thought live have lapsed: its stamp serves as far as the power of two does."""
    topics = [b"t%d" % number for number in range(found)]
    lapsed = topics[believed:]
    if lapsed:
        lease(server, CLIENT, *lapsed)
    now = START + (60 if lapsed else 0)
    cookie = handshake(server, now=now)
    stamp = exactly(cookie, topics, price_bits(BITS, believed))
    hexmap = refused(server, vouched(cookie, *topics, stamp=stamp), now=now)
    assert hexmap == (0 if enough else (1 << found) - 1)
    assert len(server.leases) == (found if enough else 0)


def test_topic_that_stands_twice_costs_once_and_is_hashed_twice(server: Server) -> None:
    cookie = handshake(server)
    topics = [b"a", b"b", b"a", b"a"]
    stamp = exactly(cookie, topics, BITS + 1)
    assert refused(server, vouched(cookie, *topics, stamp=stamp)) == 0
    assert len(server.leases) == 2
    other = handshake(server, OTHER)
    assert refused(server, vouched(other, *topics), OTHER) == 0b1111
    assert refused(server, vouched(other, *topics, stamp=exactly(other, topics, BITS)), OTHER) == 0b1111


def test_line_that_is_no_topic_costs_nothing_and_is_hashed(server: Server) -> None:
    cookie = handshake(server)
    topics = [b"%41", b"a"]
    stamp = exactly(cookie, topics, BITS)
    replies = answer(server, vouched(cookie, *topics, stamp=stamp))
    assert [type(reply) for reply in replies] == [wire.Receipt, wire.Refusal]
    assert isinstance(replies[1], wire.Refusal)
    assert (replies[1].reason, replies[1].lines, replies[1].attributes) == ("topic", 0b01, {})
    assert list(server.leases.subscribers(b"a", START)) == [CLIENT]


def test_paid_or_not_limits_hold() -> None:
    server = costly(limits=Limits(leases=1))
    cookie = handshake(server)
    topics = [b"a", b"b"]
    replies = answer(server, vouched(cookie, *topics, stamp=minted(cookie, topics, BITS + 1)))
    assert isinstance(replies[1], wire.Refusal)
    assert (replies[1].reason, replies[1].lines) == ("full", 0b10)


def test_lease_that_has_lapsed_costs_again(server: Server) -> None:
    lease(server, CLIENT, b"t")
    now = START + 60
    cookie = handshake(server, now=now)
    assert refused(server, vouched(cookie, b"t"), now=now) == 1
    lease(server, CLIENT, b"t", now=now)


def test_free_server_looks_at_no_stamp() -> None:
    server = new_server()
    (receipt,) = answer(server, vouched(handshake(server), b"t", stamp=b"garbage"))
    assert isinstance(receipt, wire.Receipt)
    assert receipt.bits == 0


def test_those_whom_a_server_is_open_to_pay_nothing_by_hand() -> None:
    """§4.4: the bare note has no place for a stamp; who vouches pays all the same."""
    server = costly(open_to=lambda source: source == OTHER)
    assert send(server, b"t\n", OTHER) == []
    assert list(server.leases.subscribers(b"t", START)) == [OTHER]
    assert refused(server, vouched(handshake(server, OTHER), b"u"), OTHER) == 1
    assert refused(server, vouched(handshake(server), b"u")) == 1


# --- What a check costs the server --------------------------------------------------------------------


@pytest.fixture(name="checks")
def count_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many topics each stamp was checked for, in order."""
    seen: list[int] = []
    is_valid: Callable[..., bool] = stamps.is_valid

    def counted(stamp: bytes, cookie: bytes, topics: Sequence[bytes], bits: int) -> bool:
        seen.append(len(topics))
        return is_valid(stamp, cookie, topics, bits)

    monkeypatch.setattr(stamps, "is_valid", counted)
    yield seen


def test_one_datagram_costs_the_server_one_hash(checks: list[int], server: Server) -> None:
    topics = [b"t%d" % number for number in range(63)]
    send(server, vouched(handshake(server), *topics, stamp=b"garbage"))
    assert checks == [63]


def test_no_hash_where_nothing_depends_on_it(checks: list[int]) -> None:
    """Renewals, foreign and old cookies, missing stamps, a draining server, lines that are no topic."""
    server = costly(limits=Limits(publishes_per_s=1))
    lease(server, THIRD, b"t")
    del checks[:]
    cookie = handshake(server)
    send(server, vouched(handshake(server, THIRD), b"t", stamp=b"garbage"), THIRD)
    send(server, vouched(b"A" * 32, b"new", stamp=b"garbage"))
    send(server, vouched(cookie, b"new"))
    send(server, vouched(cookie, b"%41", stamp=b"garbage"))
    send(server, vouched(cookie, *[b"new"] * 64, stamp=b"garbage"))
    send(server, vouched(cookie, b"t m", b"t n", stamp=b"garbage"))
    send(server, vouched(cookie, b"new", b"t m", stamp=b"garbage"))  # over the rate
    send(server, vouched(cookie, b"new", stamp=b"garbage"), now=START + 129)
    server.start_drain(START + 129)
    send(server, vouched(handshake(server, now=START + 129), b"new", stamp=b"garbage"), now=START + 129)
    assert checks == []
