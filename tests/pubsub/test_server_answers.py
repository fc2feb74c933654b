"""pubsub/server.py: the audience that receipts tell, and the longest answers. PROTOCOL §5.1, §5.2, §5.7."""

from functools import cache
from itertools import product
from typing import Any

import pytest

from kcast.pubsub import stamp as stamps
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import (
    AUDIENCE_MAX,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    TTL_S_MAX,
    VERSION_CHARS_MAX,
    WORK_BITS_MAX,
    Limits,
)
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import Quote
from tests.support.grammar import PROTOCOL
from tests.support.server_core import (
    CLIENT,
    NONCE_MAX,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    handshake,
    lease,
    new_server,
    publish,
    publish_lease,
    send,
    vouched,
)


@pytest.fixture
def server() -> Server:
    return new_server()


# --- The audience (§5.7) ------------------------------------------------------------------------------


def told(server: Server, *lines: bytes, now: float = START) -> str | None:
    """The audience that the receipt of these lines tells."""
    receipt = answer(server, vouched(handshake(server, now=now), *lines), now=now)[0]
    assert isinstance(receipt, wire.Receipt)
    return receipt.attributes.get("audience")


@pytest.mark.parametrize("table", ["ttl", "fifo"])
def test_receipt_tells_how_many_have_leased_the_topic(table: str) -> None:
    server = new_server(table=table)
    assert told(server, b"t m") == "0"
    lease(server, OTHER, b"t")
    assert told(server, b"t m") == "1"
    lease(server, THIRD, b"t", b"u", now=START + 30)
    assert told(server, b"t 1", b"t 2", now=START + 30) == "2"
    lease(server, CLIENT, b"t", now=START + 40)
    assert told(server, b"t m", now=START + 40) == "3", "one's own lease is one like others"


@pytest.mark.parametrize("table", ["ttl", "fifo"])
def test_audience_counts_no_lease_that_is_over(table: str) -> None:
    """Although the table has not yet been asked to forget it."""
    server = new_server(table=table)
    lease(server, OTHER, b"t")
    lease(server, THIRD, b"t", now=START + 30)
    assert told(server, b"t m", now=START + 59.999) == "2"
    assert told(server, b"t m", now=START + 60) == "1"
    assert told(server, b"t m", now=START + 90) == "0"


def test_audience_is_that_of_the_topic_with_the_most(server: Server) -> None:
    """So 0 means that none of the topics has a lease; what is no topic has none."""
    lease(server, OTHER, b"t", b"u")
    lease(server, THIRD, b"u")
    assert told(server, b"t m", b"u m", b"v m") == "2"
    assert told(server, b"v m", b"t m") == "1"
    assert told(server, b"v m", b"%41 m") == "0"


def test_audience_stands_only_where_there_is_one_and_no_subscribe_line(server: Server) -> None:
    """An answer with a map of refused lines has no room for it; and without publishes nobody asks for it."""
    lease(server, OTHER, b"t")
    assert told(server, b"t", b"t m") is None
    assert told(server, b"%41", b"t m") is None
    assert told(server) is None
    for request in (ask(), vouched(handshake(server), b"%41"), b"%~ P".ljust(40, b"\n")):
        for reply in answer(server, request):
            assert reply is not None
            assert "audience" not in reply.attributes


def test_larger_audience_than_seven_digits_can_tell(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = range(AUDIENCE_MAX + 1)
    monkeypatch.setattr(server.leases, "subscribers", lambda topic, now: crowd if topic == b"t" else ())
    monkeypatch.setattr(server._publishing, "forward", lambda *_, **__: None)
    assert told(server, b"t m") == str(AUDIENCE_MAX) == "9999999"


def test_audience_may_be_hidden() -> None:
    server = new_server(tells_audience=False)
    lease(server, OTHER, b"t")
    (receipt,) = answer(server, vouched(handshake(server), b"t m"))
    assert isinstance(receipt, wire.Receipt)
    assert receipt.attributes == {}


# --- The longest answers (§5.2) -----------------------------------------------------------------------

# As long as all can be that the operator or the client decides.
LONGEST: dict[str, Any] = {"ttl_s": TTL_S_MAX, "work_bits": WORK_BITS_MAX, "head": "~" * 32}
MANY = [b"t%d" % number for number in range(62)]


def longest_server(is_draining: bool, **limits: int) -> Server:
    server = new_server(**LONGEST, limits=Limits(publishers=1, **limits))
    publish_lease(server, OTHER)  # so that there is no room for another: bare=0
    if is_draining:
        server.start_drain(START)
    return server


def longest_answer(server: Server, *lines: bytes, source: Address = CLIENT) -> bytes:
    ((_, data),) = send(server, vouched(handshake(server, source), *lines, nonce=NONCE_MAX), source)
    assert all(wire.parse_reply(line) for line in wire.split_lines(data)[0])
    return data


@pytest.mark.parametrize(
    ("reason", "limits", "is_draining"),
    [
        ("topic", {}, False),
        ("topic", {}, True),
        ("full", {"leases": 1}, False),
        ("address", {"leases_per_address": 1}, False),
        ("prefix", {"leases_per_prefix": 1}, False),
        ("topics", {"topics": 1}, False),
    ],
)
def test_longest_answer_fits_with_every_reason(
    reason: str, limits: dict[str, int], is_draining: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = longest_server(False, **limits)
    monkeypatch.setattr(stamps, "is_valid", lambda *_: True)  # 24 bits for 62 leases: some minutes
    cookie = handshake(server)
    answer(server, vouched(cookie, b"mine", stamp=b"paid"))
    if is_draining:
        server.start_drain(START)
    lines = [*([b"%41"] * 62 if reason == "topic" else MANY), b"t m"]
    ((_, data),) = send(server, vouched(cookie, *lines, nonce=NONCE_MAX, stamp=b"paid"))
    assert b" 24 bare=0 head=" in data
    assert (b" drain=1\n" in data) is is_draining
    assert data.endswith(b"\n%%- %b %b 3fffffffffffffff\n" % (NONCE_MAX, reason.encode()))
    assert len(data) <= REPLY_BYTES_MAX


def test_other_longest_answers_fit() -> None:
    """`%=`, and `%-` for the whole datagram."""
    server = longest_server(True, publishes_per_s=1, lines_per_datagram=60)
    publish(server, b"t m", b"t m", source=OTHER)
    answers = [
        *(data for _, data in send(server, ask(NONCE_MAX))),
        longest_answer(server, *MANY),
        longest_answer(server, b"t m", source=OTHER),
        *(data for _, data in send(server, b"%~ " + NONCE_MAX + b"\n" * 30, OTHER)),
    ]
    assert [data[:2] for data in answers] == [b"%=", b"%-", b"%-", b"%:"]
    assert all(b"drain=1" in data for data in answers)
    assert max(map(len, answers)) <= REPLY_BYTES_MAX


@pytest.mark.parametrize("is_draining", [False, True])
@pytest.mark.parametrize("publishes", [[], [b"t m"]])
def test_longest_answer_fits_where_renewals_have_a_price(
    is_draining: bool, publishes: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """§5.1, §7.9: all but the first 8 are refused, with `keep=`, the most credit, or `bare=0`. In the answer
    of a server that drains the price stands once."""
    server = longest_server(False)
    quote = Quote(WORK_BITS_MAX, is_keeping_dear=True)
    with monkeypatch.context() as paid:
        paid.setattr(stamps, "is_valid", lambda *_: True)
        answer(server, vouched(handshake(server), *MANY, stamp=b"paid"))
    monkeypatch.setattr(server._price, "quote", lambda *_: quote)
    monkeypatch.setattr(server._subscribers, "credit_bytes", lambda *_: 10**12)
    if is_draining:
        server.start_drain(START)
    data = longest_answer(server, *MANY, *publishes)
    receipt, refusal = [wire.parse_reply(line) for line in wire.split_lines(data)[0]]
    assert isinstance(receipt, wire.Receipt)
    assert (receipt.bits, receipt.attributes["keep"]) == (WORK_BITS_MAX, "18")
    assert receipt.attributes.keys() >= {"head", "bare" if publishes else "credit"}
    price = {} if is_draining else {"bits": "24"}
    assert refusal == wire.Refusal(NONCE_MAX, "work", 0x3FFFFFFFFFFFFF00, price)
    assert ("drain" in receipt.attributes) is is_draining
    assert len(data) <= REPLY_BYTES_MAX


# keep, bare, audience, head, drain, subscribe lines, no publish line
Combination = tuple[bool, ...]
COMBINATIONS: list[Combination] = list(product([False, True], repeat=7))


@cache
def receipt_with(combination: Combination) -> bytes:
    """A receipt with these attributes, each as long as it can be, beside the longest nonce, ttl and price."""
    keep, bare, audience, head, drain, subscribes, silent = combination
    options = LONGEST | ({} if head else {"head": ""})
    server = new_server(**options, tells_audience=audience, limits=Limits(publishers=1))
    if bare:
        publish_lease(server, OTHER)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(server.leases, "live_count", lambda *_: AUDIENCE_MAX + 1)
        monkeypatch.setattr(server._publishing, "forward", lambda *_, **__: None)
        with monkeypatch.context() as paid:
            paid.setattr(stamps, "is_valid", lambda *_: True)  # else each took half a million hashes
            answer(server, vouched(handshake(server), b"mine", stamp=b"paid"))
        assert server.leases.is_live(b"mine", CLIENT, START)
        monkeypatch.setattr(server._price, "quote", lambda *_: Quote(WORK_BITS_MAX, is_keeping_dear=keep))
        if drain:
            server.start_drain(START)
        if subscribes:
            monkeypatch.setattr(server._subscribers, "credit_bytes", lambda *_: 10**12)
        return longest_answer(
            server, *((*MANY[1:], b"mine") if subscribes else ()), *(() if silent else (b"t m",))
        )


def test_every_combination_of_a_receipts_attributes_fits() -> None:
    """§5.1, §5.2"""
    for combination in COMBINATIONS:
        keep, bare, audience, head, drain, subscribes, silent = combination
        data = receipt_with(combination)
        receipt, *refusal = [wire.parse_reply(line) for line in wire.split_lines(data)[0]]
        assert isinstance(receipt, wire.Receipt)
        assert receipt.attributes == {
            **({"credit": "9999999999"} if silent and subscribes else {}),
            **({"keep": "18"} if keep else {}),
            **({"bare": "0"} if bare and not (silent and subscribes) else {}),
            **({"audience": "9999999"} if audience and not subscribes and not silent else {}),
            **({"head": "~" * 32} if head else {}),
            **({"drain": "1"} if drain else {}),
        }, combination
        assert len(refusal) == subscribes
        assert len(data) <= REPLY_BYTES_MAX


@pytest.mark.parametrize("is_draining", [False, True])
def test_a_receipt_alone_tells_the_version_to_whoever_asks(is_draining: bool) -> None:
    """§5.1, §5.2: it fits beside all else, and is in no other answer, whatever else the datagram asks."""
    version = "9" * VERSION_CHARS_MAX
    server = new_server(**LONGEST, version=version, limits=Limits(publishers=1, publishes_per_s=2))
    publish_lease(server, OTHER)
    cookie = handshake(server)
    if is_draining:
        server.start_drain(START)

    def told(*lines: bytes, asks: bool, shown: bytes = cookie) -> list[str]:
        vouch = wire.Vouch(NONCE_MAX, shown, None, asks)
        ((_, data),) = send(server, wire.request_datagram(vouch, [line + b"\n" for line in lines]))
        assert len(data) <= REPLY_BYTES_MAX
        replies = [wire.parse_reply(line) for line in wire.split_lines(data)[0]]
        return [f"{type(each).__name__} {each.attributes.get('version')}" for each in replies if each]

    assert told(asks=True) == told(b"t m", asks=True) == [f"Receipt {version}"]
    assert told(asks=False) == told(b"t m", asks=False) == ["Receipt None"]
    assert told(b"%41", asks=True) == ["Refusal None"]
    assert told(b"%41", b"t m", asks=True)[-1] == "Refusal None"
    assert told(asks=True, shown=b"A" * 32) == ["Challenge None"]
    for request in (b"%? N version=?", b"%~ P version=?"):
        for reply in answer(server, request.ljust(REQUEST_BYTES_MIN, b"\n")):
            assert reply is not None and "version" not in reply.attributes


def test_to_ask_for_the_version_opens_no_publish_lease() -> None:
    """§7.2: whoever forges the source could publish with it."""
    server = new_server()
    for asks, drops in ((True, 1), (False, 1)):
        send(server, wire.request_datagram(wire.Vouch(b"N", handshake(server), None, asks)))
        send(server, b"t forged\n")
        assert server.drops[Drop.UNVOUCHED_PUBLISH] == drops


def test_a_version_that_no_receipt_has_room_for() -> None:
    for version in ("9" * (VERSION_CHARS_MAX + 1), "0.5 beta", "é"):
        with pytest.raises(ValueError, match="give at most 32"):
            new_server(version=version)
    assert new_server(version="0.5.0+g1_a-b!").ttl_s


def test_protocol_tells_how_long_the_longest_are() -> None:
    """§5.7"""
    lengths = {each: len(receipt_with(each)) for each in COMBINATIONS}
    alone, both = (max(n for each, n in lengths.items() if each[5] is flag) for flag in (False, True))
    text = " ".join(PROTOCOL.split())
    told = alone + len(" version=") + VERSION_CHARS_MAX
    assert f"`%+` alone then has {alone} bytes, and `%+` with `%-` {both};" in text
    assert f"with `version=` `%+` alone has {told}." in text and told <= REPLY_BYTES_MAX


def test_a_vouch_that_is_not_ended_is_dropped() -> None:
    """§2.2: also where attributes make it as long as a request must be."""
    server = new_server()
    line = b"%! V " + handshake(server) + b" - x="
    assert answer(server, line.ljust(REQUEST_BYTES_MIN, b"x")) == []
    assert server.drops == {Drop.MALFORMED: 1} and not len(server.publish_leases)
    assert len(answer(server, line.ljust(REQUEST_BYTES_MIN, b"x") + b"\n")) == 1
